"""What the probe says of machines with Arm's architecture."""

from tests.agent.probe.conftest import Probe
from tests.agent.probe.machines import arm
from tests.agent.probe.machines.parts import Files, arm_cpus, pci


def test_the_register_in_sys_tells_the_part_and_revision(probe: Probe) -> None:
    facts = probe(arm.neoverse_n1())
    assert (facts.uarch, facts.vendor, facts.midr, facts.arch) == ("neoverse-n1", "ARM", "0x413fd0c1", "aarch64")
    assert (facts.family, facts.model, facts.virtual) == (-1, -1, False)
    assert (facts.page_bytes, facts.memory_kinds) == (65_536, ("dram",))
    assert [(kind.name, kind.cpus) for kind in facts.core_types] == [("all", "0-3")]


def test_what_the_kernel_detected_is_read_from_its_log(probe: Probe) -> None:
    detected = probe(arm.neoverse_n1()).alternatives.detected
    assert detected == ("LSE atomic instructions", "Spectre-v4")


def test_nodes_without_cpus_or_memory_are_called_so(probe: Probe) -> None:
    facts = probe(arm.neoverse_v2())
    assert (facts.uarch, facts.midr) == ("neoverse-v2", "0x413fd4f0")
    assert [node.kind for node in facts.nodes] == ["dram", "cpuless", "empty"]
    assert facts.memory_kinds == ("cpuless", "dram")
    assert "mops" in facts.flags


def test_page_size_that_nothing_tells_is_unknown(probe: Probe) -> None:
    assert probe(arm.neoverse_v2()).page_bytes is None


def test_two_kinds_of_core_have_names_cpus_and_flags_of_their_own(probe: Probe) -> None:
    facts = probe(arm.big_little())
    assert facts.uarch == "cortex-a76_cortex-a55"
    assert [(kind.name, kind.cpus) for kind in facts.core_types] == [("cortex-a76", "4-7"), ("cortex-a55", "0-3")]
    small, big = facts.cpu_kinds
    assert (small.cpus, small.capacity, small.flags) == ("0-3", 414, ("aes", "crc32"))
    assert (big.cpus, big.capacity, big.flags) == ("4-7", 1024, ("dcpop",))
    assert facts.flags == ("asimd", "atomics", "fp")


def test_a_board_without_dmi_is_described_by_its_device_tree(probe: Probe) -> None:
    facts = probe(arm.big_little())
    assert facts.board == {"model": "Radxa ROCK 5B", "compatible": "radxa,rock-5b rockchip,rk3588"}
    assert (facts.firmware, facts.virtual) == ({"boot": "devicetree"}, False)


def test_unknown_part_is_named_by_its_numbers(probe: Probe) -> None:
    assert probe(arm.unknown_arm()).uarch == "unknown-arm64-41-dfe"


def test_kernel_of_32_bits_is_arm_and_not_supported(probe: Probe) -> None:
    """Also on a CPU of 64 bits, and where only its description tells."""
    facts = probe(arm.cortex_a15())
    assert (facts.arch, facts.uarch, facts.vendor) == ("arm", "unknown-arm-41-c0f", "ARM")
    assert facts.doubts == {"arch": "arm is not a supported architecture"}
    wide = arm.cortex_a15() | {"proc/cpuinfo": arm_cpus([(0x41, 0xD08)]), "proc/sys/kernel/arch": "armv8l\n"}
    assert (probe(wide).arch, probe(wide).uarch) == ("arm", "unknown-arm-41-d08")
    untold = {name: said for name, said in arm.cortex_a15().items() if not name.endswith("kernel/arch")}
    assert (probe(untold).arch, probe(untold).uarch) == ("arm", "unknown-arm-41-c0f")


def test_maker_of_arm_cpus_that_nobody_knows_is_doubted(probe: Probe) -> None:
    facts = probe(arm.unknown_arm() | {"proc/cpuinfo": arm_cpus([(0x7E, 0x001)])})
    assert (facts.virtual, facts.doubts) == (False, {"vendor": "its CPUs are of an unknown vendor: 0x7e"})


def test_another_maker_s_part_of_the_same_number_is_not_taken_for_arm_s(probe: Probe) -> None:
    files = arm.unknown_arm()
    assert probe(files | {"proc/cpuinfo": arm_cpus([(0x6D, 0xD49)])}).uarch == "neoverse-n2"
    assert probe(files | {"proc/cpuinfo": arm_cpus([(0x6D, 0xD0C)])}).uarch == "unknown-arm64-6d-d0c"


def test_guest_without_a_cpuid_bit_is_known_by_its_device_tree(probe: Probe) -> None:
    facts = probe(arm.guest_on_arm())
    assert (facts.virtual, facts.hypervisor) == (True, "qemu")


def test_guest_of_a_cloud_is_virtual_and_a_machine_let_whole_is_not(probe: Probe) -> None:
    files = arm.unknown_arm() | {"sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}
    product = "sys/class/dmi/id/product_name"
    assert probe(files | {product: "m7g.large\n"}).hypervisor == "kvm"
    assert not probe(files | {product: "m7g.metal\n"}).virtual


def test_device_of_a_cloud_is_doubted_where_the_cpu_tells_no_guest(probe: Probe) -> None:
    files = arm.unknown_arm() | pci("0000:00:05.0", 0x1D0F, 0xEC20)
    assert probe(files).doubts == {"cloud": "it has devices of Amazon, as guests and machines let whole have"}
    metal: Files = {"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "m7g.metal\n"}
    assert (probe(files | metal).doubts, probe(files | metal).virtual) == ({}, False)
