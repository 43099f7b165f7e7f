"""Sessions: how soon they are wanted, and what their machine must have."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.dateparse import parse_datetime

from server.core.errors import DomainError
from server.lab.care import Wish, change_urgency
from server.lab.management.care_arguments import whoever
from server.lab.models import Session
from server.lab.scheduling.placement import why_waiting
from server.lab.trials.question import purpose_of

_NONE = "none"


class Command(BaseCommand):
    help = "Print how soon a session is wanted and what it waits for, or change that."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", type=int)
        parser.add_argument("--priority", type=int, help="on top of its tree's; the higher, the sooner")
        parser.add_argument("--deadline", help="when its result is wanted: 2026-12-01T18:00, UTC; or none")
        parser.add_argument("--needs", help="what its machine must have: cxl,numa; or none")
        parser.add_argument("--by", metavar="WHO", default="", help="who decides this; the account's name if not given")

    def handle(self, *_args: Any, **options: Any) -> None:
        session = Session.objects.select_related("machine", "series", "trial").filter(pk=options["id"]).first()
        if session is None:
            raise CommandError(f"there is no session {options['id']}")
        wish = Wish(options["priority"], _deadline(options["deadline"]), _needs(options["needs"]))
        if wish == Wish():
            self._tell(session)
            return
        try:
            told = change_urgency(session, wish, actor=whoever(options["by"]))
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"{session}: {told or 'it was so already'}")

    def _tell(self, session: Session) -> None:
        deadline = f"{session.deadline_at:%Y-%m-%d %H:%M} UTC" if session.deadline_at else _NONE
        self.stdout.write(f"{session}: {session.state}{f' ({session.reason})' if session.reason else ''}")
        needs = ", ".join(session.needs) or "nothing"
        self.stdout.write(f"for {purpose_of(session)}")
        self.stdout.write(f"priority {session.priority}, deadline {deadline}, needs {needs}")
        waiting = why_waiting(session)
        if waiting is not None:
            self.stdout.write(f"place {waiting.position} for {waiting.host}: {waiting.reason}")


def _deadline(text: str | None) -> datetime | str | None:
    if text is None or text == _NONE:
        return None if text is None else ""
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        raise CommandError(f"--deadline {text}: write it as 2026-12-01T18:00, or none")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _needs(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return () if text == _NONE else tuple(word.strip() for word in text.split(",") if word.strip())
