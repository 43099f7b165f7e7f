"""An agent that is killed while it measures goes on in the same boot, on a machine as it was before."""

import re
from pathlib import Path

import pytest

from server.lab.models import BootState
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
from tests.testbed.site import AGENT, STATE, plan_session

pytestmark = [pytest.mark.real(minutes=2), pytest.mark.django_db(transaction=True)]
CASES = ("fault-4k", "mmap-munmap")
PATIENCE = 900.0
SERVICE = f"python3 {AGENT} service\n"
# Once, while the first case runs; then what systemd does to a service that was killed.
KILLED_SERVICE = f"""\
python3 {AGENT} service & agent=$!
if [ ! -e /killed ]; then
    until grep -q case-begun {STATE}/lab/session.jsonl; do sleep 1; done
    touch /killed
    sync
    kill -9 $agent
    wait $agent
    status=$?
    dmesg -n 1
    echo "testbed: agent ended with $status"
    python3 {AGENT} service & agent=$!
fi
wait $agent
"""


def test_killed_agent_goes_on_in_the_same_boot(address: str, agent_program: Path, tmp_path: Path) -> None:
    lab = plan_session(
        address=address, agent=agent_program, scratch=tmp_path / "programs", driver="kexec", base=kernel(BASE),
        patched=kernel(PATCHED), cases=CASES, boots_per_side=1,
    )  # fmt: skip
    start = str(lab.files["/etc/testbed/start"])
    assert SERVICE in start
    files = {**lab.files, "/etc/testbed/start": start.replace(SERVICE, KILLED_SERVICE)}
    disk = system_disk(tmp_path / "disk", files)
    with TestMachine(tmp_path, disk, kernel=kernel(SAFE).image, cpu="Haswell") as machine:
        assert machine.wait(PATIENCE), story(lab, machine)
    assert "testbed: agent ended with 137" in machine.said(), story(lab, machine)
    # Safe, base, patched, safe: nobody rebooted because of it.
    assert len(re.findall(r"Linux version", machine.said())) == 4, story(lab, machine)
    assert [boot.state for boot in lab.boots()] == [BootState.MEASURED] * 2, story(lab, machine)
    assert_nothing_is_lost_or_twice(lab, values=len(CASES))
    assert_attempt_is_over(lab)
    assert_machine_is_restored(lab, machine)
    assert_disk_is_clean(disk, tmp_path / "state")
