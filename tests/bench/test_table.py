import math

from bench.table import BARS, Bar, bars_table, by_seed, figure, mark, table

AT_LEAST = Bar("score", "score", "0.5", low=0.8)
BETWEEN = Bar("rate", "rate", "", 0.035, 0.06, pooled=True)

MEAN_OF_1_AND_3 = (["mean", "of", "fresh", "2.000"], ["+-", "1.000"])


def test_columns_stand_under_each_other() -> None:
    lines = table(["what", "a", "long name"], [["x", "1", "2"], ["longer text", "100", "3"]]).splitlines()
    assert lines[0] == "what           a  long name"
    assert lines[2] == "x              1          2"
    assert lines[3] == "longer text  100          3"


def test_a_table_without_rows_is_its_head() -> None:
    assert table(["a", "b"], []).splitlines() == ["a  b", "-  -"]


def test_what_was_not_measured_is_a_dash() -> None:
    assert [figure(None, 2), figure(math.nan, 2), figure(0.125, 2), figure(3.0, 0)] == ["-", "-", "0.12", "3"]


def test_a_bar_holds_only_when_it_holds_on_every_set() -> None:
    assert mark(AT_LEAST, [0.9, 0.81]) == "pass"
    assert mark(AT_LEAST, [0.9, 0.79]) == "FAIL"
    assert mark(AT_LEAST, [0.9, None]) == "pass"
    assert mark(AT_LEAST, [None, math.nan]) == "not measured"


def test_a_pooled_rate_is_judged_on_the_largest_set() -> None:
    assert mark(BETWEEN, [0.07, 0.05]) == "pass"
    assert mark(BETWEEN, [0.05, 0.07]) == "FAIL"
    assert mark(BETWEEN, [0.05, None]) == "pass"


def test_a_bar_says_what_is_wanted() -> None:
    assert [AT_LEAST.wanted, BETWEEN.wanted, Bar("", "", "", high=15).wanted] == [">= 0.8", "0.035 to 0.06", "<= 15"]


def test_ours_and_the_peers_stand_beside_the_bar() -> None:
    text = bars_table([AT_LEAST], [("dev", {"score": 0.9}), ("fresh", {"score": 0.5})], [("other", {})])
    head, _, row = text.splitlines()
    assert head.split() == ["best", "known", "bar", "dev", "fresh", "other"]
    assert row.split() == ["score", "0.5", ">=", "0.8", "0.90", "0.50", "FAIL", "-"]


def test_every_set_has_a_row_and_fresh_ones_a_mean() -> None:
    found = {None: {"score": 9.0}, 1: {"score": 1.0}, 2: {"score": 3.0}}
    rows = [line.split() for line in by_seed("sets", ["score"], found).splitlines()[2:]]
    assert rows == [["dev", "9.000"], ["seed", "1", "1.000"], ["seed", "2", "3.000"], *MEAN_OF_1_AND_3]


def test_every_bar_has_a_figure_of_its_own() -> None:
    keys = [bar.key for bar in BARS]
    assert len(keys) == len(set(keys))
    assert all(bar.low < bar.high for bar in BARS)
