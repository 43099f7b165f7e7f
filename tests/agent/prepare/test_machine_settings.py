"""Settings of the machine: set, verified, put back; refused where they are needed and cannot be had."""

import errno
import os
import threading
from pathlib import Path

import pytest
from tidemark_agent.errors import StoppedError
from tidemark_agent.prepare import SETTING_NAMES, CannotMeasureError, PrepareConfig, Setting

from tests.agent.prepare.tree import (
    CGROUP,
    CPU,
    KERNEL,
    POLICIES,
    THP,
    KernelTree,
    TreePrograms,
    differences,
    prepared,
    server,
)
from tests.house.sources import ROOT


@pytest.fixture
def tree(tmp_path: Path) -> KernelTree:
    return server(tmp_path / "root")


def by_name(settings: tuple[Setting, ...]) -> dict[str, Setting]:
    return {setting.name: setting for setting in settings}


def test_everything_is_set_as_wanted(tree: KernelTree, tmp_path: Path) -> None:
    settings = by_name(prepared(tree, tmp_path).apply())
    assert {name for name, setting in settings.items() if setting.outcome == "set"} == {
        "services", "energy-preference", "governor", "boost", "thp", "numa-balancing", "ksm", "swap", "nmi-watchdog",
        "soft-watchdog", "workqueue-cpus", "irq-default-affinity", "irq-affinity", "cgroup-cpuset", "other-cgroups",
    }  # fmt: skip
    assert {tree.text(f"{policy}/scaling_governor") for policy in POLICIES} == {"performance"}
    assert tree.text(f"{CPU}/cpufreq/boost") == "0"
    assert tree.text(f"{THP}/enabled") == "always [madvise] never"
    assert tree.text("proc/swaps").count("\n") == 0
    assert tree.text("units/cron.service") == "inactive"
    assert tree.text("proc/irq/41/smp_affinity_list") == "0,4"
    assert tree.text("sys/devices/virtual/workqueue/cpumask") == "11"


def test_everything_is_put_back_as_it_was(tree: KernelTree, tmp_path: Path) -> None:
    before = tree.snapshot()
    preparation = prepared(tree, tmp_path)
    preparation.apply()
    assert preparation.restore() == ()
    assert differences(before, tree.snapshot()) == {}
    assert not (tmp_path / "settings.jsonl").exists()


def test_settings_say_how_it_was_and_how_it_is(tree: KernelTree, tmp_path: Path) -> None:
    settings = by_name(prepared(tree, tmp_path).apply())
    assert settings["governor"].as_json() == {
        "name": "governor", "wanted": "performance", "before": "schedutil", "after": "performance", "outcome": "set",
        "note": "",
    }  # fmt: skip
    assert settings["aslr"].outcome == "kept"
    assert (settings["nohz_full"].after, settings["nohz_full"].outcome) == ("1-7", "kept")
    assert (settings["kaslr"].after, settings["housekeeping"].after) == ("on", "0,4")


def test_what_the_hardware_lacks_is_unavailable_and_no_refusal(tree: KernelTree, tmp_path: Path) -> None:
    tree.remove(f"{CPU}/cpufreq/boost", f"{KERNEL}/numa_balancing", "sys/kernel/mm/ksm/run")
    for policy in POLICIES:
        tree.remove(f"{policy}/scaling_governor", f"{policy}/energy_performance_preference", f"{policy}/affected_cpus")
    settings = by_name(prepared(tree, tmp_path).apply())
    lacking = {name for name, setting in settings.items() if setting.outcome == "unavailable"}
    assert lacking == {"boost", "numa-balancing", "ksm", "governor", "energy-preference"}


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EPERM, "not permitted by the kernel (EPERM)"),
        (errno.EACCES, "the agent must be root (EACCES)"),
        (errno.EROFS, "read-only, as in a container (EROFS)"),
        (errno.EINVAL, "does not take this value (EINVAL)"),
        (errno.EBUSY, "busy (EBUSY)"),
    ],
)
def test_needed_setting_that_cannot_be_had_is_a_refusal_with_its_reason(
    tree: KernelTree, tmp_path: Path, number: int, words: str
) -> None:
    before = tree.snapshot()
    tree.refuses[f"{CPU}/cpufreq/boost"] = number
    with pytest.raises(CannotMeasureError) as refusal:
        prepared(tree, tmp_path).apply()
    assert str(refusal.value).startswith("boost cannot be set to off: /sys/devices/system/cpu/cpufreq/boost")
    assert words in str(refusal.value)
    assert differences(before, tree.snapshot()) == {}


def test_operator_may_tolerate_a_setting_that_cannot_be_had(tree: KernelTree, tmp_path: Path) -> None:
    tree.refuses[f"{CPU}/cpufreq/boost"] = errno.EPERM
    boost = by_name(prepared(tree, tmp_path, PrepareConfig(tolerate=frozenset({"boost"}))).apply())["boost"]
    assert (boost.outcome, boost.before, boost.after) == ("tolerated", "1", "1")
    assert "EPERM" in boost.note


