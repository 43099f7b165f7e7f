"""What becomes of a series that is all there: it waits for the check of its senders, then it may run."""

from typing import Any

import structlog
from django.db.models import Count, F

from server.core.tasks import enqueue
from server.sources.messages.facts import announced, read_facts
from server.sources.models import Message, Series
from server.sources.series.superseding import supersede

log = structlog.get_logger(__name__)

State = Series.State
NOT_CHECKED = "its senders are not checked yet"


def settle_series(series: Series) -> None:
    """Decide about an incomplete series whose last patch has just come. The caller holds the lock of the mails."""
    if gone := deleted_mails(series):
        series.advance(State.REFUSED, _deleted_reason(gone))
    else:
        series.advance(State.HELD, NOT_CHECKED)
    supersede(series)
    if series.state == State.HELD:
        enqueue("sources.check_series", series.pk)


def deleted_mails(series: Series) -> list[str]:
    """Message-IDs of its mails that the archive deleted: of patches in their order, then of the cover letter."""
    patches = series.patches.filter(message__kind=Message.Kind.DELETED).order_by("index")
    gone = list(patches.values_list("message__message_id", flat=True))
    if series.cover_id:
        cover = Message.objects.filter(pk=series.cover_id, kind=Message.Kind.DELETED)
        gone += cover.values_list("message_id", flat=True)
    return gone


def refuse_deleted(message: Message) -> None:
    """Refuse whole series of this deleted mail that were not applied; the caller holds the lock of the mails."""
    whole = Series.objects.annotate(there=Count("patches")).filter(
        there=F("total"), state__in=[State.HELD, State.READY]
    )
    held = whole.filter(pk__in=message.patches.values("series")) | whole.filter(cover=message)
    for series in held.distinct().order_by("pk"):
        fields = announced_by(series)
        series.advance(State.REFUSED, _deleted_reason(deleted_mails(series)), **fields)


def announced_by(series: Series) -> dict[str, Any]:
    """Base commit and others as the stored mails of `series` tell them."""
    order = [series.cover_id] if series.cover_id else []
    order += series.patches.order_by("index").values_list("message_id", flat=True)
    facts = read_facts(order)
    return announced(facts[pk] for pk in order)


def _deleted_reason(gone: list[str]) -> str:
    shown = ", ".join(f"<{name}>" for name in gone[:3])
    return f"the archive deleted {shown}" + (f" and {len(gone) - 3} more" if len(gone) > 3 else "")  # noqa: PLR2004
