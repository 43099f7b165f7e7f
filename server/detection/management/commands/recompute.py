"""manage.py recompute: compares what is stored with what the measurements give now. Changes nothing of it."""

import time
from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.detection.recompute.chunks import begin
from server.detection.recompute.following import Going, follow, going, recount, told
from server.detection.recompute.outcomes import Recount, all_recomputed
from server.sources.models import Series

_BAR = 30
# Where nothing is redrawn.
_BETWEEN_LINES = 30.0
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


class Command(BaseCommand):
    help = (
        "Compute all comparisons, findings, timelines and noise profiles again from the stored measurements and print "
        "where they differ. Changes nothing of them."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="exit with 1 if anything differs")
        only = parser.add_mutually_exclusive_group()
        only.add_argument("--series", type=int, help="only the finding and the trials of this series")
        only.add_argument(
            "--by-workers",
            action="store_true",
            help="the workers of the queue detection do it when they have nothing else to do; interrupted, the same "
            "command goes on where they are",
        )
        parser.add_argument("--anew", action="store_true", help="with --by-workers: from the beginning in any case")

    def handle(self, *_args: Any, **options: Any) -> None:
        series = options["series"]
        if series is not None and not Series.objects.filter(pk=series).exists():
            raise CommandError(f"there is no series {series}")
        if options["anew"] and not options["by_workers"]:
            raise CommandError("--anew is for --by-workers: else nothing is kept that could go on")
        found = self._by_workers(anew=options["anew"]) if options["by_workers"] else self._here(series)
        self._write(found.lines())
        if found.broken:
            raise CommandError("not all that is stored could be computed")
        if options["check"] and found.found:
            raise CommandError("what is stored differs from what the measurements give")

    def _here(self, series: int | None) -> Recount:
        found = Recount()
        for kind, one in all_recomputed(series):
            found.add(kind, one)
            self._write([*one.differences, *filter(None, [one.error])])
        return found

    def _by_workers(self, *, anew: bool) -> Recount:
        recomputation = begin(anew=anew)
        bar = _Bar(self, going(recomputation))
        self.stdout.write(
            f"{recomputation}, begun {recomputation.begun_at:%Y-%m-%d %H:%M} UTC: {bar.begun.size} rows and heads"
        )
        try:
            follow(recomputation, bar.show, bar.say)
        except KeyboardInterrupt:
            bar.end()
            text = "interrupted: what was sent to workers comes to its end; the same command goes on"
            raise CommandError(text, returncode=130) from None
        bar.show(going(recomputation))
        bar.end()
        self._write(told(recomputation))
        return recount(recomputation)

    def _write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.stdout.write(line)


class _Bar:
    """Redrawn in place on a terminal; elsewhere a line now and then."""

    def __init__(self, command: Command, begun: Going) -> None:
        self.begun = begun
        self._out = command.stdout
        self._since = time.monotonic()
        self._wrote = float("-inf")
        self._width = 0

    def show(self, now: Going) -> None:
        text = self._text(now)
        if self._out.isatty():
            filled = int(_BAR * now.share)
            line = f"[{'#' * filled}{'.' * (_BAR - filled)}] {text}"
            self._out.write(f"\r{line:<{self._width}}", ending="")
            self._width = len(line)
        elif time.monotonic() - self._wrote >= _BETWEEN_LINES or now.taken == now.size:
            self._out.write(text)
            self._wrote = time.monotonic()
        self._out.flush()

    def say(self, text: str) -> None:
        self.end()
        self._out.write(text)
        self._out.flush()

    def end(self) -> None:
        if self._out.isatty():
            self._out.write("")

    def _text(self, now: Going) -> str:
        broken = f", {now.broken} could not be computed" if now.broken else ""
        text = f"{100 * now.share:3.0f} %, {now.taken} of {now.size}, {now.found} differences{broken}"
        if now.taken == now.size:
            return text
        passed = time.monotonic() - self._since
        if not now.moved and passed > _BETWEEN_LINES:
            return f"{text}; no worker takes any: is one of the queue detection there, of this version, and free?"
        # As many workers at once as there were since this command began.
        spent = now.spent - self.begun.spent
        if now.needed is None or spent <= 0:
            return text
        return f"{text}, about {_span(now.needed * passed / spent)} left"


def _span(seconds: float) -> str:
    for size, name in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"
