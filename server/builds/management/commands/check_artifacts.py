from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from server.builds.expiry import check_artifacts


class Command(BaseCommand):
    help = "Read stored files and put those aside that are damaged; all of them, unless --due or --seconds say less."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--due", action="store_true", help="Only those that were not looked at this week.")
        parser.add_argument("--seconds", type=float, default=float("inf"), help="End after so long.")

    def handle(self, *_args: Any, **options: Any) -> None:
        checked, damaged = check_artifacts(seconds=options["seconds"], everything=not options["due"])
        self.stdout.write(f"{checked} files were read, {len(damaged)} are damaged or gone")
        for sha256 in damaged:
            self.stdout.write(f"put aside: {sha256}")
        if damaged:
            raise CommandError("builds with such a file will be built again when they are wanted")
