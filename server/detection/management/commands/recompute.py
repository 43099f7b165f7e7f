"""manage.py recompute: compares what is stored with what the measurements give now. Changes nothing."""

from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.detection.models import Finding
from server.detection.recompute import branch_differences as head_differences
from server.detection.recompute import (
    finding_differences,
    has_left,
    judged_trials,
    noise_differences,
    trial_differences,
)
from server.sources.models import Series


class Command(BaseCommand):
    help = (
        "Compute all comparisons, findings, timelines and noise profiles again from the stored measurements and print "
        "where they differ. Changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="exit with 1 if anything differs")
        parser.add_argument("--series", type=int, help="only the finding and the trials of this series")

    def handle(self, *_args: Any, **options: Any) -> None:
        series = options["series"]
        findings = Finding.objects.select_related("trial", "series").order_by("pk")
        if series is not None:
            if not Series.objects.filter(pk=series).exists():
                raise CommandError(f"there is no series {series}")
            findings = findings.filter(series=series)
        checked = trials = total = left = 0
        for finding in findings.iterator():
            left += finding.trial is not None and has_left(finding.trial)
            checked, total = checked + 1, total + self._show(finding_differences(finding))
        for trial in judged_trials(series):
            left += has_left(trial)
            trials, total = trials + 1, total + self._show(trial_differences(trial))
        if series is None:
            total += self._show(noise_differences()) + self._show(head_differences())
        besides = f" and {trials} other trials" if trials else ""
        self.stdout.write(f"{checked} findings{besides} recomputed, {total} differences")
        if left:
            self.stdout.write(f"{left} of them were passed over: what they were judged by is in the archive alone")
        if options["check"] and total:
            raise CommandError("what is stored differs from what the measurements give")

    def _show(self, found: Iterable[object]) -> int:
        shown = 0
        for difference in found:
            self.stdout.write(str(difference))
            shown += 1
        return shown
