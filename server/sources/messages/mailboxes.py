"""Mails that do not come from an archive: mbox, maildir, single files, or a mail server's pipe."""

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from django.db import transaction
from django.db.models import QuerySet

from server.core.errors import DomainError
from server.core.models import Transition
from server.core.reasons import Because
from server.core.states import new_trace
from server.core.tasks import enqueue
from server.sources.mail.parser import ParsedMail
from server.sources.messages.storage import ReadMail, StoredMail, keep_parsed, lock_mail, read_mail
from server.sources.models import MailingList, Message

_FROM_LINE = re.compile(rb"From \S++.*\d{4}\s*$")
_QUOTED = re.compile(rb"^>(>*From )")
# Mails of 30 MB are stored whole. What is larger than this is no mail, and must not take all memory.
LARGEST_MAIL = 100 * 2**20
# A line is read in pieces of this size, as a file without any end of line must not be one.
_PIECE = 2**20
_FILES = (".eml", ".mbox")


def mails_of(path: Path) -> Iterator[bytes]:
    """Every mail of a file (mbox or one mail), or of a folder: a maildir, or files *.eml and *.mbox in it and below.

    DomainError where there is no such file, nothing to read in a folder, or a mail that is too large.
    """
    files = _files_in(path) if path.is_dir() else iter([path])
    for file in files:
        try:
            with file.open("rb") as stream:
                yield from mails_in(stream, str(file))
        except OSError as error:
            raise DomainError("no-mail", f"{file}: {error.strerror or error}") from error


def _files_in(folder: Path) -> Iterator[Path]:
    """In a fixed order. A maildir's `tmp` holds mails that are still being written."""
    boxes = [folder / name for name in ("new", "cur") if (folder / name).is_dir()]
    found = chain.from_iterable(box.iterdir() for box in boxes) if boxes else folder.rglob("*")
    files = sorted(file for file in found if file.is_file() and (boxes or file.suffix.lower() in _FILES))
    if not files and not boxes:
        raise DomainError("no-mail", f"{folder}: neither a maildir nor files {' or '.join(_FILES)}")
    return iter(files)


def mails_in(stream: BinaryIO, name: str = "standard input") -> Iterator[bytes]:
    """Every mail of an mbox (mboxrd or mboxo, also with CRLF), or the one mail that the stream is.

    A new mail starts at a From line after an empty line only: bodies hold such lines too. One mail is in memory.
    """
    mail = bytearray()
    started = mbox = False
    starts_line = after_blank = True
    while piece := stream.readline(_PIECE):
        if starts_line and after_blank and _FROM_LINE.match(piece) and (mbox or not started):
            if started:
                yield _without_last_blank(mail)
            mail, mbox, started = bytearray(), True, True
        else:
            mail += _QUOTED.sub(rb"\1", piece) if mbox and starts_line else piece
            started = True
        if len(mail) > LARGEST_MAIL:
            raise DomainError("mail-too-large", f"{name}: holds a mail larger than {LARGEST_MAIL // 2**20} MB")
        after_blank = starts_line and not piece.strip()
        starts_line = piece.endswith(b"\n")
    if started:
        yield _without_last_blank(mail) if mbox else bytes(mail)


def one_mail_in(stream: BinaryIO, name: str = "standard input") -> Iterator[bytes]:
    """The one mail that the stream is, as mail servers hand it on: with or without a From line, which is left out.

    They do not quote lines of the body that look like the start of another mail; to split there would let a sender make
    a second mail with headers that no server has seen.
    """
    mail = stream.read(LARGEST_MAIL + 1)
    if len(mail) > LARGEST_MAIL:
        raise DomainError("mail-too-large", f"{name}: holds a mail larger than {LARGEST_MAIL // 2**20} MB")
    start = mail.find(b"\n") + 1 if _FROM_LINE.match(mail[: mail.find(b"\n") + 1]) else 0
    if mail[start:]:
        yield mail[start:]


def _without_last_blank(mail: bytearray) -> bytes:
    """Without the empty line that stands before the next From line."""
    for end in (b"\n\r\n", b"\n\n"):
        if mail.endswith(end):
            return bytes(mail[: len(mail) - len(end) + 1])
    return bytes(mail)


