from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.core.errors import DomainError
from server.reports.sending.signature import signing_keys, told_by_dns


class Command(BaseCommand):
    help = "Print what belongs into DNS for each key of TIDEMARK_DKIM_KEYS; fails where DNS tells something else."

    def handle(self, *_args: Any, **_options: Any) -> None:
        try:
            keys = signing_keys()
        except DomainError as error:
            raise CommandError(error.message) from error
        if not keys:
            raise CommandError("TIDEMARK_DKIM_KEYS names no key: mails leave unsigned")
        wrong = []
        for key in keys:
            self.stdout.write(f"{key.name}. TXT {key.record}")
            why = told_by_dns(key)
            self.stdout.write(f"  {why or 'DNS tells this key'}")
            wrong += [why] if why else []
        if wrong:
            raise CommandError("; ".join(wrong))
