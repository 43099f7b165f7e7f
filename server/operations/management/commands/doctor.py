import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand

from server.operations.diagnosis.ailment import Ailment, Severity
from server.operations.diagnosis.checks import diagnose


class Command(BaseCommand):
    help = "Say what is wrong with this site and what mends it. Ends with 0: nothing, 1: warnings, 2: errors."
    # It is asked when things are broken: a database that is away must not end it.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="the findings as one JSON list, for scripts")

    def handle(self, *_args: Any, **options: Any) -> None:
        found = diagnose()
        self.stdout.write(json.dumps([asdict(one) for one in found], indent=2) if options["json"] else _told(found))
        if found:
            sys.exit(2 if any(one.severity == Severity.ERROR for one in found) else 1)


def _told(found: list[Ailment]) -> str:
    if not found:
        return "Nothing is wrong."
    return "\n".join(f"{one.severity} {one.code}: {one.what}\n    mend: {one.mend}" for one in found)
