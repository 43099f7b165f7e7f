"""What sweeps leave in Redis of their last run: when it went well, and how long it took.

It is lost with Redis and there again after the next run. No table is written for what happens every few seconds.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
from celery import current_app
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

log = structlog.get_logger(__name__)

_NAMES, _RUNS = "pulse.names", "pulse.runs"
# Counts of uploads that were not taken, by code.
REFUSED = "pulse.refused"
BROKER_ERRORS = (OperationalError, RedisError, OSError)


@dataclass(frozen=True, slots=True)
class Pulse:
    """The last run of a sweep; `well_at` is None where none has ended well since Redis was emptied."""

    name: str
    began_at: datetime
    seconds: float
    well_at: datetime | None


@contextmanager
def broker() -> Iterator[Any]:
    """A client of the site's Redis, whose keys stand behind the site's prefix. Raises one of BROKER_ERRORS."""
    with current_app.connection_for_write() as connection:
        channel: Any = connection.default_channel
        yield channel.client


@contextmanager
def noted(name: str) -> Iterator[None]:
    """Leave word of the run of sweep `name` in the block. A broker that is away takes nothing from the sweep."""
    began, started, well = datetime.now(UTC), time.monotonic(), False
    try:
        yield
        well = True
    finally:
        try:
            _leave_word(name, began, time.monotonic() - started, well=well)
        except BROKER_ERRORS as error:
            log.warning("pulse_lost", sweep=name, error=str(error))


def _leave_word(name: str, began: datetime, seconds: float, *, well: bool) -> None:
    with broker() as client:
        before = json.loads(client.hget(_RUNS, name) or "{}")
        well_at = began.isoformat() if well else before.get("well_at")
        told = {"began_at": began.isoformat(), "seconds": round(seconds, 3), "well_at": well_at}
        client.hset(_RUNS, name, json.dumps(told))
        client.sadd(_NAMES, name)


def pulses(client: Any) -> list[Pulse]:
    """Of each sweep that has run since Redis was emptied, by name."""
    names = sorted(name.decode() for name in client.smembers(_NAMES))
    found = ((name, json.loads(client.hget(_RUNS, name) or "{}")) for name in names)
    return [
        Pulse(
            name=name,
            began_at=datetime.fromisoformat(told["began_at"]),
            seconds=told["seconds"],
            well_at=datetime.fromisoformat(told["well_at"]) if told["well_at"] else None,
        )
        for name, told in found
        if told
    ]


def add_counts(of: str, found: Mapping[str, int]) -> None:
    """Add to counts that all processes of the site share. A broker that is away loses these."""
    try:
        with broker() as client:
            for name, count in found.items():
                client.execute_command("HINCRBY", f"{client.global_keyprefix}{of}", name, count)
    except BROKER_ERRORS as error:
        log.warning("counts_lost", of=of, error=str(error))


def counts(client: Any, of: str) -> dict[str, int]:
    told = client.execute_command("HGETALL", f"{client.global_keyprefix}{of}")
    return {name.decode(): int(count) for name, count in told.items()}
