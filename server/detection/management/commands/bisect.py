"""manage.py bisect: the search for the revision that made a finding's change."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.core.errors import DomainError
from server.core.middleware import for_terminal
from server.detection.bisection.conclusion import ask_to_bisect, cancel_by_hand
from server.detection.bisection.step import BisectionProgress, bisections_of
from server.detection.models import Finding


class Command(BaseCommand):
    help = "Show how far the bisections of a finding are; --ask begins them, or begins anew; --cancel ends them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("finding", type=int, help="number of the finding")
        what = parser.add_mutually_exclusive_group()
        what.add_argument(
            "--ask", action="store_true", help="look for its revision, once more where a search gave up or was canceled"
        )
        what.add_argument("--cancel", metavar="REASON", help="end the search, for this reason")
        parser.add_argument("--by", default="", metavar="PERSON", help="who does it, for the history")

    def handle(self, *_args: Any, **options: Any) -> None:
        finding = Finding.objects.filter(pk=options["finding"]).first()
        if finding is None:
            raise CommandError(f"there is no finding {options['finding']}")
        try:
            if options["ask"]:
                ask_to_bisect(finding, options["by"])
            elif options["cancel"] is not None:
                cancel_by_hand(finding, options["by"], options["cancel"])
        except DomainError as error:
            raise CommandError(error.message) from error
        finding.refresh_from_db()
        self._say(f"finding {finding.pk} is {finding.state}: {finding.reason or finding.headline}")
        for progress in bisections_of(finding):
            self._show(progress)

    def _show(self, progress: BisectionProgress) -> None:
        cost = f"{progress.boots} boots, {progress.seconds / 3600:.1f} hours of machine time"
        self._say(f"{progress.uarch} ({progress.machine}): {progress.state_label}: {progress.reason}; {cost}")
        for step in progress.steps:
            answer = step.answer or "being measured"
            what = f"{step.sha[:12]} {step.subject}".strip()
            search = f" (search {step.round}, which ended)" if step.earlier else ""
            self._say(
                f"  {step.number}. {step.kind} {what}{search}: {answer}" + (f": {step.reason}" if step.reason else "")
            )
        if progress.steps_left:
            guess = "" if progress.seconds_left is None else f", about {progress.seconds_left / 3600:.1f} hours"
            self._say(f"  one of {progress.left} revisions; at most {progress.steps_left} more steps{guess}")

    def _say(self, line: str) -> None:
        self.stdout.write(for_terminal(line))
