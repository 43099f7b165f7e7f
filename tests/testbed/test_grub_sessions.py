"""Whole sessions on one machine whose GRUB boots each kernel once; of kernels that work, die and hang."""

import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from server.lab.models import Boot, BootState, SessionState
from tests.testbed.cuts import PowerCuts
from tests.testbed.ended import (
    assert_attempt_is_over,
    assert_disk_is_clean,
    assert_machine_is_restored,
    assert_nothing_is_lost_or_twice,
    story,
)
from tests.testbed.grubdisk import grub_disk
from tests.testbed.kernels import BASE, DYING, PATCHED, SAFE, Kernel, kernel
from tests.testbed.machine import TestMachine
from tests.testbed.site import LabSession, plan_session

pytestmark = [pytest.mark.real(minutes=11), pytest.mark.django_db(transaction=True)]
CASES = ("fault-4k",)
CUTS = 4
PATIENCE = 900.0
# What the operator of a machine without anybody nearby writes; the default of ten seconds is for people.
BOOT = '[boot]\nwords = "panic=2 oops=panic"\n'
BOOTING = "Booting `tidemark'"
MOST_RESETS = 10


def plan(address: str, agent: Path, folder: Path, patched: Kernel, boots_per_side: int = 1) -> LabSession:
    return plan_session(
        address=address,
        agent=agent,
        scratch=folder / "programs",
        driver="grub",
        base=kernel(BASE),
        patched=patched,
        cases=CASES,
        boots_per_side=boots_per_side,
        configuration=BOOT,
    )


def machine_for(lab: LabSession, folder: Path) -> TestMachine:
    disk = grub_disk(folder / "disk", kernel(SAFE).image, lab.files, folder=folder)
    return TestMachine(folder, disk, cpu="Haswell")


def assert_over(lab: LabSession, machine: TestMachine, folder: Path) -> None:
    assert_nothing_is_lost_or_twice(lab, values=len(CASES))
    assert_attempt_is_over(lab)
    assert_machine_is_restored(lab, machine)
    assert_disk_is_clean(machine.disk, folder / "state")
    disk = machine.disk.repaired()
    assert b"next_entry=tidemark" not in disk.read("/boot/grub/grubenv")


def test_kernels_are_booted_once_each_whatever_power_cuts_there_are(
    address: str, agent_program: Path, tmp_path: Path
) -> None:
    lab = plan(address, agent_program, tmp_path, kernel(PATCHED), 2)
    machine = machine_for(lab, tmp_path)
    choice = random.Random("power cuts under GRUB")  # noqa: S311 (delays, no secrets)
    cuts = PowerCuts(machine, CUTS, 4, lab.finished, choice, PATIENCE)
    with closing(machine):
        cuts.run()
        assert machine.wait(PATIENCE), story(lab, machine)
    assert len(cuts.made) == CUTS, f"{cuts.made}: {story(lab, machine)}"
    lab.session.refresh_from_db()
    assert lab.session.state == SessionState.DONE, story(lab, machine)
    assert machine.said().count(BOOTING) >= 4
    assert_over(lab, machine, tmp_path)


def test_kernel_that_dies_before_any_agent_leaves_its_last_words(
    address: str, agent_program: Path, tmp_path: Path
) -> None:
    lab = plan(address, agent_program, tmp_path, kernel(DYING))
    with machine_for(lab, tmp_path) as machine:
        assert machine.wait(PATIENCE), story(lab, machine)
    lab.session.refresh_from_db()
    assert lab.session.state == SessionState.FAILED, story(lab, machine)
    (dead,) = [boot for boot in lab.boots() if boot.arm == Boot.Arm.PATCHED]
    assert (dead.state, dead.outcome) == (BootState.FAILED, "panic"), story(lab, machine)
    assert "testbed: dies before init" in dead.reason + dead.conditions.console_tail
    assert_over(lab, machine, tmp_path)


def test_kernel_that_hangs_is_no_boot_when_resets_bring_the_safe_one_back(
    address: str, agent_program: Path, tmp_path: Path
) -> None:
    lab = plan(address, agent_program, tmp_path, hanging(tmp_path))
    with machine_for(lab, tmp_path) as machine:
        reset_at = 0
        while not machine.wait(1.0) and reset_at < MOST_RESETS:
            # Once for each start: what comes back from a reset is as silent at first.
            if (started := silent_starts(machine)) > reset_at and machine.is_halted():
                machine.reset()
                reset_at = started
        assert machine.wait(PATIENCE), story(lab, machine)
    base, patched = lab.boots()
    assert (base.state, patched.state, patched.outcome) == (BootState.MEASURED, BootState.FAILED, "no-boot")
    assert "4 boots of this kernel did not reach the agent" in patched.reason, story(lab, machine)
    assert_over(lab, machine, tmp_path)


def silent_starts(machine: TestMachine) -> int:
    """How often GRUB has started test kernels, if the last of them has not said a word yet; else 0."""
    said = machine.said()
    return 0 if "Linux version" in said.rpartition(BOOTING)[2] else said.count(BOOTING)


def hanging(folder: Path) -> Kernel:
    """A kernel whose compressed part is damaged: it halts before it can say anything."""
    whole = kernel(PATCHED)
    image = bytearray(whole.image.read_bytes())
    middle = len(image) // 2
    image[middle : middle + 65536] = bytes(65536)
    made = folder / "hanging"
    shutil.copytree(whole.folder, made)
    (made / "bzImage").write_bytes(image)
    return Kernel("hanging", made, "0" * 40)
