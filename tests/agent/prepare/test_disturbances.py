"""Why measuring now would be wrong, told from two looks at written files."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark_agent.prepare import disturbances

from tests.agent.prepare.activity import AGENT, Activity, resting


@pytest.fixture
def machine(tmp_path: Path) -> Activity:
    return resting(tmp_path)


def reasons(machine: Activity, meanwhile: Callable[[], object] = lambda: None) -> tuple[str, ...]:
    """What is found when `meanwhile` happens between the looks."""
    moments = iter((10.0, 11.0))
    return disturbances(machine.root, own=AGENT, pause=lambda _: meanwhile(), clock=lambda: next(moments))


def test_machine_at_rest_is_quiet(machine: Activity) -> None:
    assert reasons(machine, machine.second) == ()


def test_process_of_somebody_else_is_named(machine: Activity) -> None:
    machine.process(700, "stress (ng)", 10)

    def work() -> None:
        machine.second(busy=90)
        machine.process(700, "stress (ng)", 98)

    assert reasons(machine, work) == ("others use 90% of a CPU (load 0.25): stress (ng) (pid 700) 88%",)


def test_process_that_was_started_meanwhile_counts_with_all_it_used(machine: Activity) -> None:
    machine.process(700, "old", 4000, started=60)

    def work() -> None:
        machine.second(busy=40)
        machine.process(700, "new", 39, started=10_050)

    assert reasons(machine, work) == ("others use 40% of a CPU (load 0.25): new (pid 700) 39%",)


def test_work_of_the_agent_and_its_children_is_its_own(machine: Activity) -> None:
    def work() -> None:
        machine.second(busy=100)
        machine.process(AGENT, "python3", 130)
        machine.process(501, "folio (copy)", 168, parent=AGENT)

    assert reasons(machine, work) == ()


def test_work_without_a_process_is_seen_as_well(machine: Activity) -> None:
    """Interrupts, kernel threads too small to be named, processes that came and went."""
    assert reasons(machine, lambda: machine.second(busy=30)) == (
        "others use 30% of a CPU (load 0.25): no single process",
    )


def test_time_that_the_hypervisor_takes_is_a_disturbance(machine: Activity) -> None:
    assert reasons(machine, lambda: machine.second(steal=12)) == ("the hypervisor takes away 12% of a CPU",)


def test_tasks_that_wait_for_memory_or_disk_are_a_disturbance(machine: Activity) -> None:
    def stall() -> None:
        machine.second()
        machine.pressure("memory", 301_000)
        machine.pressure("cpu", 900_000)

    assert reasons(machine, stall) == ("tasks wait for memory 30% of the time",)


def test_throttling_is_seen_by_its_counters(machine: Activity) -> None:
    counters = [
        f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle/{name}_throttle_count"
        for cpu in (0, 1)
        for name in ("core", "package")
    ]
    for counter in counters:
        machine.put(counter, "41")
    assert reasons(machine, machine.second) == ()
    assert reasons(machine, lambda: machine.put(counters[2], "44")) == (
        "CPUs were throttled for heat 3 times in the last second",
    )


def test_sensor_near_its_limit_is_named(machine: Activity) -> None:
    sensor = "sys/class/hwmon/hwmon2"
    machine.put(f"{sensor}/name", "coretemp")
    machine.put(f"{sensor}/temp1_label", "Package id 0")
    machine.put(f"{sensor}/temp1_input", "60000")
    machine.put(f"{sensor}/temp1_crit", "100000")
    assert reasons(machine) == ()
    machine.put(f"{sensor}/temp1_input", "96000")
    assert reasons(machine) == ("coretemp Package id 0 is at 96 degrees, its limit is 100",)


def test_zone_near_its_critical_trip_is_named_and_nonsense_is_not(machine: Activity) -> None:
    for number, (degrees, trip) in enumerate((("91000", "95000"), ("91000", "-274000"), ("garbage", "1"))):
        zone = f"sys/class/thermal/thermal_zone{number}"
        machine.put(f"{zone}/type", f"cpu{number}-thermal")
        machine.put(f"{zone}/temp", degrees)
        machine.put(f"{zone}/trip_point_0_type", "critical")
        machine.put(f"{zone}/trip_point_0_temp", trip)
    assert reasons(machine) == ("cpu0-thermal is at 91 degrees, its limit is 95",)


def test_cooling_that_slows_a_cpu_is_a_disturbance_and_a_fan_is_none(machine: Activity) -> None:
    for number, kind in enumerate(("cpufreq-cpu0", "pwm-fan")):
        machine.put(f"sys/class/thermal/cooling_device{number}/type", kind)
        machine.put(f"sys/class/thermal/cooling_device{number}/cur_state", "2")
    assert reasons(machine) == ("CPUs are slowed for heat: cpufreq-cpu0 at step 2",)


def test_cooling_of_many_cpus_is_one_reason(machine: Activity) -> None:
    for number in range(300):
        machine.put(f"sys/class/thermal/cooling_device{number}/type", "Processor")
        machine.put(f"sys/class/thermal/cooling_device{number}/cur_state", "3")
    assert reasons(machine) == ("CPUs are slowed for heat: Processor at step 3",)


def test_package_manager_is_named_and_the_one_that_only_waits_is_not(machine: Activity) -> None:
    machine.process(801, "unattended-upgr", 5)
    machine.put("proc/801/cmdline", "python3\0/usr/share/unattended-upgrade-shutdown\0--wait-for-signal\0")
    machine.process(802, "dpkg", 5)
    machine.put("proc/802/cmdline", "dpkg\0--configure\0-a\0")
    assert reasons(machine) == ("packages are being installed: dpkg (pid 802)",)


def test_lack_of_memory_names_the_biggest_process(machine: Activity) -> None:
    machine.memory(available=51_200)
    machine.process(900, "postgres", 5, pages=70_000)
    assert reasons(machine) == (
        "only 50 of 976 MiB of memory are available; the biggest process is postgres (pid 900)",
    )


def test_swapping_and_what_is_swapped_are_disturbances(machine: Activity) -> None:
    machine.memory(in_swap=204_800)
    found = reasons(machine, lambda: machine.put("proc/vmstat", "pswpin 3\npswpout 4"))
    assert found == ("7 pages went to or from swap in the last second", "200 MiB are in swap")


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu 1 2 x 4 5 6 7 8\n", "\x00\xff\n", "cpu0 1 2 3 4 5 6 7 8\n"])
def test_machine_that_does_not_tell_is_not_taken_for_quiet(machine: Activity, text: str) -> None:
    machine.put("proc/stat", text)
    assert reasons(machine) == ("/proc/stat does not tell how busy the CPUs are",)


@pytest.mark.parametrize("stat", ["", "700", "700 (x", "700 (x) S 1 2", "x (y) S " + "1 " * 40, "7 (y) S " + "a " * 40])
def test_broken_line_about_a_process_is_passed_over(machine: Activity, stat: str) -> None:
    machine.put("proc/700/stat", stat)
    assert reasons(machine, machine.second) == ()


def test_this_machine_can_be_looked_at() -> None:
    assert all(isinstance(reason, str) for reason in disturbances(Path("/"), pause=lambda _: None))
