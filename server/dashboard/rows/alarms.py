"""What needs a person, in a line each that says what to do and where."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse

from server.dashboard.rows.watchers import Watcher, watchers
from server.lab.models import Host, Machine
from server.lab.port import dispatcher
from server.reports.sending.bounces import refusing_lists

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class AlarmLine:
    """Something that a person must do: what is wrong, what to do about it, and where."""

    what: str
    advice: str
    href: str


def alarms(
    now: datetime, watched: Iterable[Watcher], machines: Sequence[Machine], refused: Iterable[tuple[Any, ...]]
) -> tuple[AlarmLine, ...]:
    """What needs a person, the most urgent first. `refused` is what lists sent back."""
    status = reverse("status")
    lines = [AlarmLine(f"Dispatcher: {one.what}", one.advice, status) for one in dispatcher().alarms(now)]
    sick = (row for row in machines if row.enabled and row.health == Host.Health.QUARANTINED)
    lines += [
        AlarmLine(
            f"Machine {row.name} gets no work, it is quarantined: {row.health_reason}.",
            "Look at it, then release it.",
            reverse("machine", args=[row.name]),
        )
        for row in sick
    ]
    alarming = [one for one in watched if one.alarming]
    return (*lines, *_offline_alarms(machines), *_watcher_alarms(alarming), *_refusal_alarms(refused))


def _refusal_alarms(refused: Iterable[tuple[Any, ...]]) -> list[AlarmLine]:
    return [
        AlarmLine(
            f"The list {one.address} refuses reports{f' ({one.status})' if one.status else ''}.",
            "Ask its owner whether the sender must be subscribed.",
            reverse("mail", args=[one.report]),
        )
        for one in refusing_lists(refused)
    ]


def what_stopped() -> tuple[AlarmLine, ...]:
    """Trees and lists that nobody asks, or that do not answer: no work comes from them."""
    return tuple(_watcher_alarms([one for one in watchers() if one.alarming]))


# Told already, in somebody's hands, or gone.
_NO_NEWS = (Host.Health.QUARANTINED, Host.Health.MAINTENANCE, Host.Health.RETIRED)


def _offline_alarms(machines: Iterable[Machine]) -> list[AlarmLine]:
    """One line for all: what takes many away is mostly one thing."""
    lost = [row for row in machines if row.enabled and row.state == Host.State.OFFLINE and row.health not in _NO_NEWS]
    if not lost:
        return []
    advice = "Look at the power, the network and the agent."
    if len(lost) == 1:
        why = f": {lost[0].state_reason}" if lost[0].state_reason else ""
        return [AlarmLine(f"Machine {lost[0].name} is offline{why}.", advice, reverse("machine", args=[lost[0].name]))]
    names = ", ".join(row.name for row in lost[:_MOST_NAMED]) + (", ..." if len(lost) > _MOST_NAMED else "")
    return [AlarmLine(f"{len(lost)} machines ({names}) are offline.", advice, reverse("machines"))]


def _watcher_alarms(alarming: Sequence[Watcher]) -> list[AlarmLine]:
    """One line for each that fails, since errors differ; one for all that nobody asks."""
    failing = [one for one in alarming if one.failing_since]
    silent = [one for one in alarming if not one.failing_since]
    lines = [
        AlarmLine(f"The {one.kind} {one.name} is failing: {one.error}", "Check its address and the network.", _at(one))
        for one in failing
    ]
    if silent:
        known = list(dict.fromkeys(one.name for one in silent))
        names = ", ".join(known[:_MOST_NAMED]) + (", ..." if len(known) > _MOST_NAMED else "")
        never = all(one.polled_at is None for one in silent)
        what = "not polled yet" if never else "late: no poll for longer than its interval allows"
        who = f"The {silent[0].kind} {names} is" if len(silent) == 1 else f"{len(silent)} trees and lists ({names}) are"
        lines.append(AlarmLine(f"{who} {what}.", "Check that the workers run.", reverse("status")))
    return lines


def _at(one: Watcher) -> str:
    return reverse("tree", args=[one.name]) if one.kind == "tree" else reverse("status")
