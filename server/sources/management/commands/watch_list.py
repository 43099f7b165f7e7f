import signal
import threading
from types import FrameType
from typing import Any

import structlog
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError, connection

from server.core import clock
from server.core.addresses import without_credentials
from server.core.errors import DomainError
from server.sources.archives.archive import ReadResult, find_list, read_list
from server.sources.models import MailingList
from server.sources.polls import next_try, pause_of

log = structlog.get_logger(__name__)

# The first fetch of a large archive is many gigabytes; a remote that has stalled is given up much earlier.
_FETCH_SECONDS = 4 * 3600.0
_BUSY_SECONDS = 0.5


class Command(BaseCommand):
    help = "Fetch and read all that is new in a list archive; without --once, again each poll interval."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--once", action="store_true", help="end when all is read")

    def handle(self, *_args: Any, **options: Any) -> None:
        self.ending = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        if options["once"]:
            self._read_all(_found(options["name"]))
            return
        _found(options["name"])
        while not self.ending.is_set():
            self.ending.wait(self._round(options["name"]))

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self.ending.set()

    def _round(self, name: str) -> float:
        """Read once, whatever comes; returns the seconds to wait until the next time."""
        try:
            mailing_list = _found(name)
            if mailing_list.enabled:
                self._read_all(mailing_list)
            return _pause(mailing_list)
        except CommandError as error:
            # It is noted on the list, and the pause grows.
            self.stderr.write(str(error))
            return _pause(_found(name))
        except (OperationalError, InterfaceError) as error:
            log.warning("database_away", list=name, error=str(error).splitlines()[0])
            connection.close()
            return 10.0
        except Exception:
            # Noted on the list as well; a watcher that ended would be started again at once, whatever the pause.
            log.exception("round_failed", list=name)
            connection.close()
            return _pause(_found(name))

    def _read_all(self, mailing_list: MailingList) -> None:
        """Until nothing is left; waits while another process reads the same list."""
        if not mailing_list.url:
            raise CommandError(f"list {mailing_list.name} has no url to read from")
        result = self._read(mailing_list)
        while result.busy and not self.ending.wait(_BUSY_SECONDS):
            result = self._read(mailing_list)
        if result.error:
            where = without_credentials(mailing_list.url)
            raise CommandError(f"list {mailing_list.name} at {where} could not be read: {result.error}")
        self.stdout.write(
            f"{mailing_list.name}: {result.commits} commits read, {result.stored} mails stored, "
            f"{result.deleted} deleted, {result.grouped} threads grouped"
        )

    def _read(self, mailing_list: MailingList) -> ReadResult:
        return read_list(mailing_list=mailing_list, limit=None, timeout=_FETCH_SECONDS, stop=self.ending.is_set)


def _pause(mailing_list: MailingList) -> float:
    """Seconds until the next try; a clock that was set back does not make them more than a pause."""
    left = min(next_try(mailing_list) - clock.now(), pause_of(mailing_list))
    return max(left.total_seconds(), _BUSY_SECONDS)


def _found(name: str) -> MailingList:
    try:
        return find_list(name)
    except DomainError as error:
        raise CommandError(error.message) from error
