from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.core.errors import DomainError
from server.results.benchmarks import load_benchmark


class Command(BaseCommand):
    help = "Load the descriptions of benchmarks: every FOLDER/*/benchmark.toml."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path)

    def handle(self, *_args: Any, folder: Path, **_options: Any) -> None:
        found = sorted(folder.glob("*/benchmark.toml"))
        if not found:
            raise CommandError(f"no benchmark.toml in the folders of {folder}")
        for path in found:
            try:
                benchmark = load_benchmark(path.parent)
            except DomainError as error:
                raise CommandError(error.message) from error
            self.stdout.write(
                f"{benchmark.name} {benchmark.version}: {benchmark.cases.filter(enabled=True).count()} cases"
            )
