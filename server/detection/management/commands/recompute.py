"""manage.py recompute: compares stored comparisons with what their measurements give now. Changes nothing."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.detection.models import Finding
from server.detection.recomputing import differences


class Command(BaseCommand):
    help = "Compute all comparisons again from the stored measurements and print where they differ. Changes nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="exit with 1 if anything differs")
        parser.add_argument("--series", type=int, help="only this series")

    def handle(self, *_args: Any, **options: Any) -> None:
        findings = Finding.objects.order_by("pk")
        if options["series"] is not None:
            findings = findings.filter(series=options["series"])
        checked = total = 0
        for finding in findings.iterator():
            found = differences(finding)
            checked, total = checked + 1, total + len(found)
            for difference in found:
                self.stdout.write(str(difference))
        self.stdout.write(f"{checked} findings recomputed, {total} differences")
        if options["check"] and total:
            raise CommandError("stored comparisons differ from fresh ones")
