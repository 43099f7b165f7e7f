"""A series as one JSON object: all that is known of it, for scripts."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from django.db.models import Prefetch, QuerySet

from server.core.models import Transition
from server.sources.models import HeadMove, Message, Patch, Series

# So many are read at once: memory stays flat, however many there are.
_AT_A_TIME = 50
_OF_OLDER = ("root_message_id", "superseded_by")


def series_json(series: Series) -> dict[str, Any]:
    """The object of one series (docs/series.md names the fields). Costs a few queries."""
    return next(iter(_documents([series.pk])))


def all_series_json(wanted: QuerySet[Series] | None = None) -> Iterator[dict[str, Any]]:
    """The objects of all (or the `wanted`) series, the oldest first; read through a cursor of the database."""
    rows = Series.objects.all() if wanted is None else wanted
    keys = rows.order_by("received_at", "pk").values_list("pk", flat=True).iterator(chunk_size=2000)
    while some := list(islice(keys, _AT_A_TIME)):
        yield from _documents(some)


def holding(message_id: str) -> QuerySet[Series]:
    """The series that hold the mail `message_id`, with or without its angle brackets."""
    name = message_id.strip().strip("<>")
    # Three questions, each with an index of its own: one with OR over all of them would read every mail.
    named = (
        Series.objects.filter(root_message_id=name).order_by().values("pk"),
        Series.objects.filter(cover__message_id=name).order_by().values("pk"),
        Patch.objects.filter(message__message_id=name).order_by().values("series"),
    )
    return Series.objects.filter(pk__in=named[0].union(*named[1:]))


def _documents(keys: list[int]) -> list[dict[str, Any]]:
    mails = Message.objects.defer("raw")
    patches = Patch.objects.order_by("index").prefetch_related(Prefetch("message", mails))
    rows = Series.objects.filter(pk__in=keys).select_related("mailing_list", "base__tree", "head", "superseded_by")
    rows = rows.prefetch_related(
        Prefetch("patches", patches),
        Prefetch("cover", mails),
        Prefetch("supersedes", Series.objects.only(*_OF_OLDER).order_by("version", "minor", "submitted_at", "pk")),
    )
    found = {row.pk: row for row in rows}
    steps: dict[int, list[Transition]] = {pk: [] for pk in found}
    for step in Transition.objects.filter(subject="series", subject_id__in=keys).order_by("id"):
        steps[step.subject_id].append(step)
    branches = _branches(row.base_id for row in found.values() if row.base_id)
    return [_document(found[pk], steps[pk], branches) for pk in keys if pk in found]


def _branches(bases: Iterable[int]) -> dict[int, str]:
    """The branch that each of these revisions was the head of; none for one between two polls."""
    moves = HeadMove.objects.filter(after__in=list(bases)).select_related("branch").order_by("-id")
    return {move.after_id: move.branch.name for move in moves if move.after_id}


def _document(series: Series, steps: list[Transition], branches: dict[int, str]) -> dict[str, Any]:
    patches = list(series.patches.all())
    newer = series.superseded_by
    return {
        "message_id": series.first_message_id,
        "subject": series.subject,
        "version": series.version,
        "minor": series.minor,
        "total": series.total,
        "received": _time(series.received_at),
        # Who forgot a patch sends `[PATCH 3/2]` after them: it stands for none of the announced ones.
        "complete": sum(patch.index <= series.total for patch in patches) >= series.total,
        "author": _person(series.author_name, series.author_address),
        "submitted": _time(series.submitted_at),
        "patches": [_patch(patch) for patch in patches],
        "base_commit": series.base_commit or None,
        "change_id": series.change_id or None,
        "prerequisites": list(series.prerequisites),
        "supersedes": [older.first_message_id for older in series.supersedes.all()],
        "superseded_by": newer.first_message_id if newer else None,
        "state": series.state,
        "reason": series.reason,
        "trailers": list(series.trailers),
        "transitions": [{"state": s.after, "reason": s.reason, "at": _time(s.at)} for s in steps],
        "base": _base(series, branches),
        "head": series.head.sha if series.head else None,
        "trust": _trust(series, patches),
        "benchmarks": list(series.benchmarks),
        "list": series.mailing_list.name,
        "rfc": series.rfc,
        "resend": series.resend,
        "tags": list(series.tags),
    }


def _patch(patch: Patch) -> dict[str, Any]:
    return {
        "message_id": patch.message.message_id,
        "index": patch.index,
        "subject": patch.subject,
        "author": _person(patch.author_name, patch.author_address),
        "diffstat": {"files": patch.files, "insertions": patch.insertions, "deletions": patch.deletions},
        "trailers": list(patch.trailers),
    }


def _base(series: Series, branches: dict[int, str]) -> dict[str, Any] | None:
    if series.base is None:
        return None
    return {
        "commit": series.base.sha,
        "tree": series.base.tree.name,
        "branch": branches.get(series.base.pk),
        "how": series.base_how,
        "certain": series.base_certain,
    }


def _trust(series: Series, patches: list[Patch]) -> dict[str, Any]:
    """Whether it waits, and per sender whether all mails are proved: null where one is not checked yet."""
    senders: dict[str, list[Message]] = {}
    for mail in [*([series.cover] if series.cover else []), *(patch.message for patch in patches)]:
        senders.setdefault(mail.sender_address.lower(), []).append(mail)
    return {
        "held": series.state == Series.State.HELD,
        "checked": _time(series.checked_at) if series.checked_at else None,
        "senders": [
            {"address": address, "authentic": _all_proved(mails), "how": _telling(mails).authenticity}
            for address, mails in sorted(senders.items())
        ],
    }


def _all_proved(mails: list[Message]) -> bool | None:
    words = {mail.authentic for mail in mails}
    return False if False in words else None if None in words else True


def _telling(mails: list[Message]) -> Message:
    """The mail that decides: the first that is not proved, where there is one."""
    return next((mail for mail in mails if not mail.authentic), mails[0])


def _person(name: str, address: str) -> str:
    return f"{name} <{address}>" if name else f"<{address}>"


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
