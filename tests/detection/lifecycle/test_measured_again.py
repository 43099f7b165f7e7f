"""A change in a branch is measured again because a person asked, with fresh boots of both its ends."""

import pytest

from server.core.errors import DomainError
from server.core.reasons import Because
from server.detection.findings.checks import Name, checks_named
from server.detection.lifecycle.retest import retest_finding
from server.detection.models import Finding
from server.detection.on_trial_over import answer_trial
from server.lab.models import Trial
from tests.builders import build_machine
from tests.detection.lifecycle.findings import SAME, UP, write_down
from tests.detection.lifecycle.mending import World

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("verdict", "outcome"), [(UP, "passed"), (SAME, "failed")])
def test_what_fresh_boots_of_both_ends_say_is_a_check(world: World, verdict: str, outcome: str) -> None:
    trial, new = retest_finding(world.finding, actor="ada", reason="a kernel argument was wrong")
    assert (new, trial.purpose, trial.series) == (True, Trial.Purpose.RETEST, None)
    assert (trial.base, trial.patched) == (world.finding.before, world.finding.after)
    assert list(trial.machines.all()) == [world.machine]
    assert [check["outcome"] for check in checks_named(Finding.objects.get(), Name.RETEST)] == ["pending"]
    assert retest_finding(world.finding, actor="bob", reason="so") == (trial, False)
    write_down(trial, {world.machine: {"fork": verdict, "mmap": SAME}})
    trial.advance(Trial.State.DONE)
    assert answer_trial(trial_id=trial.pk)
    world.finding.refresh_from_db()
    assert [check["outcome"] for check in checks_named(world.finding, Name.RETEST)] == [outcome]
    assert (world.finding.state == Finding.State.INVALID) == (outcome == "failed")


def test_only_what_stands_is_measured_again_and_where_a_machine_is(world: World) -> None:
    retest_finding(world.finding, actor="ada", reason="so")
    with pytest.raises(DomainError, match="being measured again already, on m1") as other:
        retest_finding(world.finding, actor="ada", reason="so", machines=[build_machine("m2")])
    assert other.value.code == "under-way"
    Trial.objects.filter(purpose=Trial.Purpose.RETEST).update(state=Trial.State.DONE)
    type(world.machine).objects.update(enabled=False)
    with pytest.raises(DomainError, match="no machine that confirmed"):
        retest_finding(world.finding, actor="ada", reason="so")
    world.finding.advance(Finding.State.INVALID, Because.NOISE("noise: so"))
    with pytest.raises(DomainError, match="it claims nothing"):
        retest_finding(world.finding, actor="ada", reason="so")
