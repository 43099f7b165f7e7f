"""How each architecture is emulated: a machine of one CPU with a serial console, and what its kernel must be told.

panic=-1: a kernel that ends, well or not, resets the machine, which ends the emulator. An oops ends the boot too: what
a damaged kernel measures is worth nothing. The early console shows what dies before the real one is there.
"""

from dataclasses import dataclass
from typing import Final

from tidemark_agent.errors import InfrastructureError


@dataclass(frozen=True)
class Emulator:
    """`counted_...` is added where instructions are counted: what is random would be noise where all else is exact."""

    program: str
    machine: str
    command_line: str
    counted_machine: str = ""
    counted_command_line: str = "norandmaps"


_EMULATORS: Final = {
    "x86_64": Emulator(
        program="qemu-system-x86_64",
        machine="microvm,isa-serial=on,rtc=on,pit=on,pic=on,auto-kernel-cmdline=off",
        # tsc=reliable: else a busy host makes the kernel distrust the emulated TSC and fall back to jiffies.
        # nolapic_timer: calibrating the local APIC timer spins for 200 ms of guest time, which takes 9 s of wall time
        # when instructions are counted; the PIT serves as well.
        command_line=(
            "console=ttyS0 earlyprintk=serial,ttyS0,115200 reboot=t panic=-1 oops=panic "
            "tsc=reliable nolapic_timer no_timer_check"
        ),
    ),
    "arm64": Emulator(
        program="qemu-system-aarch64",
        machine="virt",
        command_line="console=ttyAMA0 earlycon panic=-1 oops=panic",
        # The seeds for the kernel's own address and for its random numbers, which the device tree hands over.
        counted_machine=",dtb-randomness=off",
    ),
}


def emulator_of(arch: str) -> Emulator:
    """Raises InfrastructureError for an architecture that this agent cannot emulate."""
    if arch not in _EMULATORS:
        raise InfrastructureError(f"this agent cannot emulate {arch}")
    return _EMULATORS[arch]
