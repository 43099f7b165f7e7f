"""What a series needs below it: other patches that its mails name, found among stored series by their ids."""

import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain, islice
from pathlib import Path

from django.db.models import Exists, F, Func, IntegerField, OuterRef, Q, QuerySet

from server.core import clock
from server.core.errors import DomainError
from server.core.models import Transition
from server.core.programs.git import GitError, run, run_program
from server.core.programs.sandbox import Room
from server.sources.bases.candidates import MOST_PATHS
from server.sources.mail.diffs import git_form
from server.sources.mail.parser import UNKNOWN, is_unknown, parse_mail
from server.sources.mirror import mirror
from server.sources.models import Message, Patch, Series
from server.sources.screened_mails import MAX_BYTES, PatchRefusedError

MAY_RUN = (Series.State.READY, Series.State.APPLIED)
# Prerequisites are posted shortly before what needs them.
_LOOK_BACK = timedelta(days=120)
_MOST_PATCHES = 3000
_AT_ONCE = 200
# Of mails as they were sent. Read, a letter may take twenty times its bytes.
_BYTES_AT_ONCE = 4 * 1024 * 1024
_SIZE = Func(F("message__raw"), function="octet_length", output_field=IntegerField())
# As long as a commit's id, which git takes the marks for.
_MARK_BYTES = 20
# Commits of a base among which a prerequisite may be already, and seconds to read them.
_RECENT_COMMITS = 500
_LOG_SECONDS = 30.0
# A log that ends early holds fewer ids than there are.
_LOG = (
    "set -o pipefail; "
    'git --git-dir=. --literal-pathspecs log -p --no-merges --no-ext-diff --full-diff -n "$1" "$2" -- "${@:3}" '
    "| git patch-id --stable"
)


def was_allowed(way: str = "") -> Q:
    """Whether a series may be applied below another one: it was proved or approved some time.

    `way` leads from the rows that are asked to the series, as "series__".
    """
    steps = Transition.objects.filter(
        subject=Series._meta.model_name, subject_id=OuterRef(f"{way}pk"), after__in=MAY_RUN
    )
    never = {f"{way}state__in": [Series.State.HELD, Series.State.INCOMPLETE]}
    return ~Q(**never) & (Q(**{f"{way}state__in": MAY_RUN}) | Q(Exists(steps)))


def patch_ids(texts: Sequence[str], *, folder: Path) -> list[str]:
    """The id of each text's diff, Patch.NO_ID where it holds none. git runs in the sandbox, in `folder`."""
    # Marks that nobody can guess: a text may hold lines that look like the beginning of another commit.
    marks = [secrets.token_hex(_MARK_BYTES) for _text in texts]
    # Without the message: a line of it that looks like a commit's id would start another one.
    parts = [f"commit {mark}\n{git_form(text)}\n" for mark, text in zip(marks, texts, strict=True)]
    folder.mkdir(parents=True, exist_ok=True)
    stdin = "".join(parts).encode("utf-8", "surrogateescape")
    done = run("patch-id", "--stable", cwd=folder, stdin=stdin, room=Room(writable=folder))
    if done.code != 0:
        raise GitError("git-failed", f"git patch-id: {done.stderr.strip()[:300]}")
    found = {mark: patch_id for patch_id, mark in map(str.split, done.stdout.decode().splitlines())}
    return [found.get(mark, Patch.NO_ID) for mark in marks]


def fill_patch_ids(*, folder: Path) -> int:
    """Give the newest patches of complete series their ids, as far as they have none; returns how many were found.

    First those of series that may be applied below others. What waits for a person can only be named in a reason: of
    that a few are read, for anybody can post any number of large ones.
    """
    complete = Patch.objects.filter(patch_id="", series__received_at__gt=clock.now() - _LOOK_BACK)
    complete = complete.exclude(series__state=Series.State.INCOMPLETE).annotate(size=_SIZE)
    # One that the archive deleted may come again.
    newest = complete.filter(size__gt=0, size__lte=MAX_BYTES).order_by("-pk").values_list("pk", "size")
    allowed = _parts(newest.filter(was_allowed("series__"))[:_MOST_PATCHES])
    waiting = _parts(newest.filter(series__state=Series.State.HELD)[:_AT_ONCE])
    return sum(_fill(keys, folder) for keys in chain(allowed, islice(waiting, 1)))


def _parts(sized: Iterable[tuple[int, int]]) -> Iterator[list[int]]:
    """The keys in parts that are read together."""
    part: list[int] = []
    left = _BYTES_AT_ONCE
    for key, size in sized:
        if part and (size > left or len(part) == _AT_ONCE):
            yield part
            part, left = [], _BYTES_AT_ONCE
        part.append(key)
        left -= size
    if part:
        yield part


