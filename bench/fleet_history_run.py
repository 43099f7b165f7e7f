"""The side of bench.fleet_history that has a database.

python -m bench.scratch_database bench.fleet_history_run [OPTIONS]: see bench/fleet_history.py
"""

import logging
import sys
from dataclasses import dataclass
from statistics import median

import structlog
from django.conf import settings
from django.db.models import Count

from bench.fleet_history_branch import Played, play
from bench.fleet_history_options import options
from bench.fleet_history_score import Score, lines, machine_questions, score
from bench.fleet_history_truth import Truth, make_truth
from bench.table import table
from server.lab.models import Session, Trial
from server.lab.trials.costs import spent

# Of twelve.
FOUND, FALSE = 10, 1


def main(*arguments: str) -> None:
    chosen = options(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    settings.NOISE_HOURS = chosen.noise_hours
    truth = make_truth(
        chosen.seed,
        revisions=chosen.revisions,
        machines=chosen.machines,
        changes=chosen.changes,
        maintenance=chosen.maintenance,
        benchmarks=chosen.benchmarks,
    )
    played = play(truth, chosen.seed, lambda line: print(line, flush=True))
    sys.exit(_report(truth, played))


def _report(truth: Truth, played: Played) -> int:
    scored, seconds = score(truth, played.branch, played.places), played.seconds
    print(table(["change", "size", "where", "head", "told"], lines(truth, scored)))
    for told in scored.wide:
        print(f"WIDE after {told.low}, until {told.high}: {told.finding.headline}")
    for told in scored.false:
        print(f"FALSE after {told.low}, until {told.high}: {told.finding.headline}")
    print("maintenance: " + ", ".join(f"machine {step.machine} at {step.place}" for step in truth.maintenance))
    print("\n".join(machine_questions()))
    print(table(["machine time", "trials", "sessions", "boots", "hours"], _costs()))
    print(f"wall time {sum(seconds):.0f} s; a head: median {median(seconds):.2f} s, worst {max(seconds):.2f} s")
    held = [bar.said() for bar in _bars(truth, scored, played)]
    return 0 if all(held) else 1


@dataclass(frozen=True)
class Bar:
    """A figure, with its least or its most where it has a bar."""

    what: str
    number: int
    least: int | None = None
    most: int | None = None

    def said(self) -> bool:
        bars = [f">= {self.least}"] * (self.least is not None) + [f"<= {self.most}"] * (self.most is not None)
        holds = (self.least is None or self.number >= self.least) and (self.most is None or self.number <= self.most)
        verdict = f" ({', '.join(bars)}: {'pass' if holds else 'FAIL'})" if bars else ""
        print(f"{self.what}: {self.number}{verdict}")
        return holds


def _bars(truth: Truth, scored: Score, played: Played) -> list[Bar]:
    return [
        Bar("found at the right revision or gap", len(scored.found), least=round(FOUND / 12 * len(truth.changes))),
        Bar("  of them at one revision", scored.exact),
        Bar("maintenance steps told as code", len(scored.maintenance), most=0),
        Bar("false findings", len(scored.false), most=FALSE),
        Bar("findings that tell of a change again", scored.again),
        Bar("sessions that are not over", Session.objects.exclude(state__in=Session.FINAL).count()),
        Bar("tasks that failed", played.failed, most=0),
    ]


def _costs() -> list[list[str]]:
    rows = []
    counts = Trial.objects.order_by("purpose").values_list("purpose").annotate(number=Count("pk"))
    for purpose, number in counts:
        cost = spent(list(Trial.objects.filter(purpose=purpose).values_list("pk", flat=True)))
        rows.append([purpose, f"{number}", f"{cost.sessions}", f"{cost.boots}", f"{cost.seconds / 3600:.1f}"])
    return rows