# Takes mails of lists that nobody watches. It has no archive and no tree.
CATCH_ALL = "imported"


@dataclass
class Counts:
    """`stored` mails are new, `known` were there; `unusable` counts those of the new that could not be read."""

    stored: int = 0
    known: int = 0
    unusable: int = 0

    def add(self, stored: StoredMail) -> None:
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


# Treewide series have some hundred patches.
MOST_SUBMITTED = 200


@dataclass(frozen=True)
class Submission:
    """Mails that a person handed in together; `root` is the Message-ID of the letter, or of the first patch."""

    root: str
    mails: int
    stored: int


def submit_mails(box: bytes, *, actor: str) -> Submission:
    """Take the mails of an mbox, or the one mail that it is, as if they had come by a list; their series is made soon.

    Who sent them is proved by their signatures alone, as with all mails, whoever hands them in. Handed in again they
    are known. DomainError, and nothing is stored: `no-mail`, `no-patch`, `unusable-mail`, `too-large` for too many, and
    `other-content` where another mail with one of their Message-IDs was handed in.
    """
    mails = _read_all(box)
    with transaction.atomic():
        # Nobody else hands in other mails with these Message-IDs meanwhile, and all are stored or none.
        lock_mail()
        mailing_list = MailingList.objects.get_or_create(name=MailingList.SUBMITTED)[0]
        if mailing_list.url or mailing_list.address or mailing_list.proof != MailingList.Proof.DKIM:
            raise DomainError(
                "conflict", f"the list {mailing_list} is watched: its name is for mails that are handed in"
            )
        _refuse_others(mailing_list, mails)
        stored = sum(_submit(mailing_list, mail, actor) for mail in mails)
        enqueue("sources.group_threads")
    letters = [mail for mail in mails if mail.parsed.kind == "cover"]
    first = (letters or [mail for mail in mails if mail.parsed.kind == "patch"])[0]
    return Submission(first.parsed.message_id, len(mails), stored)


def _read_all(box: bytes) -> list[ReadMail]:
    """Each mail once, read."""
    found: dict[str, ReadMail] = {}
    for number, raw in enumerate(mails_in(io.BytesIO(box), "the body"), 1):
        if number > MOST_SUBMITTED:
            raise DomainError("too-large", f"more than {MOST_SUBMITTED} mails at once")
        mail = read_mail(raw)
        if mail.parsed.kind == "unusable":
            raise DomainError("unusable-mail", f"mail {number} cannot be used: {mail.parsed.reason}")
        twin = found.setdefault(mail.parsed.message_id, mail)
        if twin.blob != mail.blob:
            raise _other_content(mail)
    if not found:
        raise DomainError("no-mail", "there is no mail in it")
    if all(mail.parsed.kind != "patch" for mail in found.values()):
        raise DomainError("no-patch", "none of its mails is a patch: [PATCH] in the subject, and a diff in the text")
    return list(found.values())


def _refuse_others(mailing_list: MailingList, mails: list[ReadMail]) -> None:
    by_id = {mail.parsed.message_id: mail for mail in mails}
    there = Message.objects.filter(mailing_list=mailing_list, message_id__in=by_id)
    for message_id, blob in there.values_list("message_id", "blob"):
        if by_id[message_id].blob != blob:
            raise _other_content(by_id[message_id])


def _other_content(mail: ReadMail) -> DomainError:
    said = f"another mail with the Message-ID <{mail.parsed.message_id}> was handed in: a new version has new ones"
    return DomainError("other-content", said)


def _submit(mailing_list: MailingList, mail: ReadMail, actor: str) -> bool:
    """Whether it is new; who handed it in is written down."""
    kept = keep_parsed(mailing_list=mailing_list, mail=mail)
    if kept.new:
        Transition.objects.create(
            trace=new_trace(), subject="message", subject_id=kept.message.pk, after=kept.message.kind,
            **Because.HANDED_IN().columns(), actor=actor,
        )  # fmt: skip
    return kept.new