def _fill(keys: list[int], folder: Path) -> int:
    patches = list(Patch.objects.filter(pk__in=keys).select_related("message"))
    mails = [parse_mail(bytes(p.message.raw), blob=p.message.blob, received_at=p.message.received_at) for p in patches]
    for patch, patch_id in zip(patches, patch_ids([m.body for m in mails], folder=folder), strict=True):
        patch.patch_id = patch_id
    Patch.objects.bulk_update(patches, ["patch_id"])
    return sum(bool(p.git_id) for p in patches)


def ids_in_history(base: str, paths: Collection[str]) -> frozenset[str]:
    """Patch ids of the recent commits below `base` that touch one of `paths` (any, if empty).

    What cannot be read in time counts as not there: the prerequisite is applied then, or waited for.
    """
    # More paths do not fit on a command line; then all recent commits are looked at.
    words = sorted(paths) if len(set(paths)) <= MOST_PATHS else []
    words = ["-c", _LOG, "log", str(_RECENT_COMMITS), base, *words]
    try:
        told = run_program("bash", *words, cwd=mirror().git_dir, timeout=_LOG_SECONDS)
    except GitError as error:
        if error.code != "git-timeout":
            raise
        return frozenset()
    if told.code != 0:
        raise GitError("git-failed", f"git log of {base[:12]}: {told.stderr.strip()[:300]}", stderr=told.stderr)
    return frozenset(line.split()[0] for line in told.stdout.decode().splitlines())


# A chain of posted series is rarely longer than three; who names more wants something else.
_DEEPEST = 8
_MOST_BELOW = 500
_VERSION = re.compile(r"(.+):v(\d{1,9})(?:\.(\d{1,9}))?")


class WaitsError(DomainError):
    """A prerequisite that is not here yet, or may not run yet."""

    def __init__(self, what: str) -> None:
        super().__init__("prerequisite-missing", f"waits for prerequisite {what}", permanent=False)


@dataclass(frozen=True)
class Needs:
    """`patches` in the order in which they apply; `missing` are those named by patch id that no stored series holds.

    `left_out` are the words of the series that name nothing below it: itself, or what cannot be looked up.
    """

    patches: tuple[Patch, ...] = ()
    missing: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def remarks(self) -> list[str]:
        """A sentence for each kind of what was left out."""
        unknown = [need.removeprefix(f"{UNKNOWN}:") for need in self.left_out if is_unknown(need)]
        itself = len(self.left_out) - len(unknown)
        told = ["a prerequisite that is the series itself was left out"] if itself else []
        return told + ([f"not below it, as nobody can look them up: {', '.join(unknown)}"] if unknown else [])


def find_needs(series: Series, *, folder: Path) -> Needs:
    """What `series` needs, and what that needs in turn.

    WaitsError for what is not here or may not run. PatchRefusedError for a circle, and for chains without measure.
    git works in `folder`.
    """
    if not series.prerequisites:
        return Needs()
    if any(_bare_id(need) for need in series.prerequisites):
        fill_patch_ids(folder=folder)
    walk = _Walk()
    walk.visit(series, ())
    return Needs(tuple(walk.patches.values()), tuple(walk.missing), tuple(_left_out(series)))


@dataclass
class _Walk:
    patches: dict[int, Patch] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    done: set[int] = field(default_factory=set)

    def visit(self, series: Series, above: tuple[Series, ...]) -> None:
        # Once is enough, and more would never end where series of many patches name each other's patches one by one.
        if series.pk in self.done:
            return
        chain = (*above, series)
        if len(chain) > _DEEPEST:
            raise _refused(f"prerequisites of prerequisites are deeper than {_DEEPEST}")
        left_out = _left_out(series)
        for need in series.prerequisites:
            if need in left_out:
                continue
            found = _patches_for(need, series)
            if not found and (patch_id := _bare_id(need)):
                self.missing.append(patch_id)
            elif not found:
                raise WaitsError(need)
            for owner in dict.fromkeys(patch.series for patch in found):
                self._enter(owner, need, chain)
            self.patches |= {p.pk: p for p in found if p.pk not in self.patches}
            if len(self.patches) > _MOST_BELOW:
                raise _refused(f"it needs more than {_MOST_BELOW} other patches")
        self.done.add(series.pk)

    def _enter(self, owner: Series, need: str, chain: tuple[Series, ...]) -> None:
        if owner in chain:
            names = " needs ".join(f"<{s.root_message_id}>" for s in (*chain[chain.index(owner) :], owner))
            raise _refused(f"prerequisites go in a circle: {names}")
        if objection := _objection(owner):
            raise WaitsError(f"{need}: <{owner.root_message_id}> ({owner}) {objection}")
        self.visit(owner, chain)


