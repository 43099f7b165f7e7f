"""Virtual machines are told from physical ones, whatever else contradicts."""

import pytest
from tidemark_agent.probe import facts_from

from tests.agent.probe.conftest import Probe
from tests.agent.probe.machines import amd, guests
from tests.agent.probe.machines.parts import Files, dmi


@pytest.mark.parametrize(
    ("files", "uarch", "hypervisor"),
    [
        (guests.qemu_tcg(), "unknown-authenticamd-15-107", "qemu"),
        (guests.kvm_guest(), "emeraldrapids", "kvm"),
        (guests.xen_guest(), "cascadelake", "xen"),
        (guests.emulated_board_without_bit(), "zen3", "qemu"),
    ],
)
def test_guests_are_virtual_and_named(probe: Probe, files: Files, uarch: str, hypervisor: str) -> None:
    facts = probe(files)
    assert (facts.uarch, facts.virtual, facts.hypervisor) == (uarch, True, hypervisor)


def test_all_that_speaks_for_a_guest_is_kept(probe: Probe) -> None:
    assert probe(guests.kvm_guest()).virtualization == {"dmi": "kvm", "cpuid": "yes"}
    assert probe(guests.xen_guest()).virtualization == {"driver": "xen", "cpuid": "yes"}
    assert probe(amd.zen3()).virtualization == {}


def test_files_that_make_no_sense_leave_their_facts_unknown(probe: Probe) -> None:
    facts = probe(guests.emulated_board_without_bit())
    assert (facts.cpus, facts.memory_kb, facts.boost, facts.smt) == (2, 0, None, "�� on")
    assert [(kind.name, kind.cpus) for kind in facts.core_types] == [("all", "0-1")]
    assert (facts.nodes[0].distances, facts.nodes[0].kind, facts.kernel_build_id) == ((), "empty", "")


def test_a_cloud_s_name_alone_does_not_make_an_x86_machine_virtual(probe: Probe) -> None:
    for vendor in ("Google", "Amazon EC2", "Microsoft Corporation"):
        assert not probe(amd.zen3() | dmi(sys_vendor=vendor, product_name="Surface")).virtual


def test_driver_that_knows_the_hypervisor_makes_the_facts_virtual() -> None:
    facts = facts_from(
        cpuinfo=str(amd.zen3()["proc/cpuinfo"]),
        meminfo="",
        cmdline="",
        release="",
        hypervisor="qemu-tcg",
        clock="instructions",
    )
    assert (facts.virtual, facts.hypervisor, facts.clock) == (True, "qemu-tcg", "instructions")


def test_unknown_x86_is_named_by_its_numbers(probe: Probe) -> None:
    facts = probe(guests.unknown_x86())
    assert (facts.uarch, facts.vendor, facts.virtual) == ("unknown-shanghai-7-59", "Shanghai", False)
