"""One QEMU machine: power on, reset, power cut, and what its console says."""

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.testbed.clock import clock_words
from tests.testbed.disk import Disk
from tests.testbed.paths import TestbedError, program
from tests.testbed.qmp import execute

_POLL = 0.05
# The flag of an x86 processor that lets interrupts in.
_INTERRUPTS = 0x200
# What a kernel says before it dies stays in this reserved piece of memory over a reset, but over no power cut.
PSTORE = (
    "memmap=1M$0x8000000 ramoops.mem_address=0x8000000 ramoops.mem_size=0x100000 ramoops.ecc=1 "
    "ramoops.record_size=0x20000 ramoops.console_size=0x20000"
)
# tsc=reliable: a busy host makes the kernel distrust the emulated clock. nolapic_timer and no_timer_check: their
# calibrations take seconds of an emulated machine.
COMMAND_LINE = "root=/dev/vda rw init=/init console=ttyS0 panic=2 oops=panic tsc=reliable nolapic_timer no_timer_check"
# Little memory for translated code (1 GiB is the default): a reset does not throw it away, and what GRUB loads over it
# afterwards takes ten seconds instead of one. A boot needs no more than this.
_EMULATOR = "tcg,tb-size=48"
# Three nodes, the last one without CPUs, as a machine with CXL memory has them; distances as such a machine gives them.
_NODES = (
    *("-object", "memory-backend-ram,id=m0,size=384M", "-numa", "node,nodeid=0,cpus=0,memdev=m0"),
    *("-object", "memory-backend-ram,id=m1,size=384M", "-numa", "node,nodeid=1,cpus=1,memdev=m1"),
    *("-object", "memory-backend-ram,id=m2,size=256M", "-numa", "node,nodeid=2,memdev=m2"),
    *("-numa", "dist,src=0,dst=1,val=21", "-numa", "dist,src=0,dst=2,val=28", "-numa", "dist,src=1,dst=2,val=28"),
)


@dataclass
class TestMachine:
    """A machine with one disk and a network on which the host's loopback is 10.0.2.2.

    With `kernel` this is what each reset boots, as a boot loader with a safe default would; without, the disk boots.
    """

    __test__ = False

    folder: Path
    disk: Disk
    kernel: Path | None = None
    command_line: str = f"{COMMAND_LINE} {PSTORE}"
    cpu: str = "max"
    # Below 512 MiB the kernel uses no huge pages.
    memory_mb: int = 640
    cpus: int = 1
    numa: bool = False
    extra: tuple[str, ...] = ()
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    @property
    def console(self) -> Path:
        return self.folder / "console"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Power on. The console goes on where it was."""
        if self.running:
            raise TestbedError("the machine is on already")
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "qemu.log").open("ab") as log:
            self._process = subprocess.Popen(self._words(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def cut(self) -> None:
        """Power cut: whatever the guest had not yet written to its disk is gone, and so is its memory."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    close = cut

    def reset(self) -> None:
        """The reset button: memory stays as it is, the machine boots anew."""
        execute(self._socket, "system_reset")

    def is_halted(self) -> bool:
        """Whether its processor has stopped for good: no interrupt can wake it."""
        registers = str(execute(self._socket, "human-monitor-command", **{"command-line": "info registers"}))
        flags = re.search(r"\b[ER]FL=([0-9a-f]+)", registers)
        return "HLT=1" in registers and flags is not None and not int(flags[1], 16) & _INTERRUPTS

    def wait(self, timeout: float) -> bool:
        """Whether the machine switched itself off within `timeout` seconds."""
        return self._wait_until(lambda: not self.running, timeout)

    def wait_for(self, text: str, timeout: float) -> bool:
        """Whether the console shows `text` within `timeout` seconds."""
        return self._wait_until(lambda: text in self.said(), timeout) or text in self.said()

    def said(self) -> str:
        return self.console.read_text(errors="replace") if self.console.exists() else ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def _wait_until(self, is_so: Callable[[], bool], timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if is_so():
                return True
            if not self.running:
                return False
            time.sleep(_POLL)
        return is_so()

    @property
    def _socket(self) -> Path:
        return self.folder / "qmp"

    def _words(self) -> list[str]:
        words = [str(program("qemu-system-x86_64"))]
        words += ["-M", "q35,hmat=on" if self.numa else "q35", "-accel", _EMULATOR, "-cpu", self.cpu]
        cpus, memory = (2, 1024) if self.numa else (self.cpus, self.memory_mb)
        words += ["-smp", str(cpus), "-m", str(memory), *(_NODES if self.numa else ())]
        words += ["-nodefaults", "-no-user-config", "-display", "none"]
        words += ["-drive", f"file={self.disk.image},if=virtio,format=raw,cache=writeback"]
        words += ["-netdev", "user,id=net,restrict=off", "-device", "virtio-net-pci,netdev=net,romfile="]
        words += ["-chardev", f"file,id=console,path={self.console},append=on", "-serial", "chardev:console"]
        words += ["-qmp", f"unix:{self._socket},server=on,wait=off"]
        if self.kernel is not None:
            words += ["-kernel", str(self.kernel), "-append", f"{self.command_line} {clock_words(self.extra)}"]
        return [*words, *self.extra]