def _left_out(series: Series) -> list[str]:
    """People name the thread that they write in, and git its own patches; some name what only a person can look up."""
    if not series.prerequisites:
        return []
    held = series.patches.values("message")
    # Of a partial re-roll also the mails that it replaces: they are older versions of its own patches.
    posting = Series.objects.filter(Q(pk=series.pk) | Q(patches__message__in=held))
    mails = Message.objects.filter(Q(patches__series__in=posting) | Q(pk__in=posting.values("cover")))
    own = {f"message-id:{name}" for name in mails.values_list("message_id", flat=True)}
    own |= {f"patch-id:{patch.git_id}" for patch in series.patches.all() if patch.git_id}
    return [need for need in series.prerequisites if need in own or _is_self(need, series) or is_unknown(need)]


def _is_self(need: str, series: Series) -> bool:
    kind, _, name = need.partition(":")
    # An older version of the same change lies below nothing either: it is what this one replaces.
    return kind == "change-id" and series.change_id in {name, _version_of(name)[0]}


def _version_of(name: str) -> tuple[str, tuple[int, int] | None]:
    """The change-id, and which version of it: b4 writes that after the last colon, ID:v2 or ID:v2.1."""
    found = _VERSION.fullmatch(name)
    return (found[1], (int(found[2]), int(found[3] or 0))) if found else (name, None)


def _bare_id(need: str) -> str:
    return need.removeprefix("patch-id:") if need.startswith("patch-id:") else ""


def _patches_for(need: str, asking: Series) -> list[Patch]:
    """The patches that `need` names, the newest series first where several hold it; a patch id names one patch."""
    kind, _, name = need.partition(":")
    if kind == "patch-id":
        holders = Series.objects.exclude(pk=asking.pk).filter(patches__patch_id=name)
        holder = _first_allowed(holders.order_by("-pk").distinct(), asking)
        some = holder.patches.filter(patch_id=name).order_by("index") if holder else Patch.objects.none()
        return list(some.select_related("series", "message")[:1])
    series = _series_for(kind, name, asking)
    return list(series.patches.select_related("series", "message").order_by("index")) if series else []


def _series_for(kind: str, name: str, asking: Series) -> Series | None:
    others = Series.objects.exclude(pk=asking.pk) if kind == "change-id" else Series.objects.all()
    if kind == "change-id":
        change, number = _version_of(name)
        rows = others.filter(change_id=change).order_by("-version", "-minor", "-pk")
        if number is not None:
            return _first_allowed(rows.filter(version=number[0], minor=number[1]), asking, of=rows)
        return _newest(_first_allowed(rows, asking), asking)
    # Signatures leave the Message-ID open: a mail that comes later under the same one is another mail.
    mails = Message.objects.filter(message_id=name.strip("<>"))
    patches, covers = Patch.objects.filter(message=OuterRef("pk")), Series.objects.filter(cover=OuterRef("pk"))
    first = mails.filter(Exists(patches) | Exists(covers)).order_by("received_at", "pk").first()
    rows = others.filter(Q(patches__message=first) | Q(cover=first)) if first else others.none()
    return _first_allowed(rows.order_by("-version", "-minor", "-pk").distinct(), asking)


def _first_allowed(rows: QuerySet[Series], asking: Series, *, of: QuerySet[Series] | None = None) -> Series | None:
    """The first of its author that may be applied below another one, else his first.

    Anyone can post somebody's patch or change-id again, trusted authors too: its author is who was the first whose
    series (one of `of`, where that holds more) was allowed, or who asks, where he posted one himself. Of others only
    what a person approved counts. Forged newer versions, however many, hold up nothing that needs the true one.
    """
    allowed = rows.filter(was_allowed())
    first = (rows if of is None else of).filter(was_allowed()).order_by("received_at", "pk").first()
    if first is not None:
        for hand in (first.author_address, asking.author_address):
            if found := allowed.filter(author_address__iexact=hand).first():
                return found
    return allowed.filter(approved_at__isnull=False).first() or rows.first()


def _newest(series: Series | None, asking: Series) -> Series | None:
    """What has replaced it and may run: of another author's hand where a person approved that."""
    seen = {asking.pk}
    while series is not None and series.state == Series.State.SUPERSEDED and series.pk not in seen:
        seen.add(series.pk)
        following = Series.objects.filter(was_allowed(), supersedes=series).exclude(pk__in=seen).first()
        series = following or series
    return series


def _objection(series: Series) -> str:
    """Why a series may not be applied below another one; "" if it may: it was proved or approved some time."""
    if series.state == Series.State.HELD:
        return "waits for approval"
    if series.state == Series.State.INCOMPLETE:
        return "is not complete"
    return "" if Series.objects.filter(was_allowed(), pk=series.pk).exists() else "was never allowed to run"


def _refused(message: str) -> PatchRefusedError:
    return PatchRefusedError("patch-refused", message)
