"""The token of a lab machine, for its agent.toml."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.core import clock
from server.core.models import ApiToken
from server.core.tokens import issue_token
from server.lab.models import Machine


class Command(BaseCommand):
    help = "Print a new token for the agent of a machine; the one that it had before is no longer taken."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("machine")
        parser.add_argument("--revoke", action="store_true", help="only end the present one")

    def handle(self, *_args: Any, machine: str, revoke: bool, **_options: Any) -> None:
        if not Machine.objects.filter(name=machine).exists():
            raise CommandError(
                f"there is no machine {machine!r}: describe it in the site's file and load_site it first"
            )
        name = f"machine {machine}"
        if revoke:
            count = ApiToken.objects.filter(name=name, revoked_at=None).update(revoked_at=clock.now())
            self.stdout.write(f"{count} revoked")
            return
        self.stdout.write(issue_token(name=name, scope=ApiToken.Scope.MACHINE, subject=machine))
