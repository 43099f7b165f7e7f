from typing import Any

import numpy as np
import pytest

from server.stats.rows import predict

Row = dict[str, Any]


def history(name: str, seed: int, at: int, **known: Any) -> Row:
    rng = np.random.default_rng(seed)
    logs = 0.01 * rng.standard_normal(100) + 0.1 * (np.arange(100) >= at)
    return {"id": name, "values": (100 * np.exp(logs)).tolist(), **known}


def fleet(**more: Any) -> list[Row]:
    return [
        history(f"{machine}/{benchmark}", 10 * i + j, 60, world="w", machine=machine, benchmark=benchmark, **more)
        for i, machine in enumerate(["zen4", "icelake"])
        for j, benchmark in enumerate(["kbuild", "getpid"])
    ]


def test_each_row_gets_its_change_points_and_the_time_they_took() -> None:
    found = list(predict([history("a", 1, 40), history("b", 2, 70)]))
    assert [(row["id"], row["cps"]) for row in found] == [("a", [40]), ("b", [70])]
    assert all(row["time_s"] > 0 and "online" not in row for row in found)


def test_rows_of_one_fleet_are_judged_together_and_all_answered() -> None:
    found = {row["id"]: row["cps"] for row in predict(fleet())}
    assert found == {row["id"]: [60] for row in fleet()}


def test_truth_in_a_row_is_not_read() -> None:
    plain = [row["cps"] for row in predict(fleet())]
    spoilt = fleet(truth=[{"index": 5}], annotations={"1": [9]}, null=True, machine_steps=[{"index": 60}])
    assert [row["cps"] for row in predict(spoilt)] == plain


def test_looks_see_the_first_points_only() -> None:
    row = history("a", 3, 60)
    (found,) = predict([row], [{"id": "a", "prefixes": [50, 62, 70, 100]}])
    assert found["online"] == {"50": [], "62": [], "70": [60], "100": [60]}


def test_what_other_rows_of_a_fleet_show_later_does_not_change_a_look() -> None:
    rows, changed = fleet(), fleet()
    for row in changed[1:]:
        row["values"][70:] = [value * 3 for value in row["values"][70:]]
    task = [{"id": rows[0]["id"], "prefixes": [66, 70]}]
    assert next(predict(rows, task))["online"] == next(predict(changed, task))["online"]


def test_commits_are_the_places_in_history() -> None:
    commits = [5 * i for i in range(100)]
    (found,) = predict([history("a", 4, 30, commits=commits)], [{"id": "a", "prefixes": [90]}])
    assert (found["cps"], found["online"]) == ([30], {"90": [30]})


def test_a_task_of_no_row_is_left_out() -> None:
    (found,) = predict([history("a", 5, 30)], [{"id": "b", "prefixes": [20]}])
    assert "online" not in found


def test_a_prefix_longer_than_the_history_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"timeline a: there are 100 points, not 101"):
        list(predict([history("a", 6, 30)], [{"id": "a", "prefixes": [101]}]))


def test_unsorted_commits_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"timeline a: revisions are not strictly increasing"):
        list(predict([{"id": "a", "values": [1.0, 2.0], "commits": [2, 1]}]))


@pytest.mark.parametrize(
    "wrong",
    [{"values": [1.0, "fast"]}, {"values": [[1.0], [2.0]] * 2, "commits": "now"}, {"commits": [0, 10**30]}],
    ids=["text", "no list", "too large"],
)
def test_values_that_are_no_numbers_are_refused_by_name(wrong: Row) -> None:
    with pytest.raises(ValueError, match=r"row a: (values|commits): "):
        list(predict([{"id": "a", "values": [1.0, 2.0], **wrong}]))


def test_a_missing_value_is_left_out() -> None:
    row = history("a", 7, 60)
    row["values"][20] = None
    (found,) = predict([row])
    assert found["cps"] == [60]
