"""Virtual machines are told from physical ones, whatever else contradicts."""

import pytest
from tidemark_agent.probe import facts_from

from tests.agent.probe.conftest import Probe
from tests.agent.probe.machines import amd, guests
from tests.agent.probe.machines.parts import Files, acpi_table, dmi, pci, x86_cpus


@pytest.mark.parametrize(
    ("files", "uarch", "hypervisor"),
    [
        (guests.qemu_tcg(), "unknown-authenticamd-15-107", "qemu"),
        (guests.kvm_guest(), "emeraldrapids", "kvm"),
        (guests.xen_guest(), "cascadelake", "xen"),
        (guests.emulated_board_without_bit(), "zen3", "qemu"),
        (guests.old_virtualbox(), "sandybridge", "virtualbox"),
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
    assert (facts.uarch, facts.vendor, facts.virtual, facts.doubts) == ("unknown-shanghai-8-1", "Shanghai", False, {})


@pytest.mark.parametrize("name", guests.PROOFS)
def test_one_thing_that_only_guests_have_is_enough(probe: Probe, name: str) -> None:
    device, hypervisor = guests.PROOFS[name]
    facts = probe(guests.emulated_by(device))
    assert (facts.virtual, facts.hypervisor, facts.doubts) == (True, hypervisor, {})
    assert not probe(guests.emulated_by({})).virtual


@pytest.mark.parametrize(
    "device", [pci("0000:00:03.0", 0x1AF4, 0x1041), {"sys/bus/virtio/devices/virtio0/device": "0x0001\n"}]
)
def test_virtio_is_neither_proof_of_a_guest_nor_of_none(probe: Probe, device: Files) -> None:
    """Cards for networks and disks on bare metal speak it as well."""
    facts = probe(guests.emulated_by(device))
    assert (facts.virtual, facts.hypervisor) == (False, "")
    assert facts.doubts == {"virtio": "it has virtio devices, as guests have and a few cards on bare metal"}


def test_devices_of_clouds_say_nothing_where_the_cpu_does(probe: Probe) -> None:
    """Machines that are let whole have them, too, and guests have the bit."""
    for vendor in (0x1D0F, 0x1AE0):
        facts = probe(guests.emulated_by(pci("0000:00:05.0", vendor, 0x00BA)))
        assert (facts.virtual, facts.doubts) == (False, {})


def test_device_of_microsoft_is_doubted_though_the_cpu_says_nothing(probe: Probe) -> None:
    facts = probe(guests.emulated_by(pci("0000:00:05.0", 0x1414, 0x00BA)))
    assert not facts.virtual
    assert facts.doubts == {"cloud": "it has devices of Microsoft, as guests and machines let whole have"}


def test_vendor_that_nobody_knows_is_doubted(probe: Probe) -> None:
    facts = probe(guests.unknown_vendor())
    assert (facts.uarch, facts.virtual) == ("unknown-riseriserise-6-1", False)
    assert facts.doubts == {"vendor": "its CPUs are of an unknown vendor: RiseRiseRise"}


def test_cpu_that_the_table_lacks_of_a_known_vendor_is_not_doubted(probe: Probe) -> None:
    new = x86_cpus(1, ("GenuineIntel", 6, 250, 0), "Intel(R) Xeon(R) of tomorrow")
    facts = probe(guests.emulated_by({"proc/cpuinfo": new}))
    assert (facts.uarch, facts.doubts) == ("unknown-genuineintel-6-250", {})


def test_machine_of_which_only_the_cpu_is_told_is_doubted(probe: Probe) -> None:
    bare = {name: said for name, said in guests.emulated_by({}).items() if "/pci/" not in name}
    assert probe(bare).doubts == {"board": "neither firmware nor devices tell what it is"}
    assert probe(bare | dmi(sys_vendor="Dell Inc.")).doubts == {}
    assert probe(bare | acpi_table("DSDT", b"DELL  ")).doubts == {}
