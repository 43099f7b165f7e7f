import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error, InterfaceError

from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.sources.archives.archive import find_list
from server.sources.messages.mailboxes import Counts, import_mails, mails_in, mails_of, one_mail_in
from server.sources.models import MailingList
from server.sources.series.formation import group_stale

_PIPE = "-"
Reader = Callable[[BinaryIO], Iterator[bytes]]


class Command(BaseCommand):
    help = (
        "Store mails of an mbox, a maildir, a folder of .eml and .mbox files, one mail, or standard input (-). "
        f"Ends with {os.EX_TEMPFAIL} while the database is away, so that a mail server keeps the mail and tries again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("source", help="a file, a folder, or - for standard input")
        parser.add_argument("--one", action="store_true", help="standard input is one mail, as a mail server pipes it")
        parser.add_argument("--list", help="which list takes the mails; else the one that each was sent to")

    def handle(self, *_args: Any, **options: Any) -> None:
        source, counts = options["source"], Counts()
        try:
            mailing_list = find_list(options["list"]) if options["list"] else None
            if options["one"] and source != _PIPE:
                raise DomainError("one-of-pipe", f"--one is for standard input ({_PIPE}) only")
            self._import(source, mailing_list, counts, one_mail_in if options["one"] else mails_in)
        except DomainError as error:
            raise CommandError(_told(error.message, counts), returncode=_code(error, source)) from error
        except (Error, InterfaceError) as error:
            said = f"the database does not take mails: {str(error).splitlines()[0]}"
            raise CommandError(_told(said, counts), returncode=os.EX_TEMPFAIL) from error
        self.stdout.write(f"{counts}")

    def _import(self, source: str, mailing_list: MailingList | None, counts: Counts, read_pipe: Reader) -> None:
        if source == _PIPE:
            import_mails(read_pipe(sys.stdin.buffer), mailing_list, counts)
            if not counts.stored + counts.known:
                raise DomainError("no-mail", "standard input: holds no mail")
            # The mail server waits: a worker makes the series.
            enqueue("sources.group_threads")
        else:
            import_mails(mails_of(Path(source)), mailing_list, counts)
            group_stale()


def _told(why: str, counts: Counts) -> str:
    return f"{why} ({counts} before)" if counts.stored or counts.known else why


def _code(error: DomainError, source: str) -> int:
    """A mail server gives a mail back to its sender for any code but the one that asks it to wait."""
    if source != _PIPE:
        return 1
    return os.EX_DATAERR if error.code in {"mail-too-large", "no-mail"} else os.EX_TEMPFAIL
