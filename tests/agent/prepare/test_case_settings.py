"""What a case wants: had and verified for its time, put back after it, refused if it cannot be."""

import errno
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.benchmarks.bundle import benchmark_names, find_benchmark
from tidemark_agent.prepare import CannotMeasureError, PrepareConfig
from tidemark_agent.prepare.wishes import case_wishes, drop_caches_level

from tests.agent.prepare.tree import CPU, KERNEL, NODE, POOL, THP, KernelTree, differences, prepared, server


@pytest.fixture
def tree(tmp_path: Path) -> KernelTree:
    return server(tmp_path / "root")


def pools(tree: KernelTree) -> tuple[int, ...]:
    nodes = (f"{NODE}/node{node}/hugepages/hugepages-2048kB/nr_hugepages" for node in (0, 1))
    return tuple(int(tree.text(target)) for target in (f"{POOL}/nr_hugepages", *nodes))


def test_case_has_its_settings_and_leaves_none_behind(tree: KernelTree, tmp_path: Path) -> None:
    preparation = prepared(tree, tmp_path)
    preparation.apply()
    before = tree.snapshot()
    wants = {"aslr": "off", "thp": "never", "thp_sizes": {"64": "always"}, "huge_pages": {"2048": 64}}
    with preparation.case(wants) as settings:
        assert [(setting.name, setting.after, setting.outcome) for setting in settings] == [
            ("aslr", "0", "set"),
            ("thp", "never", "set"),
            ("thp-sizes", "always", "set"),
            ("huge-pages", "64", "set"),
        ]
        assert tree.text(f"{KERNEL}/randomize_va_space") == "0"
        assert pools(tree) == (64, 32, 32)
    assert preparation.verify() == ()
    assert differences(before, tree.snapshot()) == {}


def test_settings_of_a_case_go_back_when_it_fails(tree: KernelTree, tmp_path: Path) -> None:
    preparation = prepared(tree, tmp_path)
    preparation.apply()
    before = tree.snapshot()
    with pytest.raises(ZeroDivisionError), preparation.case({"thp": "never"}):
        raise ZeroDivisionError
    assert differences(before, tree.snapshot()) == {}


def test_huge_pages_come_node_by_node_where_the_case_says_so(tree: KernelTree, tmp_path: Path) -> None:
    with prepared(tree, tmp_path).case({"huge_pages": {"2048": {"0": 3, "1": 8}}}) as (setting, *_):
        assert pools(tree) == (11, 3, 8)
        assert (setting.wanted, setting.outcome) == ("node0=3 node1=8 of 2048 kB", "set")
    assert pools(tree) == (0, 0, 0)


def test_pools_of_single_nodes_come_back_after_a_change_of_the_whole(tree: KernelTree, tmp_path: Path) -> None:
    tree.write(f"{NODE}/node1/hugepages/hugepages-2048kB/nr_hugepages", "5")
    preparation = prepared(tree, tmp_path)
    for count in (64, 0):
        with preparation.case({"huge_pages": {"2048": count}}):
            assert pools(tree)[0] == count
        assert pools(tree) == (5, 0, 5)


def test_pages_that_others_use_are_not_counted(tree: KernelTree, tmp_path: Path) -> None:
    tree.write(f"{NODE}/node0/hugepages/hugepages-2048kB/nr_hugepages", "6")
    tree.put(f"{POOL}/free_hugepages", "2")
    with prepared(tree, tmp_path).case({"huge_pages": {"2048": 10}}):
        assert pools(tree)[0] == 14


def test_pool_that_gets_too_few_pages_is_a_refusal_and_given_back(tree: KernelTree, tmp_path: Path) -> None:
    tree.most_pages = 40
    with (
        pytest.raises(CannotMeasureError, match=r"huge-pages .* 64 of 2048 kB: .*nr_hugepages is '40' after"),
        prepared(tree, tmp_path).case({"huge_pages": {"2048": 64}}),
    ):
        pytest.fail("the case must not begin")
    assert pools(tree) == (0, 0, 0)
    # Memory was compacted before the kernel's word was taken for final.
    assert ("proc/sys/vm/compact_memory", "1") in tree.written


@pytest.mark.parametrize(
    ("wants", "words"),
    [
        ({"huge_pages": {"1048576": 1}}, "there are none of 1048576 kB in this kernel"),
        ({"huge_pages": {"2048": {"7": 1}}}, "there are none of 2048 kB on node 7"),
        ({"huge_pages": {"2048": -1}}, "wants -1 huge pages"),
        ({"huge_pages": {"../../x": 1}}, "huge pages of '../../x' kB"),
        ({"huge_pages": {"2048": {"../0": 1}}}, "on nodes"),
        ({"huge_pages": 64}, "a table of sizes was expected"),
        ({"thp": "sometimes"}, "always, madvise, never were possible"),
        ({"thp_sizes": {"128": "always"}}, "no folios of 128 kB"),
        ({"aslr": "maybe"}, "on, off were possible"),
        ({"drop_caches": 9}, "1, 2, 3 or true were possible"),
        ({"kaslr": "off"}, "the kernel's command line says otherwise: nokaslr is missing there"),
        ({"turbo": "off"}, "does not know: turbo"),
    ],
)
def test_wish_that_cannot_be_had_is_a_refusal_naming_it(
    tree: KernelTree, tmp_path: Path, wants: dict[str, Any], words: str
) -> None:
    preparation = prepared(tree, tmp_path)
    before = tree.snapshot()
    with pytest.raises(CannotMeasureError, match=words), preparation.case(wants):
        pytest.fail("the case must not begin")
    assert differences(before, tree.snapshot()) == {}


