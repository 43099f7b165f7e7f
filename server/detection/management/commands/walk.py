"""manage.py walk: what each patch of a series adds."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.core.errors import DomainError
from server.core.middleware import for_terminal
from server.detection.bisection.walk import ask_for_walk, walk_of
from server.lab.models import Machine
from server.sources.models import Series


class Command(BaseCommand):
    help = "Show what each patch of a series adds; with --ask, have its patches measured one by one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("series", type=int, help="number of the series")
        parser.add_argument("--ask", action="store_true", help="have it measured")
        parser.add_argument("--by", default="", metavar="PERSON", help="who asks, for the history")
        parser.add_argument("--machine", action="append", default=[], help="where; those that speak for its finding")

    def handle(self, *_args: Any, **options: Any) -> None:
        series = Series.objects.filter(pk=options["series"]).first()
        if series is None:
            raise CommandError(f"there is no series {options['series']}")
        if options["ask"]:
            self._ask(series, options["by"].strip(), options["machine"])
        walk = walk_of(series)
        if walk is None:
            raise CommandError(f"nobody asked for the walk of series {series.pk}: --ask --by PERSON")
        self._say(f"series {series.pk}: {series}: {walk.state}")
        for row in walk.rows:
            self._say(f"{row.index}. {row.subject}: {row.sentence}")
        for line in walk.closing:
            self._say(line)

    def _ask(self, series: Series, person: str, names: list[str]) -> None:
        if not person:
            raise CommandError("--by: say who asks")
        machines = list(Machine.objects.filter(name__in=names).order_by("name"))
        if missing := sorted(set(names) - {machine.name for machine in machines}):
            raise CommandError(f"there is no machine {missing[0]}")
        try:
            ask_for_walk(series, person, machines)
        except DomainError as error:
            raise CommandError(error.message) from error

    def _say(self, line: str) -> None:
        self.stdout.write(for_terminal(line))
