"""Files of a kernel that say nonsense, cannot be read, or go away meanwhile."""

from pathlib import Path

import pytest
from tidemark_agent.prepare import CannotMeasureError, PrepareConfig, Setting

from tests.agent.prepare.tree import CPU, KernelTree, differences, prepared, server


@pytest.fixture
def tree(tmp_path: Path) -> KernelTree:
    return server(tmp_path / "root")


def unreadable(tree: KernelTree, target: str) -> None:
    """Reading a directory is an error of its own kind."""
    tree.remove(target)
    (tree.root / target).mkdir()


def setting(settings: tuple[Setting, ...], name: str) -> Setting:
    return next(setting for setting in settings if setting.name == name)


def test_interrupt_with_a_nonsense_list_is_named_and_the_others_move(tree: KernelTree, tmp_path: Path) -> None:
    tree.put("proc/irq/42/smp_affinity_list", "all of them")
    moved = setting(prepared(tree, tmp_path).apply(), "irq-affinity")
    assert moved.outcome == "tolerated"
    assert "irq/42/smp_affinity_list: 'all of them' is no list of CPUs" in moved.note
    assert tree.text("proc/irq/41/smp_affinity_list") == "0,4"


def test_mask_that_is_none_is_left_alone(tree: KernelTree, tmp_path: Path) -> None:
    tree.put("sys/devices/virtual/workqueue/cpumask", "x")
    assert setting(prepared(tree, tmp_path).apply(), "workqueue-cpus").outcome == "tolerated"
    assert tree.text("sys/devices/virtual/workqueue/cpumask") == "x"


@pytest.mark.parametrize("target", [f"{CPU}/cpufreq/boost", "proc/swaps", f"{CPU}/online"])
def test_needed_file_that_cannot_be_read_is_a_refusal(tree: KernelTree, tmp_path: Path, target: str) -> None:
    unreadable(tree, target)
    before = tree.snapshot()
    with pytest.raises(CannotMeasureError, match=rf"{target} cannot be read: .*EISDIR"):
        prepared(tree, tmp_path).apply()
    assert differences(before, tree.snapshot()) == {}


def test_machine_that_does_not_say_which_cpus_it_has_is_refused(tree: KernelTree, tmp_path: Path) -> None:
    tree.put(f"{CPU}/online", "0-99999999")
    with pytest.raises(CannotMeasureError, match="no list of CPUs"):
        prepared(tree, tmp_path).measured_cpus()


def test_kernel_for_one_cpu_has_one(tree: KernelTree, tmp_path: Path) -> None:
    tree.remove(f"{CPU}/online")
    assert prepared(tree, tmp_path).measured_cpus() == "0"


def test_core_with_nonsense_siblings_keeps_the_house_alone(tree: KernelTree, tmp_path: Path) -> None:
    tree.put(f"{CPU}/cpu0/topology/thread_siblings_list", "-")
    assert prepared(tree, tmp_path).measured_cpus() == "1-7"


def test_siblings_that_are_all_cpus_leave_none_to_keep_the_house(tree: KernelTree, tmp_path: Path) -> None:
    tree.put(f"{CPU}/cpu0/topology/thread_siblings_list", "0-7")
    assert prepared(tree, tmp_path).measured_cpus() == "0-7"


def test_setting_that_goes_away_is_lost_for_good(tree: KernelTree, tmp_path: Path) -> None:
    preparation = prepared(tree, tmp_path)
    preparation.apply()
    tree.remove(f"{CPU}/cpufreq/boost")
    with pytest.raises(CannotMeasureError, match=r"boost: .* is 'missing' now; it cannot be set again"):
        preparation.verify()
    # What is not there any more need not be put back.
    assert preparation.restore() == ()


def test_value_that_cannot_be_read_back_is_not_believed(tree: KernelTree, tmp_path: Path) -> None:
    target = f"{CPU}/cpufreq/boost"
    tree.watch = lambda event: unreadable(tree, target) if event == f"wrote {target}" else None
    with pytest.raises(CannotMeasureError, match=r"boost cannot be read after it was set to '0'"):
        prepared(tree, tmp_path, PrepareConfig()).apply()


def test_group_of_a_name_space_of_its_own_is_taken_for_the_root(tree: KernelTree, tmp_path: Path) -> None:
    tree.put("proc/self/cgroup", "0::/../../outside")
    assert setting(prepared(tree, tmp_path).apply(), "other-cgroups").outcome == "set"
    assert tree.text("sys/fs/cgroup/user.slice/cpuset.cpus") == "0,4"
    assert tree.text("sys/fs/cgroup/system.slice/cpuset.cpus") == "0,4"