def test_value_that_does_not_stay_is_a_refusal(tree: KernelTree, tmp_path: Path) -> None:
    """Some firmware takes the write and changes nothing."""
    target = f"{CPU}/cpufreq/boost"
    tree.watch = lambda event: tree.put(target, "1") if event == f"wrote {target}" else None
    with pytest.raises(CannotMeasureError, match=r"boost is '1' after it was set to '0'"):
        prepared(tree, tmp_path).apply()


def test_interrupts_that_cannot_move_are_named_and_tolerated(tree: KernelTree, tmp_path: Path) -> None:
    tree.refuses["proc/irq/42/smp_affinity_list"] = errno.EIO
    moved = by_name(prepared(tree, tmp_path).apply())["irq-affinity"]
    assert moved.outcome == "tolerated"
    assert "/proc/irq/42/smp_affinity_list does not take '0,4'" in moved.note
    assert tree.text("proc/irq/41/smp_affinity_list") == "0,4"


def test_policies_without_a_cpu_that_is_online_are_left_alone(tree: KernelTree, tmp_path: Path) -> None:
    tree.put(f"{CPU}/cpufreq/policy4/affected_cpus", "")
    tree.refuses[f"{CPU}/cpufreq/policy4/scaling_governor"] = errno.EBUSY
    assert by_name(prepared(tree, tmp_path).apply())["governor"].outcome == "set"
    assert tree.text(f"{CPU}/cpufreq/policy4/scaling_governor") == "schedutil"


def test_energy_preference_is_put_back_under_the_old_governor(tree: KernelTree, tmp_path: Path) -> None:
    """Under `performance` the driver takes no other preference."""
    preparation = prepared(tree, tmp_path)
    preparation.apply()
    tree.written.clear()
    preparation.restore()
    names = [target.rpartition("/")[2] for target, _ in tree.written]
    assert names.index("scaling_governor") < names.index("energy_performance_preference")


def test_preference_that_the_driver_chose_with_the_governor_is_put_back_as_well(
    tree: KernelTree, tmp_path: Path
) -> None:
    policy = POLICIES[0]

    def choose(event: str) -> None:
        if event == f"wrote {policy}/scaling_governor" and tree.text(f"{policy}/scaling_governor") == "schedutil":
            tree.put(f"{policy}/energy_performance_preference", "default")

    tree.watch = choose
    preparation = prepared(tree, tmp_path)
    preparation.apply()
    assert preparation.restore() == ()
    assert tree.text(f"{policy}/energy_performance_preference") == "balance_performance"


def test_switches_of_policies_come_back_after_that_of_the_machine(tree: KernelTree, tmp_path: Path) -> None:
    """One policy was off by its owner's choice; the machine's switch moves both."""
    switches = [f"{policy}/boost" for policy in POLICIES]
    for switch, text in zip(switches, ("0", "1"), strict=True):
        tree.put(switch, text)

    def spread(event: str) -> None:
        if event == f"wrote {CPU}/cpufreq/boost":
            for switch in switches:
                tree.put(switch, tree.text(f"{CPU}/cpufreq/boost"))

    tree.watch = spread
    before = tree.snapshot()
    preparation = prepared(tree, tmp_path)
    assert by_name(preparation.apply())["boost"].outcome == "set"
    assert preparation.restore() == ()
    assert differences(before, tree.snapshot()) == {}


def test_speed_of_the_userspace_governor_comes_back_after_it(tree: KernelTree, tmp_path: Path) -> None:
    policy = f"{CPU}/cpufreq/policy0"
    tree.put(f"{policy}/scaling_governor", "userspace")
    tree.put(f"{policy}/scaling_setspeed", "2400000")
    tree.watch = lambda event: (
        tree.put(f"{policy}/scaling_setspeed", "<unsupported>") if event == f"wrote {policy}/scaling_governor" else None
    )
    preparation = prepared(tree, tmp_path)
    preparation.apply()
    assert preparation.restore() == ()
    assert tree.text(f"{policy}/scaling_setspeed") == "2400000"


def test_other_groups_are_narrowed_and_the_agents_way_is_not(tree: KernelTree, tmp_path: Path) -> None:
    prepared(tree, tmp_path).apply()
    narrowed = {str(path.parent.relative_to(tree.root / CGROUP)): path.read_text() for path in _cpusets(tree)}
    assert narrowed == {
        "user.slice": "0,4\n",
        "system.slice": "\n",
        "system.slice/cron.service": "0,4\n",
        "system.slice/tidemark-agent.service": "\n",
    }


def test_swap_without_a_priority_of_its_own_comes_back_without(tree: KernelTree, tmp_path: Path) -> None:
    tree.put("proc/swaps", "Filename Type Size Used Priority\n/swap\\040file file 1000 0 -2\n/dev/sdb1 partition 9 0 7")
    preparation = prepared(tree, tmp_path)
    assert by_name(preparation.apply())["swap"].before == "/swap file=auto /dev/sdb1=7"
    assert preparation.restore() == ()
    lines = [line.split("\t") for line in tree.text("proc/swaps").splitlines()[1:]]
    assert sorted((line[0], line[-1]) for line in lines) == [("/dev/sdb1", "7"), ("/swap\\040file", "-2")]


