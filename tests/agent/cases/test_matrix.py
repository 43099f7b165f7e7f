"""One entry of a benchmark.toml that stands for many cases."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_agent.benchmarks.description import expand, fill

from scripts.build_agent import AGENTS
from server.results.benchmarks import expand as expand_on_the_server

NAMES = st.sampled_from(["size", "from", "to", "mode"])
TEXTS = st.text(alphabet="abc{}fromt-", min_size=1, max_size=6)


def test_matrix_is_multiplied_out_in_the_order_of_its_keys() -> None:
    entry = {"name": "copy-{size}-{from}", "title": "{size}", "matrix": {"size": ["4k", "2m"], "from": ["0", "1"]}}
    assert [case["name"] for case in expand(entry)] == ["copy-4k-0", "copy-4k-1", "copy-2m-0", "copy-2m-1"]
    assert all("matrix" not in case for case in expand(entry))


def test_entry_without_matrix_is_one_case() -> None:
    assert list(expand({"name": "copy", "title": "Copy"})) == [{"name": "copy", "title": "Copy"}]


def test_texts_are_filled_in_however_deep_and_places_of_the_command_are_left() -> None:
    value = {"needs": {"node_ids": ["{from}"], "memory_mb": 7}, "command": ["{program}", "{cpus:{from}}"]}
    assert fill(value, {"from": "half"}) == {
        "needs": {"node_ids": ["half"], "memory_mb": 7},
        "command": ["{program}", "{cpus:half}"],
    }


@pytest.mark.parametrize("matrix", [[], {"size": "4k"}, {"size": []}, {"size": [4]}, {"size": [["4k"]]}])
def test_matrix_that_is_no_table_of_lists_of_texts_is_refused(matrix: object) -> None:
    entry = {"name": "x", "title": "x", "matrix": matrix}
    for expander in (expand, expand_on_the_server):
        with pytest.raises(ValueError, match="matrix"):
            list(expander(entry))


@given(st.dictionaries(NAMES, st.lists(TEXTS, min_size=1, max_size=3), max_size=3), TEXTS, TEXTS)
def test_agent_and_server_make_the_same_cases(matrix: dict[str, list[str]], name: str, title: str) -> None:
    entry = {"name": name, "title": title, "runs": 3, "matrix": matrix}
    assert [(c["name"], c["title"], c["runs"]) for c in expand(entry)] == [
        (c["name"], c["title"], c["runs"]) for c in expand_on_the_server(entry)
    ]


def test_agent_and_server_make_the_same_cases_of_every_benchmark_here() -> None:
    for path in sorted((AGENTS / "benchmarks").glob("*/benchmark.toml")):
        for entry in tomllib.loads(path.read_text())["cases"]:
            ours = [(case["name"], case["title"]) for case in expand(entry)]
            assert ours == [(case["name"], case["title"]) for case in expand_on_the_server(entry)]
