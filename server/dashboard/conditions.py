"""How a machine was set while it measured, as rows for people: whatever an agent sent becomes short strings."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from itertools import islice
from typing import Any

from server.dashboard.facts import named

_LONGEST = 300
# Settings of a machine; those that single cases ask for are in the stored conditions.
_MOST_ROWS = 100
# Of one boot; an agent knows some dozens.
_MOST_COMPARED = 300


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting of the machine in a boot; `outcome` is set, kept, unavailable or tolerated."""

    name: str
    wanted: str
    before: str
    after: str
    outcome: str
    note: str


def readable_settings(settings: object) -> tuple[SettingRow, ...]:
    """`settings` as the conditions of a boot hold them."""
    return tuple(islice(_rows(settings), _MOST_ROWS))


def differing_settings(of_boots: Iterable[object]) -> tuple[str, ...]:
    """Names of the settings that not all of these boots had alike."""
    boots = [{row.name: astuple(row)[3:5] for row in islice(_rows(settings), _MOST_COMPARED)} for settings in of_boots]
    names = sorted({name for boot in boots for name in boot})
    return named([name for name in names if any(boot.get(name) != boots[0].get(name) for boot in boots)])


def _rows(settings: object) -> Iterator[SettingRow]:
    for setting in settings if isinstance(settings, list) else ():
        if isinstance(setting, Mapping) and "case" not in setting:
            yield SettingRow(*(_text(setting, name) for name in SettingRow.__slots__))


def _text(setting: Mapping[str, Any], name: str) -> str:
    return str(setting.get(name, ""))[:_LONGEST]
