"""Whether everything truly happened: asked of the database, the mail sink and the service's page."""

import email
import email.policy
import html
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from email.utils import getaddresses

from demo.postings import Outcome
from demo.processes import ADDRESS
from demo.sink import Stored
from demo.world import MachinePlan
from server.builds.models import Artifact, Build
from server.builds.storage import has_artifact
from server.core.models import Transition
from server.detection.models import Bisection, BisectionState, Comparison, Finding, FindingVerdict, Verdict
from server.detection.trials.scope import is_same_code
from server.lab.models import Boot, Machine, Session
from server.reports.models import Delivery, Report
from server.results.models import Case, Measurement, Metric
from server.sources.models import Message, Series


@dataclass(frozen=True)
class Check:
    """`detail` says what was found, whether it is right or not."""

    name: str
    ok: bool
    detail: str


def check(name: str, wrong: Iterable[str], right: str) -> Check:
    """A check that holds when nothing is wrong."""
    faults = list(wrong)
    return Check(name, not faults, "; ".join(faults) if faults else right)


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


def measured_checks(series: Series, outcome: Outcome, machines: Sequence[MachinePlan]) -> list[Check]:
    sessions = {session.machine.name: session for session in series.sessions.select_related("machine")}
    boots = list(
        Boot.objects.filter(session__series=series, state=Boot.State.MEASURED).select_related(
            "session__machine", "session__base_build", "session__patched_build"
        )
    )
    booted = [machine for machine in machines if not _is_unbooted(sessions.get(machine.name))]
    planned = Boot.objects.filter(session__series=series).count()
    values = sum(len(row.values) for row in Measurement.objects.filter(boot__in=boots))
    return [
        check("sessions done", _session_faults(sessions, machines), f"{len(machines)} machines"),
        check("every boot measured", _boot_faults(boots, booted, planned), f"{len(boots)} of {planned} boots"),
        check("boots are proved", _proof_faults(boots, outcome), f"{len({boot.boot_id for boot in boots})} boot ids"),
        check("measurements stored", _measurement_faults(boots), f"{values} values"),
    ]


def _session_faults(sessions: dict[str, Session], machines: Sequence[MachinePlan]) -> Iterator[str]:
    for machine in machines:
        session = sessions.get(machine.name)
        if session is None:
            yield f"no session on {machine.name}"
        elif session.state != Session.State.DONE:
            yield f"the session on {machine.name} is {session.state}: {session.reason}"
        elif session.machine.clock != machine.clock:
            yield f"{machine.name} counts by {session.machine.clock}, not by {machine.clock}"


def _is_unbooted(session: Session | None) -> bool:
    return session is not None and is_same_code(session)


def _boot_faults(boots: Sequence[Boot], machines: Sequence[MachinePlan], planned: int) -> Iterator[str]:
    """Cells that the first boots leave open get more of them, so that there may be more than a machine begins with."""
    if len(boots) != planned:
        yield f"{len(boots)} of {planned} boots measured"
    counted = Counter((boot.session.machine.name, boot.arm) for boot in boots)
    for machine in machines:
        for arm in Boot.Arm.values:
            found = counted[machine.name, arm]
            if found < machine.boots_per_side:
                yield f"{found} of at least {machine.boots_per_side} {arm} boots measured on {machine.name}"


def _proof_faults(boots: Sequence[Boot], outcome: Outcome) -> Iterator[str]:
    repeated = [boot_id for boot_id, times in Counter(boot.boot_id for boot in boots).items() if times > 1]
    if repeated:
        yield f"{len(repeated)} boot ids stand more than once"
    for boot in boots:
        build = boot.session.base_build if boot.arm == Boot.Arm.BASE else boot.session.patched_build
        if boot.build_id != build.build_id:
            yield f"{boot} ran the kernel {boot.build_id[:12]}, not {build.build_id[:12]}"
    ran = {arm: {boot.build_id for boot in boots if boot.arm == arm} for arm in Boot.Arm.values}
    if not outcome.same_image and ran[Boot.Arm.BASE.value] & ran[Boot.Arm.PATCHED.value]:
        yield "base and patched boots ran the same kernel"


def _measurement_faults(boots: Sequence[Boot]) -> Iterator[str]:
    wanted = [
        (case, metric.pk, f"{case.name} {metric.name}")
        for case in Case.objects.filter(enabled=True).select_related("benchmark")
        for metric in Metric.objects.filter(benchmark=case.benchmark_id)
    ]
    if not wanted:
        yield "no benchmark is registered"
    stored: dict[tuple[int, int, int], int] = {
        (row.boot_id, row.case_id, row.metric_id): len(row.values) for row in Measurement.objects.filter(boot__in=boots)
    }
    for boot in boots:
        chosen = boot.session.machine.cases
        for case, metric, name in wanted:
            found = stored.get((boot.pk, case.pk, metric), 0)
            if (not chosen or str(case) in chosen) and found != case.runs:
                yield f"{boot} has {found} of {case.runs} values of {name}"


