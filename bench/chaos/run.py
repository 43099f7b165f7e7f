"""A run: load and readers go on while one strike follows the other; then what is under way comes to its end."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.chaos.load import Load, Read, Reader
from bench.chaos.recovery import MOST_SECONDS, Probe, database_answers, persist, told
from bench.chaos.stage import Stage
from bench.chaos.strikes import LASTING, MISSED, Strike, Victim, in_turn
from bench.replay.faults_run import open_work
from bench.table import table
from server.reports.models import Delivery, DeliveryState
from server.sources.models import Series

# Between the recovery from one strike and the next.
_CALM = (3.0, 8.0)
# Longer than a mail waits whose sender was lost, and one that then found no server.
_DRAIN_SECONDS = 600.0
_LOOK_SECONDS = 2.0
_READERS = 2
Say = Callable[[str], None]


@dataclass(frozen=True)
class Struck:
    """One strike, and how many seconds after its end each lane was back."""

    strike: Strike
    lasted: float
    lanes: Mapping[str, float | None]

    @property
    def seconds(self) -> float:
        return max(float("inf") if found is None else found for found in self.lanes.values())


@dataclass
class Told:
    """What a run was: what was put in, what struck, what readers were answered."""

    load: Load
    struck: list[Struck] = field(default_factory=list)
    # Strikes for which there was nothing to be struck, or that this user may not do.
    left_out: list[str] = field(default_factory=list)
    # From the beginning of such a strike until the database answers.
    stops: list[tuple[float, float]] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    drained: float = 0.0
    left: dict[str, int] = field(default_factory=dict)


def unfinished() -> dict[str, int]:
    """Rows that are not at their end, by kind."""
    found = open_work()
    waiting = Series.objects.filter(state__in=[Series.State.INCOMPLETE, Series.State.HELD, Series.State.READY])
    mails = Delivery.objects.filter(state__in=[DeliveryState.QUEUED, DeliveryState.SENDING])
    found |= {"series not applied": waiting.count(), "mails not sent": mails.count()}
    return {name: count for name, count in found.items() if count}


def open_series() -> int | None:
    return told(lambda: Series.objects.exclude(state__in=_ENDED).filter(finding=None).count())


_ENDED = (Series.State.REFUSED, Series.State.SUPERSEDED)


def play(stage: Stage, *, minutes: float, only: str, say: Say) -> Told:
    load = Load(stage, open_series)
    run = Told(load)
    dice = random.Random(stage.seed)  # noqa: S311 (faults, no secrets)
    victim = Victim(stage, dice)
    with asking(stage) as readers:
        posting = threading.Thread(target=load.run, daemon=True)
        posting.start()
        _strike_all(victim, run, time.time() + 60 * minutes, only, say)
        load.over.set()
        posting.join()
        say("no more strikes: what is under way comes to its end")
        run.drained, run.left = _drain()
        run.reads = [read for reader in readers for read in reader.reads]
    return run


@contextmanager
def asking(stage: Stage) -> Iterator[list[Reader]]:
    over = threading.Event()
    ports = (stage.web_port, stage.second_port)
    readers = [Reader(ports, 1000 * stage.seed + number, over) for number in range(_READERS)]
    threads = [threading.Thread(target=reader.run, daemon=True) for reader in readers]
    for thread in threads:
        thread.start()
    try:
        yield readers
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _strike_all(victim: Victim, run: Told, until: float, only: str, say: Say) -> None:
    waiting: list[Strike] = []
    # Before anything is struck, all of it runs.
    first = Probe(victim.stage, run.load, time.time(), "first").recovered()
    say(f"everything runs: {_told_lanes(first)}")
    while time.time() < until:
        waiting = waiting or in_turn(victim.dice, only)
        strike = waiting.pop()
        struck = _struck(victim, strike, run, say)
        if struck is None:
            run.left_out.append(strike.name)
            say(f"left out: {strike.name}")
        else:
            run.struck.append(struck)
            say(f"{len(run.struck)}. {strike.name} ({struck.lasted:.0f} s), back after {_told_lanes(struck.lanes)}")
        time.sleep(victim.dice.uniform(*_CALM))


def _struck(victim: Victim, strike: Strike, run: Told, say: Say) -> Struck | None:
    begun = time.time()
    lasting = victim.dice.uniform(*LASTING)
    try:
        if not strike.begin(victim):
            return None
        if strike.over is not None:
            time.sleep(lasting)
    except MISSED as error:
        say(f"missed: {strike.name}: {error}")
        return None
    finally:
        if strike.over is not None:
            strike.over(victim)
    ended = time.time()
    if strike.stops_database:
        while not database_answers():
            time.sleep(0.1)
        run.stops.append((begun, time.time()))
    lanes = Probe(victim.stage, run.load, ended, f"probe-{len(run.struck)}").recovered()
    return Struck(strike, ended - begun, lanes)


def _drain() -> tuple[float, dict[str, int]]:
    """How long it took until nothing was under way, and what still is."""
    began = time.monotonic()
    while left := persist(unfinished):
        if time.monotonic() - began > _DRAIN_SECONDS:
            break
        time.sleep(_LOOK_SECONDS)
    return time.monotonic() - began, left


def _told_lanes(lanes: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {_seconds(found)}" for name, found in lanes.items())


def _seconds(found: float | None) -> str:
    return "never" if found is None else f"{found:.0f} s"


def strikes_table(struck: Sequence[Struck]) -> str:
    """A row for each kind of strike and part: how often, and the longest until each lane was back."""
    lanes = list(struck[0].lanes) if struck else []
    rows = []
    for kind, part in sorted({(one.strike.kind, one.strike.part) for one in struck}):
        same = [one for one in struck if (one.strike.kind, one.strike.part) == (kind, part)]
        longest = [_longest([one.lanes[lane] for one in same]) for lane in lanes]
        within = sum(one.seconds <= MOST_SECONDS for one in same)
        rows.append([part, kind, str(len(same)), *longest, "ok" if within == len(same) else "FAIL"])
    return table(["part", "strike", "times", *(f"{lane}, s" for lane in lanes), f"within {MOST_SECONDS:.0f} s"], rows)


def _longest(found: Sequence[float | None]) -> str:
    return "never" if None in found else f"{max(one for one in found if one is not None):.0f}"
