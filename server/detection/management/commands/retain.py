"""manage.py retain: lets samples, conditions, steps and logs leave for the archive, as the site's policy says."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.detection.lifecycle.needed import sessions_in_use
from server.results.models import ArchivePart
from server.results.retention import Leaving, check_part, policy, retain

_HOUR = 3600.0


class Command(BaseCommand):
    help = "Let leave what is older than the site keeps it (docs/operations/retention.md); upkeep does so each hour."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only say what would go")
        parser.add_argument(
            "--check", action="store_true", help="read the whole archive instead, and say what is wrong"
        )
        parser.add_argument("--seconds", type=float, default=_HOUR, help="for about how long (3600)")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["check"]:
            self._check()
            return
        if not policy():
            self.stdout.write("everything is kept: none of TIDEMARK_KEEP_..._MONTHS is set")
            return
        dry_run = options["dry_run"]
        done = retain(sessions_in_use, seconds=options["seconds"], dry_run=dry_run)
        for leaving in done:
            self.stdout.write(self._line(leaving, "would leave" if dry_run else "left"))
        sessions, rows = sum(one.sessions for one in done), sum(one.rows for one in done)
        self.stdout.write(f"{rows} rows of {sessions} sessions {'would leave' if dry_run else 'left'} in all")

    def _line(self, leaving: Leaving, did: str) -> str:
        held = f"; {leaving.held} sessions stay, which are in use" if leaving.held else ""
        return f"{leaving.month:%Y-%m} {leaving.kind}: {leaving.rows} rows of {leaving.sessions} sessions {did}{held}"

    def _check(self) -> None:
        wrong = 0
        for part in ArchivePart.objects.order_by("pk").iterator():
            if said := check_part(part):
                wrong += 1
                self.stdout.write(f"{part}: {said}")
        self.stdout.write(f"{ArchivePart.objects.count()} files of the archive were read, {wrong} are not whole")
        if wrong:
            raise CommandError("the archive is not whole")
