"""The pure parts of what measures pages and answers: percentiles, plans, addresses, bars."""

from argparse import Namespace
from unittest.mock import Mock

import pytest
from django.test import Client

from bench.api.asking import Inside, Web, ask_inside
from bench.api.plans import read_whole, scanned, statements
from bench.api.questions import Question, examples, routes, unknown
from bench.api.run import Cost, Step, ask_outside, growth, missed
from bench.api.site import Site
from bench.api.times import Times, percentile
from server.results.models import Measurement
from tests.builders import build_builder, build_finding, build_series, build_session


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [((7.0,), 0.95, 7.0), ((3.0, 1.0, 2.0), 0.5, 2.0), ((0.0, 10.0), 0.95, 9.5), (tuple(range(101)), 0.95, 95.0)],
)
def test_percentile_lies_between_its_neighbours(values: tuple[float, ...], share: float, expected: float) -> None:
    assert percentile(values, share) == pytest.approx(expected)


def test_plan_names_tables_that_any_step_reads_whole() -> None:
    scan = {"Node Type": "Seq Scan", "Relation Name": "lab_boot"}
    by_index = {"Node Type": "Index Scan", "Relation Name": "lab_session"}
    plan = {"Node Type": "Limit", "Plans": [{"Node Type": "Nested Loop", "Plans": [by_index, scan]}]}
    assert read_whole(plan) == {"lab_boot"}


@pytest.mark.django_db
def test_statements_are_explained_with_their_values() -> None:
    with statements() as asked:
        list(Measurement.objects.filter(warmup=3).order_by())
    assert len(asked) == 1
    assert scanned(asked, {"results_packedvalues_0": 10**6}) == {"results_packedvalues_0"}
    assert scanned(asked, {"lab_boot": 10**6}) == set()


def test_routes_are_those_of_pages_and_of_the_api() -> None:
    names = [route.name for route in routes()]
    assert {"home", "finding", "api-finding-list", "api-timeline-detail", "api-schema"} <= set(names)
    assert not [name for name in names if name.startswith(("agent-", "admin"))]
    assert len(names) == len(set(names))
    assert {route.takes for route in routes() if route.name == "branch"} == {("name", "branch_name")}


def test_route_that_wants_a_name_needs_an_example() -> None:
    assert "api-finding-detail" in unknown({})
    assert "api-finding-list" not in unknown({})


@pytest.mark.django_db
def test_every_route_has_an_example() -> None:
    series = build_series()
    session = build_session(series)
    build_finding(series)
    build_builder("old-builder")
    known = examples(Site(series, (session.pk,)), timeline=1)
    assert unknown(known) == []


def _step(millions: float, milliseconds: float, *, queries: int = 3, scans: tuple[str, ...] = ()) -> Step:
    inside = Inside(200, queries, 1000, Times((milliseconds,)), frozenset(scans))
    return Step(millions, {"list": Cost(inside, Times((milliseconds,)), frozenset({200}))}, 100.0)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([_step(0.5, 30), _step(5, 40)], []),
        ([_step(0.5, 30), _step(5, 50)], ["list: 1.7 times as slow at 5.0 million values"]),
        ([_step(5, 30), _step(50, 50)], []),
        ([_step(5, 70)], ["list: p95 70 ms, not 60"]),
        ([_step(5, 30, queries=9)], ["list: 9 queries, not 8"]),
        ([_step(5, 30, scans=("lab_boot",))], ["list: reads all of lab_boot"]),
    ],
)
def test_what_does_not_hold_is_named(steps: list[Step], expected: list[str]) -> None:
    assert missed([Question("list", "/", 60.0, 8)], steps) == expected


def _cost(alone: float, with_others: float) -> Cost:
    return Cost(Inside(200, 3, 1000, Times((alone,))), Times((with_others,)), frozenset({200}))


@pytest.mark.parametrize(
    ("before", "after", "times"),
    [
        (_cost(2, 2), _cost(9, 9), 1.0),
        (_cost(20, 20), _cost(40, 40), 2.0),
        # Slow only while others asked, or only while nobody did: that was the host.
        (_cost(10, 40), _cost(10, 200), 1.0),
        (_cost(10, 40), _cost(50, 40), 1.0),
    ],
)
def test_growth_is_seen_alone_and_with_others(before: Cost, after: Cost, times: float) -> None:
    assert growth(before, after) == pytest.approx(times)


@pytest.mark.django_db
def test_what_is_no_page_is_data_from_end_to_end(client: Client) -> None:
    page = ask_inside(client, Question("trees", "/trees/"), {}, rounds=1)
    script = ask_inside(client, Question("api-tree-list", "/api/v1/trees/"), {}, rounds=1)
    assert 0 < page.bare <= page.size
    assert script.bare == 0 < script.size


@pytest.mark.django_db
@pytest.mark.parametrize(("most_ms", "requests"), [(500.0, 5), (60.0, 20)])
def test_question_with_a_bar_of_its_own_is_asked_for_longer(most_ms: float, requests: int) -> None:
    served = Mock(Web)
    served.ask.return_value = (Times((1.0,)), {200})
    question = Question("list", "/", most_ms)
    inside = Inside(200, 3, 1000, Times((1.0,)))
    ask_outside(served, question, inside, Namespace(writes=0.0, clients=8, requests=5))
    served.ask.assert_called_once_with(question, 8, requests)
