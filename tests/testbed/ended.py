"""What must be true of a session that is over, however often its machine was cut off: in the service, on the disk."""

import json
import re
from pathlib import Path

from tidemark_agent.prepare import JOURNAL_NAME

from server.core.models import Transition
from server.lab.models import Attempt, AttemptState, Boot, BootState
from server.results.models import Measurement
from tests.testbed.disk import Disk
from tests.testbed.kernels import SAFE, kernel
from tests.testbed.machine import TestMachine
from tests.testbed.site import STATE, LabSession

_LAST_LINES = 60


def story(lab: LabSession, machine: TestMachine) -> str:
    """For the one who reads of a failure: every boot, and the end of the console."""
    lab.session.refresh_from_db()
    lines = [f"{boot.position} {boot.arm} {boot.state} {boot.outcome} {boot.reason}" for boot in lab.boots()]
    # What kernels say of themselves is long and seldom of interest: the agents' lines are.
    said = [line for line in machine.said().splitlines() if not line.startswith("[ ")]
    return "\n".join([f"{lab.session.state}: {lab.session.reason}", *lines, *said[-_LAST_LINES:]])


def assert_machine_is_restored(lab: LabSession, machine: TestMachine) -> None:
    """It switched itself off in the safe kernel, with all settings as before and nothing left to do or to send."""
    said = machine.said()
    ends = re.findall(r"^testbed: service ended with (\d+) in (\S+)", said, re.MULTILINE)
    assert ends[-1] == ("0", kernel(SAFE).release), story(lab, machine)
    before, after = (
        dict(re.findall(rf"^{word} (/\S+?)=(.*?)\r?$", said, re.MULTILINE)) for word in ("before", "after")
    )
    assert before, story(lab, machine)
    assert after == before, story(lab, machine)


def assert_disk_is_clean(disk: Disk, folder: Path) -> None:
    """Nothing in the spool, no session under way, no settings to put back; the file system is whole."""
    state = disk.repaired().copy_out(STATE, folder)
    names = sorted(str(path.relative_to(state)) for path in state.rglob("*") if path.is_file())
    assert not (state / "lab" / "session.jsonl").exists(), names
    assert not (state / JOURNAL_NAME).exists(), names
    left = [name for name in names if name.startswith("spool/") and name.endswith(".json")]
    assert left == [], names


def assert_nothing_is_lost_or_twice(lab: LabSession, *, values: int) -> None:
    """Each boot has one end; measured ones are proved and whole, the others say what happened."""
    boots = lab.boots()
    assert [boot.position for boot in boots] == list(range(len(boots)))
    measured = [boot for boot in boots if boot.state == BootState.MEASURED]
    assert len({boot.boot_id for boot in measured}) == len(measured)
    for boot in boots:
        ends = Transition.objects.filter(
            subject="boot", subject_id=boot.pk, after__in=[BootState.MEASURED, BootState.FAILED]
        )
        assert ends.count() == (boot.state != BootState.PLANNED), boot
        expected = lab.session.base_build if boot.arm == Boot.Arm.BASE else lab.session.patched_build
        rows = Measurement.objects.filter(boot=boot)
        if boot.state == BootState.MEASURED:
            assert boot.build_id == expected.build_id
            assert boot.notes == [], json.dumps(boot.notes)
            assert rows.count() == values, boot
            assert all(len(row.values) == row.case.runs for row in rows)
        else:
            assert boot.reason, boot
            assert rows.count() == 0, boot


def assert_attempt_is_over(lab: LabSession) -> None:
    attempt = Attempt.objects.get(pk=lab.attempt.pk)
    assert attempt.state == AttemptState.DONE, attempt.reason
