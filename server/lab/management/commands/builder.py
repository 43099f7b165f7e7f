"""Builders: how they are, and what people decide about them."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.core.errors import DomainError
from server.lab import care
from server.lab.management.care_arguments import add_care_arguments, told, whoever
from server.lab.models import Builder

_ACTIONS = {
    "quarantine": "take it out of service; what it builds is stopped and built elsewhere",
    "release": "put it back into service",
    "maintenance": "take it out of service once what it builds is done",
    "retire": "take it out of service for good",
}
_DECIDE = {
    "quarantine": care.quarantine,
    "release": care.release,
    "maintenance": care.maintain,
    "retire": care.retire,
}


class Command(BaseCommand):
    help = "Print a builder's state, health and history, or decide about it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_care_arguments(parser, actions=_ACTIONS)

    def handle(self, *_args: Any, name: str, by: str, **options: Any) -> None:
        builder = Builder.objects.filter(name=name).first()
        if builder is None:
            names = ", ".join(Builder.objects.values_list("name", flat=True)) or "none"
            raise CommandError(f"there is no builder {name!r}; there are: {names}")
        chosen = [(action, options[action]) for action in _ACTIONS if options[action] is not None]
        try:
            for action, reason in chosen:
                _DECIDE[action](builder, reason, actor=whoever(by))
                self.stdout.write(f"{builder.name}: {builder.get_health_display()}")
        except DomainError as error:
            raise CommandError(error.message) from error
        if not chosen:
            self.stdout.write("\n".join(told(builder)))
