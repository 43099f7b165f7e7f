"""Whole sessions on one machine that reboots itself by kexec, against the real service."""

import random
from contextlib import closing
from pathlib import Path

import pytest

from server.lab.models import Boot, BootState, SessionState
from tests.testbed.cuts import PowerCuts
from tests.testbed.disk import system_disk
from tests.testbed.ended import (
    assert_attempt_is_over,
    assert_disk_is_clean,
    assert_machine_is_restored,
    assert_nothing_is_lost_or_twice,
    story,
)
from tests.testbed.kernels import BASE, PATCHED, SAFE, kernel
from tests.testbed.machine import TestMachine
from tests.testbed.site import LabSession, plan_session

pytestmark = [pytest.mark.real(minutes=3), pytest.mark.django_db(transaction=True)]
CASES = ("fault-4k",)
CUTS = 8
PATIENCE = 900.0


def plan(address: str, agent: Path, folder: Path, *, boots_per_side: int) -> LabSession:
    return plan_session(
        address=address,
        agent=agent,
        scratch=folder / "programs",
        driver="kexec",
        base=kernel(BASE),
        patched=kernel(PATCHED),
        cases=CASES,
        boots_per_side=boots_per_side,
    )


def machine_for(lab: LabSession, folder: Path) -> TestMachine:
    disk = system_disk(folder / "disk", lab.files)
    return TestMachine(folder, disk, kernel=kernel(SAFE).image, cpu="Haswell")


def assert_all_is_measured(lab: LabSession, machine: TestMachine, folder: Path) -> None:
    lab.session.refresh_from_db()
    assert lab.session.state == SessionState.DONE, story(lab, machine)
    assert {boot.state for boot in lab.boots()} == {BootState.MEASURED}
    assert_nothing_is_lost_or_twice(lab, values=len(CASES))
    assert_attempt_is_over(lab)
    assert_machine_is_restored(lab, machine)
    assert_disk_is_clean(machine.disk, folder / "state")


def test_boots_alternate_their_kernels_and_power_cuts_two_for_each_lose_nothing(
    address: str, agent_program: Path, uploads: list[tuple[int, bool]], tmp_path: Path
) -> None:
    lab = plan(address, agent_program, tmp_path, boots_per_side=2)
    machine = machine_for(lab, tmp_path)
    choice = random.Random("power cuts")  # noqa: S311 (delays, no secrets)
    cuts = PowerCuts(machine, CUTS, 4, lab.finished, choice, PATIENCE)
    with closing(machine):
        cuts.run()
        assert machine.wait(PATIENCE), story(lab, machine)
    assert len(cuts.made) == CUTS, f"{cuts.made}: {story(lab, machine)}"
    proved = [(boot.arm, boot.build_id) for boot in lab.boots()]
    base, patched = (Boot.Arm.BASE, kernel(BASE).build_id), (Boot.Arm.PATCHED, kernel(PATCHED).build_id)
    assert proved == [base, patched, patched, base]
    # A cut between the service's yes and the spool's forgetting sends a result once more: that one is not stored.
    assert [position for position, stored in uploads if stored] == list(range(4))
    assert len(uploads) <= 4 + CUTS
    assert_all_is_measured(lab, machine, tmp_path)