_CHANGES = frozenset({Verdict.REGRESSED.value, Verdict.IMPROVED.value})
Cell = tuple[int, int, int, str]


def verdict_checks(series: Series, outcome: Outcome, machines: Sequence[MachinePlan]) -> list[Check]:
    finding = Finding.objects.filter(series=series).first()
    kind = finding.kind if finding else "none"
    # Of kernels that run the same code nothing is booted, and nothing compared.
    booted = not all(is_same_code(session) for session in series.sessions.all())
    return [
        check("every cell compared", _comparison_faults(series, booted=booted), f"{_comparisons(series)} comparisons"),
        check("finding", _finding_faults(finding, outcome), f"{kind}, marked as virtual"),
        *(_component(finding, uarch, verdict) for uarch, verdict in sorted(outcome.verdicts.items())),
        check(
            "wall clock agrees",
            _wall_faults(series, machines if booted else ()),
            "it says the same, or that it cannot tell",
        ),
    ]


def _comparisons(series: Series) -> int:
    return Comparison.objects.filter(session__series=series).count()


def _comparison_faults(series: Series, *, booted: bool) -> Iterator[str]:
    measured = set(
        Measurement.objects.filter(boot__session__series=series)
        .values_list("boot__session__machine__name", "case__name", "metric__name")
        .distinct()
    )
    compared = set(
        Comparison.objects.filter(session__series=series).values_list(
            "session__machine__name", "case__name", "metric__name"
        )
    )
    if booted and not compared:
        yield "nothing was compared"
    for machine, case, metric in sorted(measured - compared):
        yield f"{case} {metric} on {machine} was measured and not compared"


def _finding_faults(finding: Finding | None, outcome: Outcome) -> Iterator[str]:
    if finding is None:
        yield "there is none"
        return
    if finding.kind != outcome.kind:
        yield f"{finding.kind} instead of {outcome.kind}: {finding.headline}"
    if not finding.virtual:
        yield "it does not say that it comes from virtual machines"
    if finding.identical != outcome.same_image:
        yield f"it says that the kernels are {'the same image' if finding.identical else 'different'}"


def _is_same_code(row: FindingVerdict) -> bool:
    assert row.finding.series is not None
    sessions = list(row.finding.series.sessions.filter(machine__uarch=row.uarch))
    return bool(sessions) and all(is_same_code(session) for session in sessions)


def _component(finding: Finding | None, uarch: str, verdict: str) -> Check:
    row = finding.verdicts.filter(uarch__name=uarch).select_related("comparison").first() if finding else None
    if row is None:
        return Check(f"verdict for {uarch}", ok=False, detail=f"none; {verdict} is right")
    faults = []
    if row.verdict != verdict:
        faults.append(f"{row.verdict} instead of {verdict} {row.reason}".rstrip())
    elif verdict in _CHANGES and (row.comparison is None or row.comparison.ratio is None):
        faults.append(f"{verdict}, but no comparison shows by how much")
    elif verdict == Verdict.UNCHANGED and row.mde is None and not _is_same_code(row):
        faults.append("unchanged, but not what would have been seen")
    seen = f" (would have seen {100 * row.mde:.1f} %)" if row.mde is not None else ""
    moved = f" ({row.comparison.ratio:.2f}x)" if row.comparison and row.comparison.ratio else ""
    return check(f"verdict for {uarch}", faults, verdict + (moved if verdict in _CHANGES else seen))


def _wall_faults(series: Series, machines: Sequence[MachinePlan]) -> Iterator[str]:
    """By the wall clock a machine may be unable to tell, but must not contradict the one that counts."""
    walls = {machine.name for machine in machines if machine.clock == Machine.Clock.WALL}
    rows = Comparison.objects.filter(session__series=series).select_related("session__machine__uarch", "case")
    counted: dict[Cell, str] = {}
    for row in rows:
        if row.session.machine.name not in walls:
            counted[_cell(row)] = row.verdict
    told = [row for row in rows if row.session.machine.name in walls]
    if walls and not told:
        yield "nothing was compared there"
    for row in told:
        other = counted.get(_cell(row))
        if row.verdict not in {Verdict.INCONCLUSIVE, other}:
            yield f"{row.case.name} is {row.verdict} on {row.session.machine.name} and {other} where it is counted"


def _cell(row: Comparison) -> Cell:
    return row.case_id, row.metric_id, row.session.machine.uarch_id, row.core_type.name


