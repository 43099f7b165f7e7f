"""Playing on the whole stack while faults strike; Django is set up on the stack's database."""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, connection
from django.db.models import Count, Max, QuerySet

from bench.replay.faults import FAULTS, Sweeps, Victim
from bench.replay.report import Line
from demo.lab.replay.series import enlist, post_series
from demo.lab.replay.studies import Study
from scripts.stack.places import Places
from server.builds.models import Build, BuildState
from server.core.models import Transition
from server.detection.models import Comparison, Finding
from server.lab.models import Attempt, Boot, Session, Trial
from server.sources.models import Series


def last_change() -> tuple[int, int]:
    """It differs after anything moved."""
    moved = Transition.objects.aggregate(last=Max("pk"))["last"] or 0
    return moved, Comparison.objects.count()


def open_work() -> dict[str, int]:
    """What is not over yet, by kind."""
    open_findings = [Finding.State.CANDIDATE, Finding.State.BISECTING]
    counts = {
        "builds": Build.objects.filter(state__in=[BuildState.WANTED, BuildState.DISPATCHED, BuildState.RUNNING]),
        "sessions": Session.objects.exclude(state__in=Session.FINAL),
        "attempts": Attempt.objects.filter(state__in=Attempt.ACTIVE),
        "trials": Trial.objects.exclude(state__in=Trial.FINAL),
        "unanswered trials": Trial.objects.filter(answered_at=None, state__in=Trial.FINAL),
        "series without a finding": Series.objects.filter(state=Series.State.APPLIED, finding=None),
        "findings": Finding.objects.filter(state__in=open_findings),
    }
    found = {name: rows.count() for name, rows in counts.items()}
    return {name: count for name, count in found.items() if count}


def agents_at_work() -> bool:
    """Whether an agent has something to do: then waiting for it is no standing still."""
    return Attempt.objects.filter(state=Attempt.State.RUNNING).exists()


_T = TypeVar("_T")
_PATIENCE_SECONDS = 90.0
_ASK_AGAIN_SECONDS = 0.2
_NUMBERS = ("verdict", "base_boots", "patched_boots", "ratio", "ratio_low", "ratio_high", "p_value", "p_adjusted")


@dataclass(frozen=True)
class Outcome:
    """One posting's end, without the numbers of its rows."""

    findings: tuple[tuple[str, str, str, str], ...]
    verdicts: tuple[str, ...]
    comparisons: tuple[str, ...]
    trials: tuple[str, ...]
    boots: tuple[str, ...]

    def differences(self, other: "Outcome") -> list[str]:
        return [name for name, value in vars(self).items() if value != getattr(other, name)]


