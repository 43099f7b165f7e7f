"""Tokens of people, for their scripts."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from server.core import clock
from server.core.access.people import issue_person_token, revoke_person_tokens
from server.core.errors import DomainError
from server.core.models import PersonToken


class Command(BaseCommand):
    help = "Print a new token for a script of a person; that of the same name is no longer taken."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", nargs="?", help="the name with which its owner logs in")
        parser.add_argument("--name", default="", help="what it is for; everybody sees it beside what is done with it")
        parser.add_argument(
            "--scope", action="append", default=[], choices=PersonToken.Scope.values, help="may be repeated"
        )
        parser.add_argument("--days", type=float, help="how long it is valid; else TIDEMARK_TOKEN_DAYS")
        parser.add_argument("--revoke", action="store_true", help="only end the one of that name, or all of the user")
        parser.add_argument("--list", action="store_true", help="print which tokens there are, and until when")

    def handle(self, *_args: Any, **options: Any) -> None:
        name = options["user"]
        user = User.objects.filter(username=name).first() if name else None
        if name and user is None:
            raise CommandError(f"there is no user {name!r}")
        if options["list"]:
            self._list(user)
        elif user is None:
            raise CommandError("whose? --list prints those that there are")
        elif options["revoke"]:
            self.stdout.write(f"{revoke_person_tokens(user, name=options['name'])} revoked")
        else:
            self._issue(user, options)

    def _issue(self, user: User, options: dict[str, Any]) -> None:
        try:
            new = issue_person_token(user, name=options["name"], scopes=options["scope"], days=options["days"])
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(new.secret)

    def _list(self, user: User | None) -> None:
        rows = PersonToken.objects.filter(revoked_at=None).select_related("user").order_by("user__username", "name")
        for token in rows.filter(user=user) if user else rows:
            used = f"{token.last_used_at:%Y-%m-%d}" if token.last_used_at else "never"
            ended = token.expires_at < clock.now()
            state = "ended" if ended else "valid" if token.user.is_active else "its owner may not log in"
            holder = f"{token.user.get_username():24} {token.name:24} {token.prefix}  {','.join(token.scopes)}"
            self.stdout.write(f"{holder}  until {token.expires_at:%Y-%m-%d}  used {used}  {state}")