def test_swap_that_does_not_fit_into_memory_is_a_refusal(tree: KernelTree, tmp_path: Path) -> None:
    programs = TreePrograms(tree)
    programs.refuses.add("/dev/sda2")
    with pytest.raises(CannotMeasureError, match="swap cannot be set to off: swapoff /dev/sda2: not enough memory"):
        prepared(tree, tmp_path, programs=programs).apply()


def test_small_machine_pins_nothing_and_says_so(tree: KernelTree, tmp_path: Path) -> None:
    tree.put(f"{CPU}/online", "0-2")
    preparation = prepared(tree, tmp_path)
    settings = by_name(preparation.apply())
    assert settings["housekeeping"].after == "none"
    assert "nothing is pinned" in settings["housekeeping"].note
    assert not {"irq-affinity", "workqueue-cpus", "other-cgroups"} & set(settings)
    assert preparation.measured_cpus() == "0-2"


def test_operator_chooses_the_housekeeping_cpus(tree: KernelTree, tmp_path: Path) -> None:
    preparation = prepared(tree, tmp_path, PrepareConfig(housekeeping_cpus="2-3"))
    preparation.apply()
    assert preparation.measured_cpus() == "0-1,4-7"
    assert tree.text("proc/irq/default_smp_affinity") == "c"


@pytest.mark.parametrize(("cpus", "words"), [("0-7", "leaves no CPU"), ("9", "not online: 9")])
def test_housekeeping_that_cannot_be_is_a_refusal(tree: KernelTree, tmp_path: Path, cpus: str, words: str) -> None:
    with pytest.raises(CannotMeasureError, match=words):
        prepared(tree, tmp_path, PrepareConfig(housekeeping_cpus=cpus)).apply()


def test_second_agent_is_refused_while_the_first_has_the_machine(
    tree: KernelTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_agent.prepare.preparation._LOCK_SECONDS", 0.0)
    first = prepared(tree, tmp_path)
    first.apply()
    with pytest.raises(CannotMeasureError, match="another agent has prepared this machine"):
        prepared(tree, tmp_path).apply()
    assert tree.text(f"{CPU}/cpufreq/boost") == "0"
    assert first.restore() == ()


def test_agent_that_is_told_to_stop_puts_back_what_it_has_set(tree: KernelTree, tmp_path: Path) -> None:
    before = tree.snapshot()
    preparation = prepared(tree, tmp_path)
    stop: threading.Event = preparation._stop
    tree.watch = lambda event: stop.set() if "boost" in event else None
    with pytest.raises(StoppedError):
        preparation.apply()
    assert differences(before, tree.snapshot()) == {}


def test_full_disk_is_a_refusal_before_anything_is_changed(
    tree: KernelTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree.snapshot()

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tidemark_agent.prepare.journal.os.fsync", full)
    with pytest.raises(CannotMeasureError, match=r"settings cannot be noted.*No space left"):
        prepared(tree, tmp_path).apply()
    assert differences(before, tree.snapshot()) == {}


@pytest.mark.parametrize("lines", [1, 2, 3, 8, 1000])
def test_disk_that_gets_full_meanwhile_keeps_nothing_from_being_put_back(
    tree: KernelTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    before = tree.snapshot()
    left = iter(range(lines))
    write = os.write

    def write_while_there_is_room(where: int, data: bytes) -> int:
        if data.startswith(b"{") and next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(where, data)

    monkeypatch.setattr("tidemark_agent.prepare.journal.os.write", write_while_there_is_room)
    preparation = prepared(tree, tmp_path)
    if lines < 1000:
        with pytest.raises(CannotMeasureError, match="No space left"):
            preparation.apply()
    else:
        preparation.apply()
        left = iter(())
        assert preparation.restore() == ()
    assert differences(before, tree.snapshot()) == {}
    assert not (tmp_path / "settings.jsonl").exists()


@pytest.mark.parametrize(
    "wrong", [{"housekeeping_cpus": "0-x"}, {"quiet_services": ("--now",)}, {"tolerate": frozenset({"bosst"})}]
)
def test_configuration_that_makes_no_sense_is_said_at_once(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"list of CPUs|systemd unit|no setting is called bosst"):
        PrepareConfig(**wrong)  # type: ignore[arg-type]


def test_every_setting_is_described_to_operators_and_may_be_tolerated(tree: KernelTree, tmp_path: Path) -> None:
    text = (ROOT / "docs/operations/prepare.md").read_text(encoding="utf-8")
    assert {name for name in SETTING_NAMES if f"`{name}`" not in text} == set()
    asked = {setting.name for setting in prepared(tree, tmp_path).apply() if setting.wanted}
    assert asked <= SETTING_NAMES


def _cpusets(tree: KernelTree) -> list[Path]:
    return sorted((tree.root / CGROUP).rglob("cpuset.cpus"))
