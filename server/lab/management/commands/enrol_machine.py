"""Codes for hosts that come into the lab, and what became of them."""

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.core.management.base import BaseCommand, CommandError

from server.builds.models import KernelConfig, Toolchain
from server.core import clock
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.lab.hosts.enrolments import HOURS, make_code, say_facts
from server.lab.hosts.tokens import scope_of
from server.lab.management.care_arguments import whoever
from server.lab.models import Enrolment, Machine, Microarchitecture
from server.lab.site import save_machine
from server.lab.work import DRIVERS, OUTSIDE

_SHOWN = 30


class Command(BaseCommand):
    help = "Print a code by which a machine, builder or control host gets its token, once: `tidemark-agent enrol`."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("host", nargs="?", help="one that the site knows, or a new machine, with --uarch")
        parser.add_argument("--scope", choices=ApiToken.Scope.values, help="where several hosts have this name")
        parser.add_argument("--hours", type=float, default=HOURS, help=f"how long the code is good; {HOURS:.0f}")
        parser.add_argument("--by", metavar="WHO", default="", help="who lets it in; the account's name if not given")
        parser.add_argument("--list", action="store_true", help="print the codes that were made, and what used them")
        new = parser.add_argument_group("a new machine")
        new.add_argument("--uarch", help="its microarchitecture, as `tidemark-agent probe` calls it there")
        drivers = sorted(DRIVERS - {OUTSIDE})
        new.add_argument(
            "--driver", default="kexec", choices=drivers, help="kexec; emulated ones are in the site's file"
        )
        new.add_argument("--config", help="its kernels' configuration; may be left out where there is one for its arch")
        new.add_argument("--toolchain", help="their toolchain; may be left out where there is one")

    def handle(self, *_args: Any, host: str | None, **options: Any) -> None:
        if options["list"]:
            self._list(host)
            return
        if not host:
            raise CommandError("which host? --list prints what was made")
        try:
            if options["uarch"]:
                self._machine(host, options)
            scope = scope_of(host, options["scope"])
            code = make_code(host, scope, actor=whoever(options["by"]), hours=options["hours"])
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"For {scope} {host}, once, until {code.until:%Y-%m-%d %H:%M} UTC. There, as root:\n")
        self.stdout.write(f"    {code.command}\n")

    def _machine(self, host: str, options: dict[str, Any]) -> None:
        """Make the machine where it is new; of one that is known the microarchitecture has to be the same."""
        known = Machine.objects.select_related("uarch").filter(name=host).first()
        if known is not None:
            if known.uarch.name != options["uarch"]:
                raise CommandError(f"{host} is a {known.uarch.name} in the site's file, not a {options['uarch']}")
            return
        uarch = Microarchitecture.objects.filter(name=options["uarch"]).first()
        if uarch is None:
            names = ", ".join(Microarchitecture.objects.values_list("name", flat=True)) or "none"
            raise CommandError(f"there is no microarchitecture {options['uarch']!r}; there are: {names}")
        entry = {
            "name": host,
            "uarch": uarch.name,
            "boot_driver": options["driver"],
            "config": options["config"] or _only("--config", list(_configs(uarch.arch))),
            "toolchain": options["toolchain"] or _only("--toolchain", list(_names(Toolchain))),
            "health": Machine.Health.UNKNOWN,
        }
        try:
            save_machine(entry)
        except (ValueError, ValidationError, ObjectDoesNotExist) as error:
            raise CommandError(f"{host}: {error}") from error

    def _list(self, host: str | None) -> None:
        rows = Enrolment.objects.filter(subject=host) if host else Enrolment.objects.all()
        for row in rows[:_SHOWN]:
            made = f"{row.scope:8} {row.subject:24} made {row.created_at:%Y-%m-%d %H:%M} by {row.made_by}"
            self.stdout.write(f"{made}: {_state(row)}")


def _state(row: Enrolment) -> str:
    if row.used_at is not None:
        where = f"by {row.host} from {row.used_from}"
        return f"used {row.used_at:%Y-%m-%d %H:%M} {where}: {say_facts(row.facts)}"
    until = f"{row.expires_at:%Y-%m-%d %H:%M}"
    return f"ended {until}" if row.expires_at <= clock.now() else f"good until {until}"


def _configs(arch: str) -> "list[str]":
    return list(KernelConfig.objects.filter(arch=arch).values_list("name", flat=True))


def _names(kind: type[Toolchain]) -> "list[str]":
    return list(kind.objects.values_list("name", flat=True))


def _only(option: str, names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    raise CommandError(f"say {option}: there are {', '.join(names) or 'none'}")
