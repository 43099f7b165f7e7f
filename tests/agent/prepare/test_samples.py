"""Samples around a run, and the noise of a CPU before the first."""

import io
import json
import os
import threading
from pathlib import Path

import pytest
from tidemark_agent.log import Log
from tidemark_agent.prepare import Sampler, cpu_list, scheduling_noise
from tidemark_agent.prepare.model import AgentCpus, Layout

from tests.agent.prepare.activity import Activity, resting


@pytest.fixture
def machine(tmp_path: Path) -> Activity:
    machine = resting(tmp_path)
    for cpu in range(32):
        machine.put(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq", str(2_000_000 + cpu))
    machine.put("sys/class/hwmon/hwmon0/name", "k10temp")
    machine.put("sys/class/hwmon/hwmon0/temp1_input", "45500")
    machine.put("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3")
    return machine


def test_sample_says_what_the_machine_does(machine: Activity) -> None:
    sample = dict(Sampler(machine.root).sample())
    assert sample.pop("monotonic_us") > 0
    assert sample == {
        "load1": 0.25, "context_switches": 9000, "interrupts": 7000, "softirqs": 600, "forks": 800, "running": 1,
        "blocked": 0, "pgfault": 77, "pswpin": 0, "pswpout": 0, "available_kb": 800_000, "busy_ticks": 1000,
        "idle_ticks": 9000, "steal_ticks": 0, "psi_cpu_us": 1000, "psi_memory_us": 1000, "psi_io_us": 1000,
        "temperature_max_c": 45.5, "throttle_count": 3, "frequency_min_khz": 2_000_000, "frequency_max_khz": 2_000_028,
    }  # fmt: skip


def test_sample_tells_the_measured_cpus_apart(machine: Activity) -> None:
    machine.second(steal=7)
    sample = Sampler(machine.root, cpus="0,30").sample()
    assert (sample["measured_busy_ticks"], sample["measured_steal_ticks"]) == (1000, 7)
    assert (sample["frequency_min_khz"], sample["frequency_max_khz"]) == (2_000_000, 2_000_030)


def test_sample_of_a_system_that_tells_nothing_is_not_made_up(tmp_path: Path) -> None:
    assert set(Sampler(tmp_path).sample()) == {"monotonic_us"}


def test_sample_of_this_machine_is_small() -> None:
    sample = Sampler(cpus="0").sample()
    assert sample["context_switches"] > 0
    assert sample["measured_busy_ticks"] > 0
    assert len(json.dumps(dict(sample))) < 1000


def test_noise_is_looked_for_on_each_cpu(tmp_path: Path) -> None:
    cpus = cpu_list(frozenset(os.sched_getaffinity(0)))
    found = scheduling_noise(cpus, scratch=tmp_path, log=Log(io.StringIO()), stop=threading.Event())
    assert {int(item["cpu"]) for item in found} <= os.sched_getaffinity(0)
    assert found
    for item in found:
        assert item["watched_us"] >= 50_000
        assert 0 < item["max_gap_us"] <= item["watched_us"]
        assert item["gaps_us"] <= item["watched_us"]


def test_noise_of_a_cpu_that_is_not_there_is_no_measure_and_no_failure(tmp_path: Path) -> None:
    stream = io.StringIO()
    assert scheduling_noise("9999", scratch=tmp_path, log=Log(stream), stop=threading.Event()) == ()
    assert "noise-not-measured" in stream.getvalue()


def test_agent_keeps_to_the_housekeeping_cpus_with_all_its_threads() -> None:
    before = frozenset(os.sched_getaffinity(0))
    keep = frozenset({min(before)})
    release, seen = threading.Event(), []

    def work() -> None:
        release.wait()
        seen.append(frozenset(os.sched_getaffinity(0)))

    thread = threading.Thread(target=work)
    thread.start()
    own = AgentCpus()
    try:
        setting = own.confine(Layout(keep, before - keep))
        release.set()
        thread.join()
        assert (setting.before, setting.after) == (cpu_list(before), cpu_list(keep))
        assert seen == [keep]
    finally:
        release.set()
        assert own.release() == ()
    assert frozenset(os.sched_getaffinity(0)) == before


def test_cpus_that_the_agent_may_not_use_are_told_and_tolerated() -> None:
    setting = AgentCpus().confine(Layout(frozenset({9999}), frozenset({0})))
    assert setting.outcome == "tolerated"
    assert "cannot run on CPUs 9999" in setting.note
