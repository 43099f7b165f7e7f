"""Mails of a series' thread that are in no series, and why."""

from dataclasses import dataclass

from django.db.models import Exists, OuterRef

from server.dashboard.selectors.mails import MailRow, mail_rows
from server.sources.models import Message, Patch, Series
from server.sources.series.explaining import COPY
from server.sources.trust.proved_senders import mails_of

_SHOWN = 30


@dataclass(frozen=True, slots=True)
class Unused:
    """Copies of used mails from other lists, and discussion, are only counted."""

    rows: tuple[MailRow, ...]
    count: int
    copies: int
    discussion: int

    @property
    def hidden(self) -> int:
        return self.count - len(self.rows)


def unused_mails(series: Series) -> Unused:
    threads = set(mails_of(series).exclude(thread=None).values_list("thread_id", flat=True))
    thread = Message.objects.filter(thread__in=threads)
    used = Exists(Patch.objects.filter(message=OuterRef("pk"))) | Exists(Series.objects.filter(cover=OuterRef("pk")))
    left = thread.exclude(kind=Message.Kind.OTHER, reason="").exclude(reason=COPY).exclude(used)
    return Unused(
        rows=mail_rows(left.order_by("id")[:_SHOWN]),
        count=left.count(),
        copies=thread.filter(reason=COPY).count(),
        discussion=thread.filter(kind=Message.Kind.OTHER, reason="").count(),
    )
