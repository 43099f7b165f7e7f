"""Change points on data that nothing was tuned on: real histories by cross-validation, every constant and part in turn,
and what a threshold costs.
"""

import argparse
import os
import secrets
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})

import numpy as np
import numpy.typing as npt

from bench.kit import (
    BESIDE,
    PEERS,
    WIDE,
    Kit,
    KitError,
    PeerError,
    Row,
    open_kit,
    peer_predictions,
    recorded,
    simulated,
)
from bench.statistics.comparisons import our_changes
from bench.table import table

Floats = npt.NDArray[np.float64]

# Each constant that a figure depends on and where it comes from; bounds of time and memory are not among them.
CONSTANTS: Sequence[tuple[str, str]] = (
    ("nominations.PENALTY", "simulation"),
    ("nominations.WEAK_PENALTY", "simulation"),
    ("nominations.FIRST_PENALTY", "simulation"),
    ("nominations.TREND_PENALTY", "simulation"),
    ("nominations.KERNEL_WIDTH", "dev set"),
    ("timeline.TREND_POINTS", "simulation"),
    ("timeline.MOST_CORRELATED", "simulation"),
    ("steps.REACH", "dev set"),
    ("steps.COURSE_REACH", "dev set"),
    ("steps.PRIOR_POINTS", "simulation"),
    ("steps.HUBER_BOUND", "theory"),
    ("steps.WANDER", "dev set"),
    ("steps.FEWEST_POINTS", "theory"),
    ("steps.ALTERNATING_SHARE", "dev set"),
    ("steps.WAVE_MARGIN", "theory"),
    ("steps.STRICT", "theory"),
    ("steps.LEAST_EFFECT", "theory"),
    ("shifts.REACH", "simulation"),
    ("fleet.CLOSE", "simulation"),
    ("fleet.LENIENT", "simulation"),
    ("fleet.DEARER", "cost"),
    ("fleet.COINCIDENCE", "simulation"),
    ("causes.ELECTORATE", "simulation"),
    ("causes.VARIETY", "simulation"),
    ("causes.DEGREES", "theory"),
    ("causes.LEAST_ERROR", "simulation"),
    ("causes.LARGE_EVENT", "simulation"),
    ("causes.EVENT_PRIOR", "simulation"),
    ("causes.OWN_SHARE", "simulation"),
)
# What is left out in turn, and what stands in for it.
PARTS: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("trend in the error", {"nominations.local_trend": lambda *_: 0.0}),
    ("slope or wave beside a step", {"steps.step_share": lambda *_: 1.0}),
    ("wave", {"steps.WAVE_MARGIN": 1e9}),
    ("wandering level", {"steps.WANDER": 0.0}),
    ("correlation of runs", {"nominations.run_correlation": lambda _: 0.0}),
    ("counts between modes", {"steps.ALTERNATING_SHARE": 2.0}),
    ("weak steps of a fleet", {"fleet.LENIENT": 3.7}),
    ("what moves with a change", {"fleet.belongs": lambda *_: False}),
    ("events of machines", {"fleet.Resolution._book_events": lambda *_: False}),
    ("doubts about events", {"fleet.doubted": lambda explanation, *_: explanation}),
)
_MODULES = ("timeline", "shifts", "steps", "causes", "nominations", "fleet", "watch")
_RESAMPLES = 1000
_LEAST_CHANGE = 0.02
# Places that are no farther apart are one: a trial answers for both.
_NEAR = 3
_THRESHOLDS = (2.8, 3.2, 3.7, 4.2, 5.0, 6.0, 8.0)


@contextmanager
def changed(values: Mapping[str, Any]) -> Iterator[None]:
    """Constants and functions of the change points replaced, wherever they were imported."""
    modules = {name: import_module(f"server.stats.changepoints.{name}") for name in _MODULES}
    undo: list[tuple[object, str, object]] = []
    for name, value in values.items():
        module, *inside, attribute = name.split(".")
        home: Any = modules[module]
        for part in inside:
            home = getattr(home, part)
        own = getattr(home, attribute)
        homes = [home] if inside else [one for one in modules.values() if getattr(one, attribute, None) is own]
        undo += [(one, attribute, own) for one in homes]
        for one in homes:
            setattr(one, attribute, value)
    try:
        yield
    finally:
        for one, attribute, own in undo:
            setattr(one, attribute, own)


@dataclass(frozen=True)
class Sets:
    """Fleets as (rows that change, rows that do not), the recorded histories with labels, and those without change."""

    kit: Kit
    fleets: Sequence[tuple[Sequence[Row], Sequence[Row]]]
    labelled: Sequence[Row]
    turing: Sequence[Row]


@dataclass(frozen=True, eq=False)
class Scores:
    """`worlds` (worlds, 3): true, false and missed steps; `null` (fleets, 2): alarms and points where nothing changes.

    `real` (series, 2) and `turing` (series, 2): F1 and covering.
    """

    worlds: Floats
    null: Floats
    real: Floats
    turing: Floats

    @property
    def strict(self) -> float:
        return f1(self.worlds.sum(axis=0))

    @property
    def alarms(self) -> float:
        alarms, points = self.null.sum(axis=0)
        return 1000 * float(alarms / points)