def persist(ask: Callable[[], _T]) -> _T:
    """Ask until the database answers. Raises what it said last when it is away for very long."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except (DatabaseError, InterfaceError):
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(_ASK_AGAIN_SECONDS)


def outcome(series: Series) -> Outcome:
    findings = Finding.objects.filter(series=series)
    sessions = Session.objects.filter(trial__series=series)
    place = ("session__machine__name", "case__benchmark__name", "case__name", "metric__name", "core_type__name")
    compared = Comparison.objects.filter(session__in=sessions).order_by(*place)
    boots = Boot.objects.filter(session__in=sessions).order_by("session__machine__name", "position")
    return Outcome(
        findings=tuple(findings.values_list("kind", "state", "headline", "culprit__tree_sha")),
        verdicts=_texts(findings.order_by("verdicts__uarch"), "verdicts__uarch__name", "verdicts__verdict"),
        comparisons=_texts(compared, *place, *_NUMBERS),
        trials=_texts(Trial.objects.filter(series=series).order_by("key"), "purpose", "state", "looks"),
        boots=_texts(boots, "session__machine__name", "position", "arm", "state", "outcome"),
    )


def _texts(rows: QuerySet[Any], *fields: str) -> tuple[str, ...]:
    return tuple(str(row) for row in rows.values_list(*fields))


# Between two faults; mostly longer than two sweeps, or nothing could be seen to stand still.
_PAUSES = (4.0, 16.0)


@dataclass
class Watch:
    """Strikes when it is time, and keeps how many sweeps at most went by in which nothing moved."""

    victim: Victim
    left: list[str]
    sweeps: Sweeps
    struck: list[str] = field(default_factory=list)
    next_at: float = 0.0
    stillest: int = 0
    stood: str = ""
    _seen: tuple[int, int] = (0, 0)
    _since: int = 0

    def begin(self) -> None:
        self._wait()
        self._since = self.sweeps.done()

    def step(self) -> None:
        now = time.monotonic()
        if self.left and now > self.next_at:
            name = self.left[-1]
            if FAULTS[name](self.victim):
                self.struck.append(self.left.pop())
                print(f"{len(self.struck)}. {name}", flush=True)
                self._wait()
        seen, swept = persist(last_change), self.sweeps.done()
        # A sweep that was under way when something moved may have looked before; what stands still moves nothing.
        if seen != self._seen or persist(agents_at_work) or self.victim.frozen:
            self._seen, self._since = seen, swept + 1
        elif swept - self._since > self.stillest and persist(open_work):
            self.stillest, self.stood = swept - self._since, str(persist(open_work))

    def _wait(self) -> None:
        self.next_at = time.monotonic() + self.victim.dice.uniform(*_PAUSES)


_MOST_SWEEPS = 2
_POLL_SECONDS = 0.5
_MOST_SECONDS = 1200.0


class StuckError(Exception):
    """A posting did not come to its end."""


def measure(studies: Sequence[Study], *, places: Places, faults: int, seed: int, kinds: str = "") -> list[Line]:
    """Every study once undisturbed, then in turn until all faults have struck."""
    dice = random.Random(seed)  # noqa: S311 (faults, no secrets)
    watch = Watch(Victim(places, dice), [], Sweeps(places.log / "worker.log"))
    enlist(studies)
    expected = {study.name: _play(study, 0, watch) for study in studies}
    for name, ended in expected.items():
        print(f"{name} undisturbed: {ended.findings}", flush=True)
    names = [name for name in FAULTS if kinds in name]
    watch.left = (names * (faults // len(names) + 1))[:faults]
    dice.shuffle(watch.left)
    wrong: list[str] = []
    number = 0
    while watch.left:
        number += 1
        for study in studies:
            differences = expected[study.name].differences(_play(study, number, watch))
            if differences:
                wrong.append(f"{study.name} {number}: {'; '.join(differences)}")
                print(f"WRONG {wrong[-1]}", flush=True)
    return _lines(watch, faults, number * len(studies), wrong)


def _play(study: Study, number: int, watch: Watch) -> Outcome:
    began = time.monotonic()
    series = persist(lambda: post_series(study, number))
    watch.begin()
    while persist(open_work):
        watch.step()
        if time.monotonic() - began > _MOST_SECONDS:
            raise StuckError(f"{study.name} {number}: {persist(open_work)}")
        time.sleep(_POLL_SECONDS)
    print(f"{study.name} {number}: {time.monotonic() - began:.0f} s", flush=True)
    return persist(lambda: outcome(Series.objects.get(pk=series.pk)))


def _lines(watch: Watch, faults: int, replays: int, wrong: list[str]) -> list[Line]:
    kinds = ", ".join(f"{count} {name}" for name, count in Counter(watch.struck).most_common())
    still = f"{watch.stillest}" + (f" ({watch.stood})" if watch.stillest else "")
    twice, again = persist(_twice)
    told = f"{replays}, all alike" if not wrong else f"{replays}, {len(wrong)} otherwise: {wrong[0]}"
    return [
        Line("faults", str(faults), f"{len(watch.struck)}: {kinds}", len(watch.struck) == faults),
        Line("replays while they struck", "the undisturbed one's findings", told, replays > 0 and not wrong),
        Line("sweeps in which open work stood still", f"<= {_MOST_SWEEPS}", still, watch.stillest <= _MOST_SWEEPS),
        Line("sessions twice", "0", str(twice), twice == 0),
        Line("trials twice", "0", str(again), again == 0),
    ]


def _twice() -> tuple[int, int]:
    """Sessions of one trial on one machine, and trials of one question about a series, more than once."""
    sessions = Session.objects.order_by().values("trial", "machine").annotate(rows=Count("pk")).filter(rows__gt=1)
    same = ("series", "purpose", "base", "patched", "layout")
    trials = Trial.objects.order_by().values(*same).annotate(rows=Count("pk")).filter(rows__gt=1)
    return sessions.count(), trials.count()
