"""The probe of the machine that the tests run on, beside what other programs say of it."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from tidemark_agent.probe import Facts, probe_system

FACTS = probe_system(Path("/"))


@pytest.fixture(scope="module")
def lscpu() -> dict[str, str]:
    done = subprocess.run(
        ["lscpu", "--bytes"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
    )
    pairs = (line.partition(":") for line in done.stdout.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_it_agrees_with_lscpu_about_the_cpus(lscpu: dict[str, str]) -> None:
    assert FACTS.cpus == int(lscpu["CPU(s)"])
    assert lscpu["Architecture"] == FACTS.arch
    if FACTS.arch == "x86_64":
        assert lscpu["Vendor ID"] == FACTS.vendor
        ids = [lscpu[name] for name in ("CPU family", "Model", "Stepping")]
        assert ids == [str(FACTS.family), str(FACTS.model), str(FACTS.stepping)]
        assert set(lscpu["Flags"].split()) <= set(FACTS.flags)


def test_it_agrees_with_lscpu_about_the_caches(lscpu: dict[str, str]) -> None:
    for level, name in ((1, "L1d cache"), (2, "L2 cache"), (3, "L3 cache")):
        match = re.match(r"(\d+) \((\d+) instances?\)", lscpu.get(name, ""))
        kinds = [cache for cache in FACTS.caches if cache.level == level and cache.type != "instruction"]
        if match:
            assert sum(cache.bytes * len(cache.shared) for cache in kinds) == int(match[1])
            assert sum(len(cache.shared) for cache in kinds) == int(match[2])


def test_it_agrees_with_lscpu_about_the_nodes(lscpu: dict[str, str]) -> None:
    if FACTS.nodes:
        assert len(FACTS.nodes) == int(lscpu["NUMA node(s)"])
        assert sum(node.memory_kb for node in FACTS.nodes) > 0


def test_it_agrees_with_the_system_about_kernel_memory_and_pages() -> None:
    assert said("uname", "-r") == FACTS.kernel_release
    assert FACTS.cmdline == " ".join(Path("/proc/cmdline").read_text().split())[:4096]
    total = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    assert total is not None
    assert FACTS.memory_kb == int(total[1])
    assert FACTS.page_bytes == os.sysconf("SC_PAGE_SIZE")
    assert int(said("getconf", "_NPROCESSORS_ONLN")) == FACTS.cpus


def test_its_microarchitecture_is_named() -> None:
    assert FACTS.uarch
    assert FACTS.fingerprint == probe_system(Path("/")).fingerprint


def test_a_guest_of_any_kind_is_virtual(lscpu: dict[str, str]) -> None:
    if "Hypervisor vendor" in lscpu:
        assert FACTS.virtual


def test_the_settings_of_two_probes_are_the_same_but_for_memory_in_use() -> None:
    def steady(facts: Facts) -> dict[str, object]:
        return {
            name: value for name, value in facts.as_json().items() if name not in {"nodes", "huge_pages", "memory_kb"}
        }

    assert steady(FACTS) == steady(probe_system(Path("/")))
