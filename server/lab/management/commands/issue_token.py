"""Tokens of the lab's hosts, for their agent.toml."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.core import clock
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.lab.hosts.tokens import is_held, issue_host_token, revoke_host_tokens, scope_of

_MOST_DAYS = 3650


class Command(BaseCommand):
    help = "Print a new token for the agent of a host; the one that it had before is no longer taken."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("host", nargs="?", help="a machine, a builder, or the control host (TIDEMARK_LAB_CONTROL)")
        parser.add_argument("--scope", choices=ApiToken.Scope.values, help="where several of them have this name")
        parser.add_argument("--days", type=float, help="how long it is valid; else TIDEMARK_TOKEN_DAYS")
        parser.add_argument("--revoke", action="store_true", help="only end all that the host has, at once")
        parser.add_argument("--list", action="store_true", help="print which tokens there are, and until when")

    def handle(self, *_args: Any, **options: Any) -> None:
        host, days = options["host"], options["days"]
        if options["list"]:
            self._list(host)
            return
        if not host:
            raise CommandError("which host? --list prints those that have a token")
        if days is not None and not 0 < days <= _MOST_DAYS:
            raise CommandError(f"--days is more than 0 and at most {_MOST_DAYS}")
        try:
            scope = scope_of(host, options["scope"])
        except DomainError as error:
            raise CommandError(error.message) from error
        if options["revoke"]:
            self.stdout.write(f"{revoke_host_tokens(host, scope)} revoked")
            return
        self.stdout.write(issue_host_token(host, scope, days))

    def _list(self, host: str | None) -> None:
        rows = ApiToken.objects.filter(revoked_at=None).order_by("scope", "subject", "expires_at")
        for token in rows.filter(subject=host) if host else rows:
            used = f"{token.last_used_at:%Y-%m-%d}" if token.last_used_at else "never"
            state = "ended" if token.expires_at < clock.now() else "valid" if is_held(token) else "its host is gone"
            holder = f"{token.scope:8} {token.subject:24} {token.prefix}"
            self.stdout.write(f"{holder}  until {token.expires_at:%Y-%m-%d}  used {used}  {state}")
