"""For somebody who is kept out because others guess."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from server.core.access.login import let_in


class Command(BaseCommand):
    help = "Forget the wrong passwords that were tried for a user; with --address those of that address, too."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", help="the name that is typed to log in")
        parser.add_argument("--address", default="", help="where the user logs in from")

    def handle(self, *_args: Any, user: str, address: str, **_options: Any) -> None:
        self.stdout.write(f"{let_in(user, address)} counts forgotten")
