"""manage.py noise: what machines show between equal kernels, and how often that was called a change."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.detection.noise.profiles import AlarmRate, NoiseRow, alarm_rate, alarm_rates, noise_of_machine
from server.lab.models import Machine

_RATES = ("machine", "uarch", "A/A comparisons", "false alarms", "rate", "95 % interval", "p <= 0.05")
_CELLS = ("case", "metric", "cores", "A/A", "alarms", "p <= 0.05", "change 95 %", "boots sd", "MDE", "min effect")


class Command(BaseCommand):
    help = "Print the false alarms of all machines, or with a machine's name the noise of each of its cells."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("machine", nargs="?", help="only this one, cell by cell")

    def handle(self, *_args: Any, machine: str | None, **_options: Any) -> None:
        if machine is None:
            rates = [*alarm_rates(), alarm_rate()]
            self._print([_RATES, *(_rate(rate) for rate in rates)])
            return
        row = Machine.objects.filter(name=machine).first()
        if row is None:
            names = ", ".join(Machine.objects.values_list("name", flat=True)) or "none"
            raise CommandError(f"there is no machine {machine!r}; there are: {names}")
        self._print([_CELLS, *(_cell(cell) for cell in noise_of_machine(row)[0])])

    def _print(self, table: list[tuple[str, ...]]) -> None:
        widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
        for line in table:
            self.stdout.write("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _rate(rate: AlarmRate) -> tuple[str, ...]:
    name = f"{rate.machine} (virtual)" if rate.virtual else rate.machine or "all physical"
    counts = (name, rate.uarch or "-", str(rate.comparisons), str(rate.false_alarms))
    interval = f"{_percent(rate.low)} to {_percent(rate.high)}" if rate.comparisons else "-"
    return (*counts, _percent(rate.rate), interval, str(rate.rejections))


def _cell(row: NoiseRow) -> tuple[str, ...]:
    counts = (str(row.comparisons), str(row.false_alarms), str(row.rejections))
    sizes = (row.change_95, row.boot_sd, row.mde, row.min_effect)
    return (f"{row.benchmark}/{row.case}", row.metric, row.core_type, *counts, *(_percent(size) for size in sizes))


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:.2f} %"