def f1(counts: Floats) -> float:
    true, false, missed = counts.T
    return float(2 * true / (2 * true + false + missed))


def open_sets(kit: Kit, seeds: Sequence[int]) -> Sets:
    fleets = [simulated(kit, seed, WIDE) for seed in seeds]
    return Sets(
        kit, [(one.rows, two.rows) for one, two in fleets], recorded(kit, "perf").rows, recorded(kit, "tcpd").rows
    )


def scores(sets: Sets) -> Scores:
    worlds, null = [], []
    for changing, quiet in sets.fleets:
        found = {row["id"]: row["cps"] for row in our_changes([*changing, *quiet])}
        counts: dict[str, Floats] = defaultdict(lambda: np.zeros(3))
        for row in changing:
            counts[row["world"]] += _counts(sets.kit, row, found[row["id"]])
        worlds += list(counts.values())
        null.append([sum(len(found[row["id"]]) for row in quiet), sum(len(row["values"]) for row in quiet)])
    return Scores(
        np.array(worlds),
        np.array(null, dtype=float),
        _annotated(sets.kit, sets.labelled),
        _annotated(sets.kit, sets.turing),
    )


def _counts(kit: Kit, row: Row, found: Sequence[int]) -> Floats:
    """True, false and missed steps of a row, as the kit's strict reading has them."""
    truth, found = [one["index"] for one in row["truth"]], sorted(found)
    pairs = kit.evaluate.match(truth, found, kit.evaluate.MARGIN_SIMULATED)
    taken = {at for _, at in pairs}
    minor = [one["index"] for one in row["minor"]]
    false = [x for at, x in enumerate(found) if at not in taken and not kit.evaluate.near_any(x, minor, _NEAR)]
    return np.array([len(pairs), len(false), len(truth) - len(pairs)], dtype=float)


def _annotated(kit: Kit, rows: Sequence[Row], predictions: Sequence[Row] | None = None) -> Floats:
    found = {row["id"]: row["cps"] for row in predictions or our_changes(rows)}
    return np.array([
        [
            kit.evaluate.annotated_f1(row["annotations"], found[row["id"]], kit.evaluate.MARGIN_ANNOTATED)[2],
            kit.evaluate.covering(row["annotations"], found[row["id"]], len(row["values"])),
        ]
        for row in rows
    ])  # fmt: skip


def interval(values: Floats, figure: Callable[[Floats], float]) -> str:
    """95 % percentile interval over resampled rows (Efron, Ann. Statist. 7, 1979)."""
    drawn = np.random.default_rng(7).integers(len(values), size=(_RESAMPLES, len(values)))
    low, high = np.quantile([figure(values[some]) for some in drawn], [0.025, 0.975])
    return f"{low:+.3f} to {high:+.3f}" if low < 0 else f"{low:.3f} to {high:.3f}"


def lost(own: Scores, other: Scores) -> list[str]:
    """By how much the figures of `other` differ from ours, with intervals over worlds and over series."""
    both = np.concatenate([own.worlds, other.worlds], axis=1)
    real = other.real[:, 0] - own.real[:, 0]
    return [
        f"{other.strict - own.strict:+.4f}",
        interval(both, lambda some: f1(some[:, 3:].sum(axis=0)) - f1(some[:, :3].sum(axis=0))),
        f"{other.alarms - own.alarms:+.2f}",
        f"{real.mean():+.4f}",
        interval(real, lambda some: float(some.mean())),
        f"{other.turing[:, 0].mean() - own.turing[:, 0].mean():+.4f}",
    ]


_LOST = ("strict F1", "95 %", "alarms / 1000", "real F1", "95 %", "Turing F1")


def validated(own: Scores, variants: Sequence[Scores], rows: Sequence[Row]) -> Floats:
    """(series, 2): each source scored with the variant that is best on all others and on the fleets."""
    everything = [own, *variants]
    sources = np.array([row["source"] for row in rows])
    found = np.zeros_like(own.real)
    for source in set(sources.tolist()):
        others = sources != source
        best = max(everything, key=lambda one: one.real[others, 0].mean() + one.turing[:, 0].mean() + one.strict)
        found[~others] = best.real[~others]
    return found


def real_table(sets: Sets, own: Scores, variants: Sequence[Scores]) -> str:
    lines = [
        _real_line("ours", own.real, own.turing),
        _real_line("ours, cross-validated", validated(own, variants, sets.labelled), None),
    ]
    for peer in PEERS:
        try:
            found = [
                _annotated(sets.kit, rows, peer_predictions(sets.kit, peer, rows))
                for rows in (sets.labelled, sets.turing)
            ]
        except PeerError as error:
            print(f"bench: {peer.name} is left out: {error}", file=sys.stderr)
            continue
        lines.append(_real_line(peer.name, *found))
    return table(["recorded histories", "F1", "95 %", "covering", "95 %", "Turing F1", "95 %"], lines)


