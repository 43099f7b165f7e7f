from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.core.errors import DomainError
from server.lab.site import load_site


class Command(BaseCommand):
    help = "Create or update trees, lists, configs, toolchains, microarchitectures and machines from a TOML file."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *_args: Any, file: Path, **_options: Any) -> None:
        try:
            counts = load_site(file)
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(", ".join(f"{count} {section}" for section, count in counts.items()))
