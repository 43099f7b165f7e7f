"""The testbed keeps its promises: what is cut off is lost, what is reset is kept, and each boot is the right kernel."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.disk import Files, system_disk
from tests.testbed.grubdisk import ROOT_WORDS, grub_disk
from tests.testbed.guest import run_in_guest
from tests.testbed.kernels import BASE, DYING, SAFE, kernel
from tests.testbed.machine import PSTORE, TestMachine
from tests.testbed.paths import TestbedError

pytestmark = pytest.mark.real
PATIENCE = 90.0
# Counts boots on the disk, tells what runs, and then does what the test says for this boot.
COUNTING = """\
#!/bin/sh
n=$(($(cat /count 2>/dev/null || echo 0) + 1))
echo $n >/count
sync
echo "BOOT $n $(uname -r) $(ls /sys/fs/pstore | tr '\\n' ' ')"
case $n in
STEPS
esac
"""
CRASH = "echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger"


def counting(*steps: str) -> str:
    return COUNTING.replace("STEPS", "\n".join(f"{number}) {step} ;;" for number, step in enumerate(steps, 1)))


def boots(machine: TestMachine) -> list[str]:
    return [line.strip() for line in re.findall(r"^BOOT \d+ (.*)$", machine.said(), re.MULTILINE)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[TestMachine]:
    """A machine whose safe default is the kernel `safe`; tests write what it does."""
    disk = system_disk(tmp_path / "disk", {"/kernel": kernel(BASE).image})
    made = TestMachine(tmp_path, disk, kernel=kernel(SAFE).image)
    yield made
    made.cut()


def test_kexec_panic_and_reset_end_in_the_safe_kernel_with_evidence(machine: TestMachine) -> None:
    kexec = 'kexec -s -l /kernel --command-line="$(cat /proc/cmdline)" && kexec -e'
    machine.disk.write(
        {"/etc/testbed/start": counting(kexec, CRASH, "grep -h anic: /sys/fs/pstore/dmesg-*; poweroff -f")}
    )
    machine.start()
    assert machine.wait(PATIENCE), machine.said()[-2000:]
    first, second, third = boots(machine)
    assert first == "7.3.4-testbed-safe" or first.startswith(kernel(SAFE).release)
    assert second.startswith(f"{kernel(BASE).release} ")
    assert third.startswith(kernel(SAFE).release)
    assert "dmesg-ramoops-0" in third


def test_power_cut_loses_what_was_not_on_the_disk_yet_and_all_memory(machine: TestMachine) -> None:
    step = "echo kept >/synced; sync; echo lost >/unsynced; echo READY; sleep 600"
    machine.disk.write({"/etc/testbed/start": counting(step, "ls /synced /unsynced; poweroff -f")})
    machine.start()
    assert machine.wait_for("READY", PATIENCE)
    machine.cut()
    machine.start()
    assert machine.wait(PATIENCE), machine.said()[-2000:]
    assert "ls: /unsynced: No such file" in machine.said()
    assert machine.disk.repaired().read("/synced") == b"kept\n"
    assert "ramoops" not in boots(machine)[1]


def test_reset_keeps_the_console_of_what_hung(machine: TestMachine) -> None:
    machine.disk.write({"/etc/testbed/start": counting("echo HANGS >/dev/kmsg; sleep 600", "poweroff -f")})
    machine.start()
    assert machine.wait_for("HANGS", PATIENCE)
    machine.reset()
    assert machine.wait(PATIENCE), machine.said()[-2000:]
    assert "console-ramoops-0" in boots(machine)[1]


def test_grub_boots_once_what_its_environment_names_and_the_safe_kernel_else(tmp_path: Path) -> None:
    words = f"{ROOT_WORDS} {PSTORE}".replace("$", r"\$")
    entries = "".join(f"menuentry '{name}' --id {name} {{\n  linux /{name} {words}\n}}\n" for name in ("base", "dying"))
    arm = "grub-editenv /boot/grub/grubenv set next_entry={}; sync; reboot -f"
    files: Files = {
        "/base": kernel(BASE).image,
        "/dying": kernel(DYING).image,
        "/boot/grub/custom.cfg": entries,
        "/etc/testbed/start": counting(arm.format("base"), arm.format("dying"), "poweroff -f"),
    }
    disk = grub_disk(tmp_path / "disk", kernel(SAFE).image, files, folder=tmp_path)
    with TestMachine(tmp_path, disk) as machine:
        assert machine.wait(PATIENCE), machine.said()[-2000:]
    first, second, third = boots(machine)
    assert [line.split()[0] for line in (first, second, third)] == [
        kernel(SAFE).release, kernel(BASE).release, kernel(SAFE).release
    ]  # fmt: skip
    assert "dmesg-ramoops-0" in third
    assert disk.repaired().read("/count") == b"3\n"


def test_guest_has_three_nodes_of_which_one_has_no_cpus(tmp_path: Path) -> None:
    command = "cd /sys/devices/system/node; cat online has_cpu has_memory; cat node0/distance"
    output = run_in_guest({}, command, folder=tmp_path, kernel=kernel(BASE).image, numa=True)
    assert output.split() == ["0-2", "0-1", "0-2", "10", "21", "28"]


def test_second_guest_of_a_folder_is_not_mistaken_for_the_first(tmp_path: Path) -> None:
    for word in ("one", "two"):
        output = run_in_guest({}, f"echo {word}", folder=tmp_path, kernel=kernel(BASE).image)
        assert output.strip() == word


def test_failing_command_of_a_guest_is_told_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="no such thing"):
        run_in_guest({}, "echo no such thing; exit 3", folder=tmp_path, kernel=kernel(BASE).image)