def _real_line(name: str, real: Floats, turing: Floats | None) -> list[str]:
    def both(values: Floats) -> list[str]:
        return [f"{values.mean():.3f}", interval(values, lambda some: float(some.mean()))]

    return [name, *both(real[:, 0]), *both(real[:, 1]), *(["", ""] if turing is None else both(turing[:, 0]))]


def thresholds(sets: Sets) -> str:
    """For each threshold of one timeline the changes of 2 % and more that are found in a fleet, the places that fresh
    boots must confirm, and what it gives on recorded histories.
    """
    lines = []
    for threshold in _THRESHOLDS:
        with changed({"steps.STRICT": threshold, "steps.WEAK": 0.99 * threshold}):
            real = [_annotated(sets.kit, rows).mean(axis=0) for rows in (sets.labelled, sets.turing)]
            figures = [f"{real[0][0]:.3f}", f"{real[0][1]:.3f}", f"{real[1][0]:.3f}"]
            lines.append([f"{threshold:g}", *_spent(sets), *figures])
    names = ["found, from 2 %", "true places / 1000 revisions", "false places / 1000 revisions"]
    return table(["-log10 p", *names, "real F1", "covering", "Turing F1"], lines)


def _spent(sets: Sets) -> list[str]:
    found = there = true = false = revisions = 0
    for changing, quiet in sets.fleets:
        answers = {row["id"]: row["cps"] for row in our_changes([*changing, *quiet])}
        places: dict[str, set[int]] = defaultdict(set)
        for row in [*changing, *quiet]:
            places[row["world"]] |= {row["commits"][at] for at in answers[row["id"]]}
        changes = _changes(changing)
        for row in changing:
            large = [one["index"] for one in row["truth"] if abs(one["effect"]) >= _LEAST_CHANGE]
            found += len(sets.kit.evaluate.match(large, sorted(answers[row["id"]]), _NEAR))
            there += len(large)
        for world, some in places.items():
            apart = _apart(sorted(some))
            near = sum(any(abs(at - one) <= _NEAR for one in changes[world]) for at in apart)
            true, false = true + near, false + len(apart) - near
        revisions += sum(
            max(row["commits"][-1] for row in [*changing, *quiet] if row["world"] == world) for world in places
        )
    return [f"{found / there:.3f}", f"{1000 * true / revisions:.1f}", f"{1000 * false / revisions:.1f}"]


def _changes(rows: Sequence[Row]) -> Mapping[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        found[row["world"]] |= {row["commits"][one["index"]] for one in [*row["truth"], *row["minor"]]}
    return found


def _apart(places: Sequence[int]) -> list[int]:
    """One place of those that are so near that one trial answers for all."""
    kept: list[int] = []
    for place in places:
        if not kept or place - kept[-1] > _NEAR:
            kept.append(place)
    return kept


# Every constant halved and doubled, every part left out, real histories by cross-validation.
#
#     python -m bench.statistics.validation [--kit DIR] [--fleets 3] [--seed N]
#
# Fleets are drawn afresh; their seeds are printed.


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kit", type=Path, default=BESIDE, help="folder of the evaluation kit")
    parser.add_argument("--fleets", type=int, default=3, help="simulated fleets of wide ranges")
    parser.add_argument("--seed", type=int, help="of the first fleet; drawn if it is left out")
    chosen = parser.parse_args()
    first = secrets.randbelow(10**6) if chosen.seed is None else chosen.seed
    seeds = range(first, first + chosen.fleets)
    try:
        sets = open_sets(open_kit(chosen.kit), seeds)
    except KitError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    own = scores(sets)
    print(
        f"seeds {', '.join(map(str, seeds))}: strict F1 {own.strict:.3f}, {own.alarms:.2f} alarms / 1000\n", flush=True
    )
    parts = [(name, _with(sets, change)) for name, change in PARTS]
    print(table(["left out", *_LOST], [[name, *lost(own, other)] for name, other in parts]), flush=True)
    tried = [(name, origin, factor, _scaled(sets, name, factor)) for name, origin in CONSTANTS for factor in (0.5, 2.0)]
    lines = [[f"{name} x {factor:g}", origin, *lost(own, other)] for name, origin, factor, other in tried]
    print(table(["constant", "from", *_LOST], lines), flush=True)
    print(thresholds(sets), flush=True)
    print(real_table(sets, own, [other for *_, other in tried]), flush=True)
    return 0


def _with(sets: Sets, change: Mapping[str, Any]) -> Scores:
    with changed(change):
        return scores(sets)


def _scaled(sets: Sets, name: str, factor: float) -> Scores:
    module, attribute = name.split(".")
    value = getattr(import_module(f"server.stats.changepoints.{module}"), attribute)
    return _with(sets, {name: type(value)(value * factor)})


if __name__ == "__main__":
    sys.exit(main())
