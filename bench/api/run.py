"""Step by step: so many values are there, then everything is asked; the table of all steps beside the bars."""

import argparse
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from django.conf import settings
from django.test import Client

from bench.api.asking import NOT_ASKED, Inside, Web, ask_inside, web, writing
from bench.api.plans import large_tables
from bench.api.questions import PAGE_MS, Question, questions
from bench.api.site import HEADS, SERIES, make_site
from bench.api.times import Times
from bench.api.values import Values
from bench.table import table
from server.web.process import post_worker_init

MILLION = 1_000_000
_FIRST = ("/", "/findings/", "/api/v1/findings/", "/api/v1/schema/")
# Alone in its process: said at once.
_SLOW_MS = 200.0
# Below so many milliseconds more, what else the host does is larger than any growth.
FEW_MS = 10.0
MOST_GROWTH, MOST_MB = 1.5, 400.0
# What has a bar of its own is asked so many times as often.
_LONGER = 4
# The issue speaks of the growth between these; beyond, the caches of this host end.
_GROWS_UNTIL = 5.0


@dataclass(frozen=True)
class Cost:
    """Of one question at one size."""

    inside: Inside
    outside: Times
    statuses: frozenset[int]


@dataclass(frozen=True)
class Step:
    """`millions` of values, and what each question cost there, by name."""

    millions: float
    costs: Mapping[str, Cost]
    peak_mb: float


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.api")
    parser.add_argument("--values", type=float, nargs="+", default=[0.5, 5.0], help="millions, in growing order")
    parser.add_argument("--clients", type=int, default=8, help="that ask the web server at once")
    many = f"of each client, of each question; of one with a bar of its own {_LONGER} times as many"
    parser.add_argument("--requests", type=int, default=5, help=many)
    parser.add_argument("--writes", type=float, default=1.0, help="a second, while clients ask: answers are made anew")
    parser.add_argument("--only", default="", help="questions whose name holds this")
    parser.add_argument("--series", type=int, default=SERIES, help="of five years")
    parser.add_argument("--heads", type=int, default=HEADS, help="of the branch that is measured every day")
    return parser.parse_args(arguments)


