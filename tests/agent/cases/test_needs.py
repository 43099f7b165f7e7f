"""What a case needs of the machine, looked for in written trees."""

import os
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.benchmarks.description import check_needs, count_of, disk_problem, parse_cpus, unmet
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.probe import CoreKind

CORE = CoreKind("all", "0-3")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two nodes with memory, one of them without CPUs, a third without memory; huge pages of 2 MiB; 1 GiB available."""
    for node, memory, cpus in ((0, 8_000_000, "0-3"), (1, 4_000_000, ""), (2, 0, "4-7")):
        place = tmp_path / f"sys/devices/system/node/node{node}"
        place.mkdir(parents=True)
        (place / "meminfo").write_text(f"\nNode {node} MemTotal:  {memory} kB\nNode {node} MemFree:  1 kB\n")
        (place / "cpulist").write_text(f"{cpus}\n")
    (tmp_path / "sys/kernel/mm/hugepages/hugepages-2048kB").mkdir(parents=True)
    (tmp_path / "sys/kernel/mm/transparent_hugepage/hugepages-64kB").mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 2097152 kB\nMemAvailable:    1048576 kB\n")
    return tmp_path


@pytest.mark.parametrize(
    ("need", "problem"),
    [
        ({"nodes": 2}, ""),
        ({"nodes": 3}, "needs 3 NUMA nodes with memory, there are 2"),
        ({"node_ids": ["0", "1"]}, ""),
        ({"node_ids": ["0", "2"]}, "needs memory on NUMA node 2"),
        ({"node_ids": ["7"]}, "needs memory on NUMA node 7"),
        ({"cpuless_node": True}, ""),
        ({"memory_mb": 1024}, ""),
        ({"memory_mb": 1025}, "needs 1025 MiB of memory, 1024 MiB are available"),
        ({"huge_pages_kb": [2048]}, ""),
        ({"huge_pages_kb": [2048, 1048576]}, "needs huge pages of 1048576 kB, which this kernel does not have"),
        ({"thp_kb": [64]}, ""),
        ({"thp_kb": [64, 128]}, "needs folios of 128 kB for programs, which this kernel does not have"),
        ({"cpus": 4}, ""),
        ({"cpus": 5}, "needs 5 CPUs to measure on, there are 4"),
        ({"arch": ["s390x", "alpha"]}, f"needs s390x or alpha, this machine is {os.uname().machine}"),
    ],
)
def test_need_is_looked_for_and_its_lack_is_said(root: Path, need: dict[str, Any], problem: str) -> None:
    assert unmet(check_needs(need), CORE, root) == problem


def test_machine_whose_nodes_all_have_cpus_has_no_node_without(root: Path) -> None:
    (root / "sys/devices/system/node/node1/cpulist").write_text("8\n")
    assert unmet({"cpuless_node": True}, CORE, root) == "needs a NUMA node without CPUs"


def test_root_is_missing_for_other_users(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert unmet({"root": True}, CORE, root) == "needs to run as root"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert unmet({"root": True}, CORE, root) == ""


def test_empty_tree_lacks_everything_and_raises_nothing(tmp_path: Path) -> None:
    for need in ({"nodes": 1}, {"node_ids": ["0"]}, {"memory_mb": 1}, {"huge_pages_kb": [2048]}):
        assert unmet(need, CORE, tmp_path).startswith("needs ")


def test_disk_without_room_is_said(tmp_path: Path) -> None:
    assert disk_problem(1, tmp_path) == ""
    assert disk_problem(10**9, tmp_path).startswith("needs 1000000000 MiB of disk space, ")


@pytest.mark.parametrize("needs", [{"luck": True}, {"nodes": "2"}, {"nodes": True}, {"arch": "x86_64"}, {"root": 1}])
def test_need_that_nobody_knows_or_of_the_wrong_kind_is_refused(needs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="need"):
        check_needs(needs)


@pytest.mark.parametrize(
    ("word", "cpus", "count"), [("1", 8, 1), ("half", 8, 4), ("half", 1, 1), ("half", 5, 2), ("all", 8, 8), ("3", 8, 3)]
)
def test_words_for_numbers_of_cpus(word: str, cpus: int, count: int) -> None:
    assert count_of(word, cpus) == count


@pytest.mark.parametrize("word", ["0", "9", "most", "-1", ""])
def test_more_cpus_than_there_are_cannot_be_had(word: str) -> None:
    with pytest.raises(InfrastructureError, match="8 CPUs"):
        count_of(word, 8)


def test_lists_of_cpus_are_read() -> None:
    assert parse_cpus("0-2,8, 5\n") == (0, 1, 2, 5, 8)


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "3-1", "99999999999"])
def test_garbage_is_no_list_of_cpus(text: str) -> None:
    with pytest.raises(InfrastructureError, match="no list of CPUs"):
        parse_cpus(text)
