"""From the mails to two kernels."""

from collections.abc import Iterator

from demo.checks.facts import Check, check
from demo.outcomes import Outcome
from server.builds.models import Artifact, Build
from server.builds.storage import has_artifact
from server.core.models import Transition
from server.sources.models import Message, Series

# Kinds of rows whose every change of state carries the id of the series.
_FOLLOWED = frozenset({"series", "session", "boot", "finding", "report"})


def kernel_checks(series: Series, outcome: Outcome, *, base: str, mails: int) -> list[Check]:
    """`base` is the commit the series was made on, `mails` how many were posted for it."""
    return [
        check("mails stored", _mail_faults(series, mails), f"{mails} of {mails}"),
        check("series applied", _apply_faults(series, base), f"{series.total} commits on {base[:12]}"),
        check("two kernels built", _build_faults(series, outcome), _built(series)),
        check(
            "history complete", _history_faults(series, outcome), f"{_steps(series)} steps under trace {series.trace}"
        ),
    ]


def _mail_faults(series: Series, mails: int) -> Iterator[str]:
    own = Message.objects.filter(patches__series=series)
    found = own.count() + (1 if series.cover else 0)
    if found != mails:
        yield f"{found} of {mails} mails belong to the series"


def _apply_faults(series: Series, base: str) -> Iterator[str]:
    if series.state != Series.State.APPLIED or series.base is None or series.head is None:
        yield f"the series is {series.state}: {series.reason}"
        return
    if series.base.sha != base:
        yield f"applied to {series.base.sha[:12]}, not to {base[:12]}"
    revisions = [patch.revision for patch in series.patches.select_related("revision__parent").order_by("index")]
    parent: int | None = series.base.pk
    for number, revision in enumerate(revisions, start=1):
        if revision is None or revision.parent_id != parent:
            yield f"patch {number} is no commit on the one before"
            return
        parent = revision.pk
    if parent != series.head.pk:
        yield "the last patch is not the head"


def builds_of(series: Series) -> dict[str, list[Build]]:
    """The builds of both arms, as the sessions used them."""
    sessions = series.sessions.select_related("base_build", "patched_build")
    base = {session.base_build_id: session.base_build for session in sessions}
    patched = {session.patched_build_id: session.patched_build for session in sessions}
    return {"base": list(base.values()), "patched": list(patched.values())}


def _build_faults(series: Series, outcome: Outcome) -> Iterator[str]:
    images: dict[str, str] = {}
    for arm, builds in builds_of(series).items():
        if len(builds) != 1:
            yield f"{len(builds)} {arm} kernels instead of one"
            continue
        build = builds[0]
        revision = series.base if arm == "base" else series.head
        image = build.artifacts.filter(kind=Artifact.Kind.IMAGE).first()
        if build.state != Build.State.BUILT or image is None:
            yield f"the {arm} kernel is {build.state}: {build.reason}"
        elif revision is None or build.tree_sha != revision.tree_sha:
            yield f"the {arm} kernel was made from other sources"
        elif not has_artifact(image.sha256, image.size):
            yield f"the image of the {arm} kernel is not stored"
        else:
            images[arm] = image.sha256
    if len(images) == len(("base", "patched")) and (images["base"] == images["patched"]) != outcome.same_image:
        yield "both kernels are the same image" if not outcome.same_image else "the kernels are different images"


def _built(series: Series) -> str:
    builds = builds_of(series)
    return ", ".join(f"{arm} {build.build_id[:12]}" for arm in builds for build in builds[arm])


def _history_faults(series: Series, outcome: Outcome) -> Iterator[str]:
    followed = _FOLLOWED | ({"delivery"} if outcome.mailed else set())
    # The same bytes are not booted.
    followed -= {"boot"} if outcome.same_image else set()
    told = set(Transition.objects.filter(trace=series.trace).values_list("subject", flat=True))
    for subject in sorted(followed - told):
        yield f"no change of state of a {subject} has the series' trace {series.trace}"
    last = Transition.objects.filter(subject="series", subject_id=series.pk).order_by("id").last()
    if last is None or last.after != series.state:
        yield "the history of the series does not end in its state"


def _steps(series: Series) -> int:
    return Transition.objects.filter(trace=series.trace).count()