def main(*arguments: str) -> None:
    """Fails where a bar does not hold."""
    chosen = options(arguments)
    logging.disable(logging.CRITICAL)
    settings.ALLOWED_HOSTS = ["*"]
    begun = time.monotonic()
    site = make_site(chosen.series, chosen.heads)
    # As a process begins that answers.
    post_worker_init(None)
    _say(f"{time.monotonic() - begun:6.0f} s: the site is there")
    values, steps = Values(site), list[Step]()
    for millions in sorted(chosen.values):
        values.grow(round(millions * MILLION), _say)
        asked = [one for one in questions(site) if chosen.only in one.name]
        steps.append(_step(values.count / MILLION, asked, chosen))
    asked = [one for one in asked if one.name in steps[-1].costs]
    print(table(_head(steps), [_row(one, steps) for one in asked]))
    failed = missed(asked, steps)
    most = f"the largest web process had {steps[-1].peak_mb:.0f} MB"
    print(f"\n{most}; {chosen.clients} clients at once, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("\n".join([*(f"FAIL {one}" for one in failed), _verdict(failed, len(asked))]))
    sys.exit(1 if failed else 0)


def _step(millions: float, asked: Sequence[Question], chosen: argparse.Namespace) -> Step:
    large, client, inside = large_tables(), Client(), dict[str, Inside]()
    for question in asked:
        seen = ask_inside(client, question, large)
        if seen.status not in NOT_ASKED:
            inside[question.name] = seen
        if seen.times.p50 > _SLOW_MS:
            _say(f"  {question.name}: {seen.times.p50:.0f} ms, {seen.queries} queries, {seen.size / 1000:.0f} kB")
    costs = dict[str, Cost]()
    with web() as served:
        # Every process has its connections and its imports by then.
        for question in (one for one in asked if one.path in _FIRST):
            served.ask(question, chosen.clients, 2)
        for question in asked:
            if question.name in inside:
                costs[question.name] = ask_outside(served, question, inside[question.name], chosen)
        peak = served.peak_mb()
    _say(f"{millions:.1f} million values: {len(costs)} questions asked")
    return Step(millions, costs, peak)


def ask_outside(served: Web, question: Question, inside: Inside, chosen: argparse.Namespace) -> Cost:
    # The times of one second tell nothing of a bar: something is written once in each.
    rounds = chosen.requests * (_LONGER if question.most_ms < PAGE_MS else 1)
    with writing(chosen.writes):
        times, statuses = served.ask(question, chosen.clients, rounds)
    return Cost(inside, times, frozenset(statuses))


def missed(asked: Sequence[Question], steps: Sequence[Step]) -> list[str]:
    """What does not hold: sentences that name the question, what was seen and what was wanted."""
    last = steps[-1]
    found = [f"{one.name}: {what}" for one in asked for what in _missed_by(one, last.costs[one.name])]
    small = [step for step in steps if step.millions <= _GROWS_UNTIL * 1.1]
    for before, after in pairwise(small):
        for one in asked:
            times = growth(before.costs[one.name], after.costs[one.name])
            if times > MOST_GROWTH:
                found.append(f"{one.name}: {times:.1f} times as slow at {after.millions:.1f} million values")
    if last.peak_mb > MOST_MB:
        found.append(f"a web process had {last.peak_mb:.0f} MB, not {MOST_MB:.0f}")
    return found


def _verdict(failed: Sequence[str], number: int) -> str:
    """The last line."""
    if not failed:
        return f"every bar holds, of {number} questions"
    those = len({one.partition(": ")[0] for one in failed})
    return f"{len(failed)} bars missed, by {those} of {number} questions"


def growth(before: Cost, after: Cost) -> float:
    """Of p95 with all clients, where asked alone it grew as well: what else the host does slows the one or the other.

    1 where it is a few milliseconds more.
    """
    if after.outside.p95 - before.outside.p95 <= FEW_MS:
        return 1.0
    return min(after.outside.p95 / before.outside.p95, after.inside.times.p50 / before.inside.times.p50)


def _missed_by(question: Question, cost: Cost) -> list[str]:
    strange = ({cost.inside.status} | cost.statuses) - set(question.statuses)
    found = [f"answered {status}" for status in sorted(strange)]
    if cost.outside.p95 > question.most_ms:
        found.append(f"p95 {cost.outside.p95:.0f} ms, not {question.most_ms:.0f}")
    if question.most_queries is not None and cost.inside.queries > question.most_queries:
        found.append(f"{cost.inside.queries} queries, not {question.most_queries}")
    return found + [f"reads all of {name}" for name in sorted(cost.inside.scans)]


def _head(steps: Sequence[Step]) -> list[str]:
    sizes = [name for step in steps for name in (f"{step.millions:.1f} M: p50", "p95", "alone")]
    return ["milliseconds", "queries", "kB", *sizes, "growth", "bar", ""]


def _row(question: Question, steps: Sequence[Step]) -> list[str]:
    last = steps[-1].costs[question.name]
    times = [
        figure
        for step in steps
        for cost in (step.costs[question.name],)
        for figure in (f"{cost.outside.p50:.0f}", f"{cost.outside.p95:.0f}", f"{cost.inside.times.p50:.1f}")
    ]
    grown = [f"{after.costs[question.name].outside.p95 / before.costs[question.name].outside.p95:.1f}"
             for before, after in pairwise(steps)]  # fmt: skip
    mark = "FAIL" if missed([question], [Step(step.millions, step.costs, 0.0) for step in steps]) else "pass"
    size = f"{last.inside.size / 1000:.0f}"
    return [
        question.name, str(last.inside.queries), size, *times, " ".join(grown) or "-", f"{question.most_ms:.0f}", mark
    ]  # fmt: skip


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
