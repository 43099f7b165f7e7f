from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from server.builds.expiry import expire_artifacts
from server.lab.trials.kernels import builds_in_use

_MB = 1_000_000


class Command(BaseCommand):
    help = "Remove files of builds by the site's policy (docs/operations/artifacts.md); upkeep does so each hour."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only say what would go.")

    def handle(self, *_args: Any, **options: Any) -> None:
        removals = expire_artifacts(builds_in_use(), dry_run=options["dry_run"])
        for removal in removals:
            self.stdout.write(f"{removal.what}: {removal.why}, {removal.size / _MB:.1f} MB")
        did = "would be removed" if options["dry_run"] else "were removed"
        total = sum(removal.size for removal in removals) / _MB
        self.stdout.write(f"{len(removals)} things {did}, {total:.1f} MB in all")