def test_wish_of_kaslr_is_compared_with_the_command_line(tree: KernelTree, tmp_path: Path) -> None:
    preparation = prepared(tree, tmp_path)
    with preparation.case({"kaslr": "on"}):
        pass
    tree.put("proc/cmdline", "root=/dev/sda1 nokaslr")
    with pytest.raises(CannotMeasureError, match="nokaslr stands there"), preparation.case({"kaslr": "on"}):
        pytest.fail("the case must not begin")


def test_absence_is_as_good_as_off_and_not_as_on(tree: KernelTree, tmp_path: Path) -> None:
    tree.remove(f"{KERNEL}/numa_balancing", f"{THP}/enabled")
    preparation = prepared(tree, tmp_path)
    with preparation.case({"numa_balancing": "off", "thp": "never"}) as settings:
        assert [setting.outcome for setting in settings] == ["unavailable", "unavailable"]
    for wants in ({"numa_balancing": "on"}, {"thp": "always"}):
        with pytest.raises(CannotMeasureError, match="no such thing"), preparation.case(wants):
            pytest.fail("the case must not begin")


def test_caches_are_dropped_as_the_case_says(tree: KernelTree, tmp_path: Path) -> None:
    with prepared(tree, tmp_path).case({"drop_caches": 1}) as settings:
        assert [(setting.name, setting.wanted) for setting in settings] == [("drop-caches", "1")]
    assert tree.text("proc/sys/vm/drop_caches") == "1"


def test_benchmark_that_changes_a_setting_is_found_out_and_the_next_case_has_it_again(
    tree: KernelTree, tmp_path: Path
) -> None:
    before = tree.snapshot()
    preparation = prepared(tree, tmp_path)
    preparation.apply()
    governor = f"{CPU}/cpufreq/policy4/scaling_governor"
    with preparation.case({"thp": "never"}):
        tree.put(governor, "powersave")
        tree.write(f"{THP}/enabled", "always")
        tree.put(f"{KERNEL}/randomize_va_space", "0")
    changes = preparation.verify()
    assert sorted(change.partition(":")[0] for change in changes) == ["aslr", "governor", "thp"]
    assert any("was set to 'performance' and is 'powersave' now" in change for change in changes)
    assert tree.text(governor) == "performance"
    assert preparation.verify() == ()
    assert preparation.restore() == ()
    assert differences(before, tree.snapshot()) == {}


def test_case_may_override_the_machine_without_being_taken_for_a_culprit(tree: KernelTree, tmp_path: Path) -> None:
    preparation = prepared(tree, tmp_path)
    preparation.apply()
    with preparation.case({"numa_balancing": "on", "aslr": "off"}):
        assert preparation.verify() == ()
    assert preparation.verify() == ()


def test_what_only_an_earlier_case_wanted_is_not_looked_at_any_more(tree: KernelTree, tmp_path: Path) -> None:
    preparation = prepared(tree, tmp_path)
    preparation.apply()
    with preparation.case({"thp_sizes": {"64": "never"}}) as settings:
        assert settings[0].outcome == "kept"
    tree.write(f"{THP}/hugepages-64kB/enabled", "always")
    assert preparation.verify() == ()


def test_setting_that_is_lost_for_good_ends_the_measuring(tree: KernelTree, tmp_path: Path) -> None:
    preparation = prepared(tree, tmp_path)
    preparation.apply()
    tree.put(f"{CPU}/cpufreq/boost", "1")
    tree.refuses[f"{CPU}/cpufreq/boost"] = errno.EPERM
    with pytest.raises(CannotMeasureError, match=r"boost: .* cannot be set again"):
        preparation.verify()


def test_change_of_what_nobody_needs_is_no_reason(tree: KernelTree, tmp_path: Path) -> None:
    """An interrupt that was moved back by its driver spoils no case."""
    preparation = prepared(tree, tmp_path, PrepareConfig(tolerate=frozenset({"boost"})))
    preparation.apply()
    tree.put("proc/irq/41/smp_affinity_list", "0-7")
    tree.put(f"{CPU}/cpufreq/boost", "1")
    assert preparation.verify() == ()
    assert tree.text("proc/irq/41/smp_affinity_list") == "0,4"


@pytest.mark.parametrize("name", benchmark_names())
def test_every_setting_that_a_benchmark_asks_for_can_be_made(tree: KernelTree, name: str) -> None:
    benchmark = find_benchmark(name)
    gigantic = POOL.replace("2048", "1048576")
    tree.put(f"{gigantic}/nr_hugepages", "0")
    tree.put(f"{gigantic}/free_hugepages", "0")
    for case in benchmark.cases.values():
        wants = case.settings
        asked = len(set(wants) - {"sync", "drop_caches", "kaslr"})
        assert len(case_wishes(wants, tree)) >= asked
        assert drop_caches_level(wants) in {0, 1, 2, 3}
