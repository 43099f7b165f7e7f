"""Whatever the files hold, the probe answers, soon, and with what can be sent and stored."""

import json
import os
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_agent.probe import facts_of, probe_system
from tidemark_agent.probe.facts import table
from tidemark_agent.probe.tree import Texts

from tests.agent.probe.machines import amd, arm, guests, intel
from tests.agent.probe.machines.parts import Files, write_tree

MACHINES = {
    name: machine()
    for name, machine in {
        "zen3": amd.zen3,
        "zen4": amd.zen4,
        "zen5": amd.zen5_with_cxl,
        "zen5 by firmware": amd.zen5_with_cxl_from_firmware,
        "strix point": amd.strix_point,
        "ice lake": intel.ice_lake,
        "sapphire rapids": intel.sapphire_rapids,
        "alder lake": intel.alder_lake,
        "arrow lake": intel.arrow_lake_h,
        "neoverse n1": arm.neoverse_n1,
        "neoverse v2": arm.neoverse_v2,
        "big and little": arm.big_little,
        "unknown": guests.unknown_x86,
        "guest": guests.kvm_guest,
        "contradiction": guests.emulated_board_without_bit,
    }.items()
}
# A slug, as the service names microarchitectures.
SLUG = re.compile(r"[a-z0-9_-]{1,60}")
# What the kernel could write there, next to what it could not.
CONTENT = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200),
    st.text(alphabet="0123456789-,:/kKMx \n\t\0", max_size=60),
    st.integers().map(str),
    st.just("9" * 5000),
    st.just("0-4294967295\n"),
)


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_reads_the_same_from_disk_and_from_memory(tmp_path: Path, name: str) -> None:
    files = MACHINES[name]
    assert probe_system(write_tree(tmp_path, files)) == facts_of(Texts(files))


@given(st.data())
def test_random_bytes_in_the_files_never_raise(data: st.DataObject) -> None:
    files: Files = dict(MACHINES[data.draw(st.sampled_from(sorted(MACHINES)))])
    for name in data.draw(st.lists(st.sampled_from(sorted(files)), max_size=8)):
        files[name] = data.draw(CONTENT)
    facts = facts_of(Texts(files))
    said = json.dumps(facts.as_json())
    assert "\\u0000" not in said
    assert SLUG.fullmatch(facts.uarch)
    assert all(SLUG.fullmatch(kind.name) for kind in facts.core_types)
    assert all(line.isprintable() for line in table(facts).split("\n"))


@given(st.dictionaries(st.sampled_from(sorted(set().union(*MACHINES.values()))), CONTENT, max_size=20))
def test_trees_of_nothing_but_random_bytes_never_raise(files: Files) -> None:
    facts = facts_of(Texts(files))
    assert SLUG.fullmatch(facts.uarch)
    json.dumps(facts.as_json())


def test_an_empty_tree_has_no_facts(tmp_path: Path) -> None:
    facts = probe_system(tmp_path)
    assert (facts.uarch, facts.cpus, facts.memory_kb, facts.virtual) == ("unknown-vendor-0-0", 0, 0, False)
    assert (facts.nodes, facts.memory_kinds, facts.llc_bytes) == ((), None, None)


def test_a_tree_that_is_not_there_has_no_facts(tmp_path: Path) -> None:
    assert probe_system(tmp_path / "nowhere").uarch == "unknown-vendor-0-0"


def test_links_that_lead_out_of_the_tree_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("MemTotal: 4711 kB\n")
    root = write_tree(tmp_path / "root", amd.zen3())
    (root / "proc/meminfo").unlink()
    (root / "proc/meminfo").symlink_to("../../secret")
    (root / "proc/cmdline").unlink()
    (root / "proc/cmdline").symlink_to(secret)
    facts = probe_system(root)
    assert (facts.memory_kb, facts.cmdline) == (0, "")


def test_links_inside_the_tree_are_followed(tmp_path: Path) -> None:
    root = write_tree(tmp_path, amd.zen3())
    (root / "sys/class/dmi/id").rename(root / "sys/dmi")
    (root / "sys/class/dmi/id").symlink_to("../../dmi")
    assert probe_system(root).board["board"] == "PRIME X570-P"


def test_pipes_directories_and_loops_in_place_of_files_are_passed_over(tmp_path: Path) -> None:
    root = write_tree(tmp_path, amd.zen3())
    for name in ("proc/meminfo", "proc/cmdline", "proc/sys/kernel/version"):
        (root / name).unlink()
    os.mkfifo(root / "proc/meminfo")
    (root / "proc/cmdline").mkdir()
    (root / "proc/sys/kernel/version").symlink_to("version")
    facts = probe_system(root)
    assert (facts.uarch, facts.memory_kb, facts.cmdline, facts.kernel_version) == ("zen3", 0, "", "")


def test_huge_files_are_read_no_further_than_sense(tmp_path: Path) -> None:
    root = write_tree(tmp_path, amd.zen3())
    with (root / "proc/cmdline").open("r+b") as stream:
        stream.truncate(1 << 40)
    with (root / "proc/cpuinfo").open("r+b") as stream:
        stream.truncate(1 << 40)
    started = time.monotonic()
    facts = probe_system(root)
    assert (facts.uarch, facts.cpus, facts.cmdline) == ("zen3", 4, "ro quiet")
    assert time.monotonic() - started < 20


def test_a_cpu_that_is_said_to_exist_twice_counts_once(tmp_path: Path) -> None:
    files = amd.zen3()
    files["proc/cpuinfo"] = "\n".join([str(files["proc/cpuinfo"])] * 2)
    assert probe_system(write_tree(tmp_path, files)).cpus == 4
