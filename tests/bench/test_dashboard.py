"""The pure parts of what measures the pages and the large pictures: which are asked, what passes, what fails."""

import pytest

from bench.api.questions import Question
from bench.api.times import Times
from bench.dashboard.asked import pages
from bench.dashboard.run import DRAWINGS, Drawn, PageCost, drawings_table, missed, options, pages_table


def cost(ms: float = 20.0, *, queries: int = 5, size: int = 40_000, status: int = 200) -> PageCost:
    return PageCost("home", queries, size, Times((ms,)), Times((900.0,)), frozenset({status}))


def test_only_pages_are_asked_each_address_once() -> None:
    home, again, data = Question("home", "/"), Question("home again", "/"), Question("api-x", "/api/v1/x/")
    findings = Question("finding-list", "/findings/?state=reported")
    assert pages([findings, home, again, data], "") == [home, findings]
    assert pages([findings, home, again, data], "finding") == [findings]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (cost(150.0), []),
        (cost(151.0), ["p95 151 ms, not 150"]),
        (cost(queries=12), []),
        (cost(queries=13), ["13 queries, not 12"]),
        (cost(size=250_000), []),
        (cost(size=251_000), ["251 kB without data, not 250"]),
        (cost(status=500), ["answered 500"]),
    ],
)
def test_page_misses_its_bars_alone_however_slow_it_is_for_many(seen: PageCost, said: list[str]) -> None:
    assert seen.missed == said


def test_page_that_was_never_answered_holds_no_bar() -> None:
    assert cost(float("nan")).missed == ["p95 nan ms, not 150"]


def test_drawing_is_judged_by_the_middle_of_its_rounds() -> None:
    timeline = DRAWINGS[0]
    assert Drawn(timeline, Times((80.0, 90.0, 400.0))).missed == []
    assert Drawn(timeline, Times((80.0, 190.0, 400.0))).missed == ["190 ms, not 100"]
    assert Drawn(timeline, Times(())).missed == ["was not drawn"]


def test_tables_mark_what_fails_and_the_sentences_name_it() -> None:
    costs, drawn = [cost(), cost(queries=40)], [Drawn(DRAWINGS[1], Times((301.0,)))]
    lines = pages_table(costs, 8).splitlines()
    assert [line.rpartition(" ")[2] for line in lines[2:4]] == ["pass", "FAIL"]
    assert drawings_table(drawn).splitlines()[-1].endswith("FAIL")
    assert missed(costs, drawn) == ["home: 40 queries, not 12", "heat map of 60 x 400 cells: 301 ms, not 300"]


def test_options_say_what_is_left_out() -> None:
    assert options(["--no-pictures"]).no_pictures is True
    with pytest.raises(SystemExit):
        options(["--no-such"])
