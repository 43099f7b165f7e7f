"""Storing imported mails in the list that they were sent to."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from django.db.models import QuerySet

from server.sources.mail.parser import ParsedMail
from server.sources.messages.storing import Stored, keep_parsed, read_mail
from server.sources.models import MailingList, Message

# Takes mails of lists that nobody watches. It has no archive and no tree.
CATCH_ALL = "imported"


@dataclass
class Counts:
    """`stored` mails are new, `known` were there; `unusable` counts those of the new that could not be read."""

    stored: int = 0
    known: int = 0
    unusable: int = 0

    def add(self, stored: Stored) -> None:
        self.stored += stored.new
        self.known += not stored.new
        self.unusable += stored.new and stored.message.kind == Message.Kind.UNUSABLE

    def __str__(self) -> str:
        return f"{self.stored} mails stored, {self.known} known already, {self.unusable} unusable"


@dataclass
class Sorter:
    """Finds the list of a mail; knows the lists as they were when it was made.

    A list whose archive proves its senders takes no mail because of what the mail says itself: anyone can write its
    address, and would be believed there to be whoever the mail names.
    """

    lists: list[MailingList] = field(default_factory=lambda: list(_open_lists().order_by("pk")))

    def __post_init__(self) -> None:
        self._by_address = {row.address.lower(): row for row in reversed(self.lists)}
        self._by_id = {address.replace("@", "."): row for address, row in self._by_address.items()}
        self._catch_all: MailingList | None = None

    def list_of(self, mail: ParsedMail) -> MailingList:
        """By List-Id, then by To and Cc; the list `imported`, made at need, where no known list is named."""
        named = [self._by_id[name] for name in mail.list_ids if name in self._by_id]
        named += [self._by_address[address] for address in mail.recipients if address in self._by_address]
        if named:
            return named[0]
        if self._catch_all is None:
            self._catch_all = MailingList.objects.get_or_create(name=CATCH_ALL)[0]
        return self._catch_all


def _open_lists() -> QuerySet[MailingList]:
    return MailingList.objects.exclude(address="").exclude(proof=MailingList.Proof.ARCHIVE)


def import_mails(mails: Iterable[bytes], mailing_list: MailingList | None, counts: Counts) -> None:
    """Store each mail, in `mailing_list` or in that which it was sent to; `counts` grows with every mail."""
    sorter = None if mailing_list else Sorter()
    for raw in mails:
        mail = read_mail(raw)
        taker = sorter.list_of(mail.parsed) if sorter else mailing_list
        assert taker is not None
        counts.add(keep_parsed(mailing_list=taker, mail=mail))
