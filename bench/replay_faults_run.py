"""Playing on the whole stack while faults strike; Django is set up on the stack's database."""

import random
import time
from collections import Counter
from collections.abc import Sequence

from django.db.models import Count

from bench.replay_faults_kinds import FAULTS, Victim
from bench.replay_faults_open import open_work
from bench.replay_faults_rows import Outcome, outcome, persist
from bench.replay_faults_sweeps import Sweeps
from bench.replay_faults_watch import Watch
from bench.replay_fleet import enlist
from bench.replay_lines import Line
from bench.replay_rows import Study
from bench.replay_series import post_series
from scripts.stack.places import Places
from server.lab.models import Session, Trial
from server.sources.models import Series

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
