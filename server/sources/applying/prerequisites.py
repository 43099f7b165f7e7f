"""What a series needs below it: other patches that its mails name, found among stored series, in order."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from django.db.models import Exists, OuterRef, Q, QuerySet

from server.core.errors import DomainError
from server.sources.applying.patch_ids import fill_patch_ids, was_allowed
from server.sources.applying.screening import PatchRefusedError
from server.sources.mail.needs import UNKNOWN, is_unknown
from server.sources.models import Message, Patch, Series

# A chain of posted series is rarely longer than three; who names more wants something else.
_DEEPEST = 8
_MOST_PATCHES = 500
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
            if len(self.patches) > _MOST_PATCHES:
                raise _refused(f"it needs more than {_MOST_PATCHES} other patches")
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
    own |= {f"patch-id:{patch.patch_id}" for patch in series.patches.all() if patch.patch_id}
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