def culprit_checks(series: Series, outcome: Outcome) -> list[Check]:
    """Nothing for a series in which nothing moves."""
    if not outcome.culprit:
        return []
    right = f"patch {outcome.culprit} of {series.total}, {_searches(series)} bisections"
    return [check("culprit", _culprit_faults(series, outcome), right)]


def _searches(series: Series) -> int:
    return Bisection.objects.filter(finding__series=series).count()


def _culprit_faults(series: Series, outcome: Outcome) -> Iterator[str]:
    finding = Finding.objects.filter(series=series).select_related("culprit").first()
    patch = series.patches.filter(index=outcome.culprit).select_related("revision").first()
    if finding is None or patch is None or patch.revision is None:
        yield "there is no finding, or no such patch"
        return
    if finding.culprit != patch.revision:
        named = finding.culprit.subject if finding.culprit else "none"
        yield f"{named} instead of {patch.subject}: {finding.reason}"
    for search in finding.bisections.select_related("machine"):
        if search.state != BisectionState.FOUND:
            yield f"the bisection on {search.machine.name} is {search.state}: {search.reason}"
    searched = set(finding.bisections.values_list("machine__uarch__name", flat=True))
    moved = {uarch for uarch, verdict in outcome.verdicts.items() if verdict in _CHANGES}
    # One patch alone is the culprit without a search.
    if series.total > 1 and (missing := sorted(moved - searched)):
        yield f"not searched on {', '.join(missing)}"


Fetch = Callable[[str], tuple[int, str]]
_SECONDS = 20


def fetch(url: str) -> tuple[int, str]:
    """Status and text of a page; 0 and the reason where no answer came."""
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 (our own http address)
            return int(answer.status), answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, str(error)
    except OSError as error:
        return 0, str(error)


def mail_checks(series: Series, outcome: Outcome, mails: Sequence[Stored]) -> list[Check]:
    replies = replies_to(series.root_message_id, mails)
    if not outcome.mailed:
        return [check("no mail, a draft waits", _draft_faults(series, replies), "for a person")]
    again = f", handed over {replies[0].arrivals} times" if replies and replies[0].arrivals > 1 else ""
    return [check("one mail in the thread", _reply_faults(series, outcome, replies), f"to {ADDRESS}{again}")]


def replies_to(root_message_id: str, mails: Sequence[Stored]) -> list[Stored]:
    return [mail for mail in mails if mail.in_reply_to == f"<{root_message_id}>"]


def _draft_faults(series: Series, replies: Sequence[Stored]) -> Iterator[str]:
    if replies:
        yield f"{len(replies)} mails answer the series"
    report = Report.objects.filter(finding__series=series).first()
    if report is None or report.state != Report.State.DRAFT:
        yield f"the report is {report.state if report else 'missing'} instead of a draft"


def _reply_faults(series: Series, outcome: Outcome, replies: Sequence[Stored]) -> Iterator[str]:
    if len(replies) != 1:
        yield f"{len(replies)} mails answer the series instead of one"
        return
    mail = replies[0]
    delivery = Delivery.objects.filter(report__finding__series=series).first()
    if delivery is None or mail.message_id != f"<{delivery.message_id}>":
        yield f"the mail {mail.message_id} is not the one in the outbox"
    elif delivery.state != Delivery.State.SENT:
        yield f"the outbox says that it is {delivery.state}"
    parsed = email.message_from_string(mail.text, policy=email.policy.default)
    readers = {address.lower() for _name, address in getaddresses(parsed.get_all("To", []))}
    if ADDRESS not in readers:
        yield f"it is not addressed to {ADDRESS}"
    body = parsed.get_content().lower()
    if "not evidence" not in body:
        yield "it does not say that virtual machines are no evidence"
    for uarch in outcome.verdicts:
        if uarch not in body:
            yield f"it does not name {uarch}"


def page_checks(series: Series, outcome: Outcome, url: str, fetch_page: Fetch = fetch) -> list[Check]:
    address = f"{url}/series/{series.pk}/"
    finding = Finding.objects.filter(series=series).first()
    headline = finding.headline if finding else ""
    return [check("page of the series", _page_faults(address, headline, outcome, fetch_page), address)]


def _page_faults(address: str, headline: str, outcome: Outcome, fetch_page: Fetch) -> Iterator[str]:
    status, text = fetch_page(address)
    if status != 200:  # noqa: PLR2004 (HTTP's own number)
        yield f"{address} answers {status}: {text[:200]}"
        return
    shown = html.unescape(text)
    for word in sorted({*outcome.verdicts, *outcome.verdicts.values(), "not evidence", headline}):
        if word not in shown:
            yield f"{address} does not show “{word}”"
