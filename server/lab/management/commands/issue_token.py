"""The token of a host of the lab, for its agent.toml."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from server.core import clock
from server.core.models import ApiToken
from server.core.tokens import issue_token
from server.lab.models import Builder, Machine


class Command(BaseCommand):
    help = "Print a new token for the agent of a host; the one that it had before is no longer taken."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("host", help="a machine, a builder, or the control host (TIDEMARK_LAB_CONTROL)")
        parser.add_argument("--scope", choices=ApiToken.Scope.values, help="where several of them have this name")
        parser.add_argument("--revoke", action="store_true", help="only end the present one")

    def handle(self, *_args: Any, host: str, scope: str | None, revoke: bool, **_options: Any) -> None:
        chosen = _scope_of(host, scope)
        name = f"{chosen} {host}"
        if revoke:
            count = ApiToken.objects.filter(name=name, revoked_at=None).update(revoked_at=clock.now())
            self.stdout.write(f"{count} revoked")
            return
        self.stdout.write(issue_token(name=name, scope=chosen, subject=host))


def _scope_of(host: str, wanted: str | None) -> ApiToken.Scope:
    """What the host of this name is. Raises CommandError when there is none, or several."""
    known = [
        scope
        for scope, there in (
            (ApiToken.Scope.MACHINE, Machine.objects.filter(name=host).exists()),
            (ApiToken.Scope.BUILDER, Builder.objects.filter(name=host).exists()),
            (ApiToken.Scope.CONTROL, bool(host) and host == settings.LAB_CONTROL),
        )
        if there and wanted in {None, scope}
    ]
    if not known:
        what = wanted or "machine or builder"
        raise CommandError(f"there is no {what} {host!r}: describe it in the site's file and load_site it first")
    if len(known) > 1:
        raise CommandError(f"{host!r} is {' and '.join(known)}: say which with --scope")
    return known[0]
