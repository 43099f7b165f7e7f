"""The side of the bench that has a database: fills it, asks the pages, draws the pictures, and prints what was seen."""

import logging
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from itertools import groupby

from django.conf import settings
from django.test import Client

from bench.api.asking import NOT_ASKED, Inside, Web, ask_inside, web
from bench.api.questions import Question, questions
from bench.api.run import MILLION
from bench.api.site import Site, make_site
from bench.api.times import Times
from bench.api.values import Values
from bench.dashboard.drawing import draw
from bench.dashboard.run import DRAWINGS, Drawn, PageCost, drawings_table, missed, options, pages_table
from server.web.process import post_worker_init

# Asked first, so that every process has its connections and its imports.
_FIRST_ROUNDS = 3
_DRAWINGS = 7


def main(*arguments: str) -> None:
    chosen = options(arguments)
    logging.disable(logging.CRITICAL)
    settings.ALLOWED_HOSTS = ["*"]
    costs, drawn = list[PageCost](), list[Drawn]()
    if not chosen.no_pages:
        _say(f"a site of {chosen.series} series is made")
        site = make_site(chosen.series, chosen.heads)
        Values(site).grow(round(chosen.values * MILLION), _say)
        costs = _ask(site, chosen)
        print(pages_table(costs, chosen.clients))
    if not chosen.no_pictures:
        drawn = _draw()
        print(drawings_table(drawn))
    failed = missed(costs, drawn)
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("\n".join(f"FAIL {one}" for one in failed) or "every bar holds")
    sys.exit(1 if failed else 0)


def pages(asked: list[Question], part: str) -> list[Question]:
    """Those of people, each address once."""
    found = [one for one in asked if not one.path.startswith("/api/") and part in one.name]
    return [next(same) for _, same in groupby(sorted(found, key=_path), key=_path)]


def _path(question: Question) -> str:
    return question.path


def _ask(site: Site, chosen: Namespace) -> list[PageCost]:
    # As a process begins that answers.
    post_worker_init(None)
    client = Client()
    inside = [(page, ask_inside(client, page, {}, rounds=1)) for page in pages(questions(site), chosen.only)]
    inside = [(page, seen) for page, seen in inside if seen.status not in NOT_ASKED]
    _say(f"{len(inside)} pages")
    with web() as served:
        for page, _ in inside:
            served.ask(page, chosen.clients, _FIRST_ROUNDS)
        return list(_asked(served, inside, chosen))


def _asked(served: Web, inside: list[tuple[Question, Inside]], chosen: Namespace) -> Iterator[PageCost]:
    for page, seen in inside:
        alone, first = served.ask(page, 1, chosen.requests)
        crowded, others = served.ask(page, chosen.clients, chosen.requests)
        statuses = frozenset({seen.status, *first, *others})
        allowed = frozenset(page.statuses)
        yield PageCost(page.name, seen.queries, seen.size, alone, crowded, statuses, allowed, seen.bare)


def _draw() -> list[Drawn]:
    # The gallery is there in debug mode alone.
    with web(TIDEMARK_DEBUG="1") as served:
        address = f"http://127.0.0.1:{served.port}"
        return [Drawn(one, Times(tuple(draw(f"{address}{one.path}", one.mark, _DRAWINGS)))) for one in DRAWINGS]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
