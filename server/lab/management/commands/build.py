"""Builds: what became of one, and asking for one that failed falsely again."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.builds.models import Build, BuildState
from server.core.errors import DomainError
from server.core.middleware import for_terminal
from server.lab.care import ask_again
from server.lab.management.care_arguments import whoever


class Command(BaseCommand):
    help = "Print what became of a build, or ask for one again that failed for something else than its kernel."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", type=int)
        parser.add_argument("--again", metavar="REASON", help="build it again, and boot what was not booted for it")
        parser.add_argument("--by", metavar="WHO", default="", help="who decides this; the account's name if not given")

    def handle(self, *_args: Any, **options: Any) -> None:
        build = Build.objects.select_related("revision", "config").filter(pk=options["id"]).first()
        if build is None:
            raise CommandError(f"there is no build {options['id']}")
        if options["again"] is None:
            reason = f" ({build.reason})" if build.reason else ""
            self.stdout.write(for_terminal(f"{build}: {BuildState(build.state).label}{reason}"))
            return
        try:
            sessions = ask_again(build, options["again"], actor=whoever(options["by"]))
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"build {build.pk} is built again; sessions that wait for it: {sessions}")
