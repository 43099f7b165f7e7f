"""One command in a guest, from power-on to power-off."""

from pathlib import Path

from tests.testbed.disk import Files, system_disk
from tests.testbed.machine import TestMachine
from tests.testbed.paths import TestbedError

_BEGIN, _END = "testbed: output begins", "testbed: output ended with "


def start_script(command: str) -> str:
    """What the guest's first process runs; the kernel is silent, for its messages would come between the letters."""
    return f"#!/bin/sh\ndmesg -n 1\necho '{_BEGIN}'\n( {command}\n)\necho '{_END}'$?\n"


def run_in_guest(
    files: Files, command: str, *, folder: Path, kernel: Path, numa: bool = False, timeout: float = 120.0,
    cpu: str = "max", cpus: int = 1, extra: tuple[str, ...] = (), words: str = "",
) -> str:  # fmt: skip
    """What `command` (shell) printed in a guest that booted `kernel`, with `files` put into its system before.

    `extra` are words for the emulator, `words` more of the kernel's command line. TestbedError if it does not end
    within `timeout` seconds or ends with anything but 0.
    """
    folder.mkdir(parents=True, exist_ok=True)
    disk = system_disk(folder / "disk", {**files, "/etc/testbed/start": start_script(command)})
    machine = TestMachine(folder, disk, kernel=kernel, numa=numa, cpu=cpu, cpus=cpus, extra=extra)
    machine.command_line += f" {words}"
    # An earlier guest's output in the same folder is not this one's.
    machine.console.unlink(missing_ok=True)
    with machine:
        ended = machine.wait(timeout)
    disk.image.unlink()
    said = machine.said().replace("\r\n", "\n")
    output, _, status = said.partition(f"{_BEGIN}\n")[2].partition(_END)
    if not ended or not status.startswith("0\n"):
        trouble = "did not end" if not ended else f"ended with {status.splitlines()[:1]}"
        raise TestbedError(f"the guest's command {trouble}: {said[-3000:]}")
    return output
