"""Machines: how they are, and what people decide about them."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.core.errors import DomainError
from server.lab import care
from server.lab.hosts.probes import kind_of
from server.lab.management.care_arguments import add_care_arguments, told, whoever
from server.lab.models import Machine, PowerCycleState

_ACTIONS = {
    "quarantine": "take it out of service; what runs there is stopped and planned again",
    "release": "put it back into service",
    "maintenance": "take it out of service once what runs there is done",
    "retire": "take it out of service for good",
    "power-cycle": "have the control host switch it off and on",
    "physical": "vouch for it: it is no virtual machine, whatever probes doubt",
    "doubt": "take back that it is physical",
}
_DECIDE = {
    "quarantine": care.quarantine,
    "release": care.release,
    "maintenance": care.maintain,
    "retire": care.retire,
}
_VOUCH = {"physical": care.call_physical, "doubt": care.doubt}


class Command(BaseCommand):
    help = "Print a machine's state, health and history, or decide about it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_care_arguments(parser, actions=_ACTIONS)
        parser.add_argument("--check", action="store_true", help="have it pass a health session before any other work")

    def handle(self, *_args: Any, name: str, check: bool, by: str, **options: Any) -> None:
        machine = Machine.objects.select_related("config", "toolchain", "health_build", "uarch")
        found = machine.filter(name=name).first()
        if found is None:
            names = ", ".join(Machine.objects.values_list("name", flat=True)) or "none"
            raise CommandError(f"there is no machine {name!r}; there are: {names}")
        given = {action: options[action.replace("-", "_")] for action in _ACTIONS}
        chosen = [(action, reason) for action, reason in given.items() if reason is not None]
        if check and chosen:
            raise CommandError(f"--check and --{chosen[0][0]}: one of them")
        try:
            if check:
                self._check(found, whoever(by))
            for action, reason in chosen:
                self._decide(found, action, reason, whoever(by))
        except DomainError as error:
            raise CommandError(error.message) from error
        if not check and not chosen:
            self.stdout.write("\n".join(told(found)))

    def _check(self, machine: Machine, actor: str) -> None:
        session = care.check(machine, actor=actor)
        if session is None:
            self.stdout.write(f"{machine.name} is checked as soon as a kernel for it is built")
        else:
            self.stdout.write(f"{machine.name} is checked by session {session.pk}")

    def _decide(self, machine: Machine, action: str, reason: str, actor: str) -> None:
        if action == "power-cycle":
            cycle = care.power_cycle(machine, reason, actor=actor)
            self.stdout.write(f"power cycle {cycle.pk} of {machine.name}: {PowerCycleState(cycle.state).label}")
            return
        if action in _VOUCH:
            _VOUCH[action](machine, reason, actor=actor)
            self.stdout.write(f"{machine.name}: {kind_of(machine)}")
            return
        _DECIDE[action](machine, reason, actor=actor)
        self.stdout.write(f"{machine.name}: {machine.get_health_display()}")
