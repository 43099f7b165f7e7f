"""What the commands `machine` and `builder` share: their arguments, and how a host is told."""

import getpass
from argparse import ArgumentParser
from collections.abc import Iterator

from server.core.models import Transition
from server.lab.hosts.probes import standing
from server.lab.models import Builder, Machine

_SHOWN_LINES = 30


def add_care_arguments(parser: ArgumentParser, *, actions: dict[str, str]) -> None:
    """A name, at most one of the actions (each with a reason), and who it is that asks."""
    parser.add_argument("name")
    only_one = parser.add_mutually_exclusive_group()
    for action, text in actions.items():
        only_one.add_argument(f"--{action}", metavar="REASON", help=text)
    parser.add_argument("--by", metavar="WHO", default="", help="who decides this; the account's name if not given")


def whoever(by: str) -> str:
    """Who asks, for the history."""
    if by.strip():
        return by.strip()[:150]
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "an operator"


def told(host: Machine | Builder) -> Iterator[str]:
    """State, health and the latest lines of the history, the newest first."""
    kind = "machine" if isinstance(host, Machine) else "builder"
    disabled = "" if host.enabled else " (disabled)"
    yield f"{kind} {host.name}{disabled}, node {host.node_name}"
    yield _line("state", host.get_state_display(), host.state_reason, f"{host.state_since:%Y-%m-%d %H:%M} UTC")
    yield _line("health", host.get_health_display(), host.health_reason, f"{host.health_since:%Y-%m-%d %H:%M} UTC")
    if isinstance(host, Machine) and host.is_held:
        yield f"  {host.health_hold}"
    if isinstance(host, Machine):
        yield from _kind(host)
    yield f"last seen: {f'{host.last_seen_at:%Y-%m-%d %H:%M} UTC' if host.last_seen_at else 'never'}"
    lines = Transition.objects.filter(
        subject__in=[f"{kind}-state", f"{kind}-health", f"{kind}-kind"], subject_id=host.pk
    )
    for line in lines.order_by("-id")[:_SHOWN_LINES]:
        what = line.subject.removeprefix(f"{kind}-")
        reason = f": {line.reason}" if line.reason else ""
        by = f" by {line.actor}" if line.actor else ""
        yield f"  {line.at:%Y-%m-%d %H:%M:%S} {what} {line.before} -> {line.after}{by}{reason}"


def _kind(machine: Machine) -> Iterator[str]:
    known = standing(machine)
    word = f", on the word of {known.by} of {known.at:%Y-%m-%d %H:%M} UTC ({known.reason})" if known.at else ""
    yield f"taken for: {known.kind}{word}"
    for doubt in known.doubts:
        yield f"  {doubt}"


def _line(what: str, now: str, reason: str, since: str) -> str:
    return f"{what}: {now} since {since}{f' ({reason})' if reason else ''}"
