from datetime import timedelta

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.utils import timezone
from pytest_django.fixtures import Settings

from server.builds.models import Build, BuildState
from server.core.access.tries import OutOfBoundsError
from server.lab.models import Machine, Session, SessionState, Trial, TrialState
from server.lab.trials.life import SAME_CODE, plan_trial, plan_trials, trials_to_plan
from server.sources.models import Tree
from tests.builders import build_config, build_machine, build_series, build_tree, build_trial
from tests.lab.trials.conftest import Sent

pytestmark = pytest.mark.django_db


def make_all(**fields: str) -> None:
    Build.objects.filter(state=BuildState.WANTED).update(state=BuildState.BUILT, build_id="ab", **fields)


def plan(trial: Trial) -> list[Session]:
    """With kernels that build at once."""
    plan_trial(trial_id=trial.pk)
    make_all()
    sessions = plan_trial(trial_id=trial.pk)
    trial.refresh_from_db()
    return sessions


def test_a_trial_waits_for_its_kernels_and_is_planned_once() -> None:
    build_machine("m1")
    build_machine("m2", "zen3")
    trial = build_trial(benchmarks=["mm-basic"], priority=7, looks=[3])
    assert plan_trial(trial_id=trial.pk) == []
    assert Build.objects.filter(state=BuildState.WANTED).count() == 2
    sessions = plan(trial)
    assert {(one.machine.name, one.purpose, one.series, one.priority) for one in sessions} == {
        ("m1", "trial", None, 7),
        ("m2", "trial", None, 7),
    }
    assert [one.boots.count() for one in sessions] == [6, 6]
    assert (trial.state, trial.reason) == (TrialState.MEASURING, "on m1, m2")
    assert plan_trial(trial_id=trial.pk) == sessions
    assert Session.objects.count() == 2


@pytest.mark.parametrize(
    ("looks", "own", "found"),
    [([4, 6, 8], 4, [4, 6, 8]), ([4, 6, 8], 7, [7, 8]), ([4, 6], 9, [9]), ([4, 6], 2, [2, 4, 6]), ([3], 7, [3])],
)
def test_first_look_is_the_machine_s_own_unless_the_number_is_fixed(
    looks: list[int], own: int, found: list[int]
) -> None:
    build_machine(boots_per_side=own)
    (session,) = plan(build_trial(looks=looks))
    assert session.looks == found
    assert session.boots.count() == 2 * found[0]


@pytest.mark.parametrize(
    ("purpose", "state", "boots"), [("head", SessionState.DONE, 0), ("noise", SessionState.PLANNED, 8)]
)
def test_same_code_is_not_measured_but_as_noise(purpose: str, state: str, boots: int, wakes: Sent) -> None:
    build_machine()
    trial = build_trial(purpose=purpose)
    plan_trial(trial_id=trial.pk)
    make_all(kernel_hash="5" * 64)
    (session,) = plan_trial(trial_id=trial.pk)
    assert (session.state, session.boots.count()) == (state, boots)
    assert (session.reason, session.concluded_at is not None) == ((SAME_CODE, True) if boots == 0 else ("", False))
    assert (("detection.look", (trial.pk,)) in wakes) == (boots == 0)


def test_hash_of_mails_is_not_believed_where_git_has_not_their_commits() -> None:
    build_machine()
    trial = build_trial(purpose="series", series=build_series())
    plan_trial(trial_id=trial.pk)
    make_all(kernel_hash="5" * 64)
    (session,) = plan_trial(trial_id=trial.pk)
    assert session.boots.count() == 8


def test_revision_that_does_not_build_fails_its_sessions_with_the_reason(wakes: Sent) -> None:
    build_machine()
    trial = build_trial(purpose="bisect")
    plan_trial(trial_id=trial.pk)
    Build.objects.filter(revision=trial.base).update(state=BuildState.BUILT, build_id="ab")
    Build.objects.filter(revision=trial.patched).update(state=BuildState.FAILED, reason="mm/x.c:1: error: no")
    (session,) = plan_trial(trial_id=trial.pk)
    assert session.state == SessionState.FAILED
    assert session.reason == "the patched revision breaks the build: mm/x.c:1: error: no"
    assert ("detection.look", (trial.pk,)) in wakes


@pytest.mark.parametrize(
    ("purpose", "believed", "measured"),
    [
        ("head", False, [["m1"], []]),
        ("head", True, [["m1"], ["vm"]]),
        ("bisect", False, [["m1", "vm"], ["vm"]]),
    ],
)
def test_heads_are_not_booted_on_virtual_machines_that_make_no_points(
    purpose: str, believed: bool, measured: list[list[str]], settings: Settings
) -> None:
    settings.VIRTUAL_VERDICTS = believed
    physical = build_machine("m1")
    build_machine("vm", virtual=True)
    found = [sorted(one.machine.name for one in plan(build_trial(purpose=purpose)))]
    Machine.objects.filter(pk=physical.pk).update(virtual=True, enabled=False)
    found.append(sorted(one.machine.name for one in plan(build_trial(purpose=purpose))))
    assert found == measured


def test_layout_trial_boots_the_other_layout_where_there_is_one() -> None:
    one, other = build_machine("one"), build_machine("other", config=build_config("lean-arm64"))
    variant = build_config("lean-x86-64-layout", layout_of=one.config)
    (session,) = plan(build_trial(purpose="layout", layout=True, machines=[one, other]))
    assert session.machine == one
    assert {session.base_build.config, session.patched_build.config} == {variant}


def test_layout_trial_without_any_other_layout_fails_at_once(wakes: Sent) -> None:
    trial = build_trial(purpose="layout", layout=True, machines=[build_machine()])
    assert plan(trial) == []
    assert (trial.state, trial.reason) == (TrialState.FAILED, "no machine's configuration has another code layout")
    assert ("detection.answer", (trial.pk,)) in wakes
    assert not Build.objects.exists()


def test_named_machines_are_waited_for_but_not_for_ever() -> None:
    good = build_machine("good")
    sick = build_machine("sick", health=Machine.Health.QUARANTINED)
    off = build_machine("off", enabled=False)
    both = build_trial(machines=[good, sick])
    alone = build_trial(machines=[sick, off])
    for trial, reason in ((both, "machine sick is quarantined"), (alone, "machine off is disabled; machine sick is")):
        assert plan(trial) == []
        assert trial.state == TrialState.WANTED
        assert trial.reason.startswith(reason)
    Trial.objects.update(created_at=timezone.now() - timedelta(days=2))
    assert [session.machine for session in plan(both)] == [good]
    assert plan(alone) == []
    Trial.objects.update(created_at=timezone.now() - timedelta(days=8))
    assert plan(alone) == []
    assert alone.state == TrialState.WANTED, "the sick one left a moment ago, after its kernels took a week"
    Machine.objects.update(health_since=timezone.now() - timedelta(days=2))
    assert plan(alone) == []
    assert (alone.state, alone.reason.partition(":")[0]) == (TrialState.FAILED, "waited 8 days in vain")


def test_a_machine_that_goes_and_comes_is_not_waited_for_without_end() -> None:
    trial = build_trial(machines=[build_machine("sick", health=Machine.Health.QUARANTINED)])
    Trial.objects.update(created_at=timezone.now() - timedelta(days=14))
    assert plan(trial) == []
    assert (trial.state, trial.reason.partition(":")[0]) == (TrialState.FAILED, "waited 14 days in vain")


def test_noise_of_a_machine_that_is_out_of_service_is_not_waited_for() -> None:
    trial = build_trial(purpose="noise", machines=[build_machine(health=Machine.Health.MAINTENANCE)])
    assert plan(trial) == []
    assert (trial.state, trial.reason) == (
        TrialState.FAILED,
        "no longer idle and well: machine vm-haswell is in maintenance",
    )


def test_a_series_waits_for_a_machine_as_long_as_it_takes() -> None:
    series = build_series()
    trial = build_trial(purpose="series", series=series)
    Trial.objects.update(created_at=timezone.now() - timedelta(days=80))
    assert plan(trial) == []
    assert trial.state == TrialState.WANTED
    build_machine()
    (session,) = plan(trial)
    assert (session.series, session.purpose) == (series, "series")


def test_canceled_trial_is_not_planned() -> None:
    build_machine()
    trial = build_trial(state=TrialState.CANCELED)
    assert plan_trial(trial_id=trial.pk) == []
    assert trials_to_plan() == []
    assert not Build.objects.exists()


def test_important_trials_come_first_and_all_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = build_trial()
    urgent = build_trial(priority=3)
    Tree.objects.filter(pk=usual.base.tree_id).update(priority=1)
    other = build_tree("next", priority=3)
    first = build_trial(priority=2)
    Trial.objects.filter(pk=first.pk).update(base=first.base)
    first.base.tree = other
    first.base.save()
    assert trials_to_plan() == [first.pk, urgent.pk, usual.pk]
    monkeypatch.setattr("server.lab.trials.life._AT_ONCE", 2)
    Trial.objects.update(tried_at=None)
    assert (trials_to_plan(), trials_to_plan()) == ([first.pk, urgent.pk], [first.pk, usual.pk])


def test_trial_that_a_worker_cannot_plan_holds_no_other_up_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, usual = build_trial(priority=9), build_trial()
    tried: list[int] = []

    def plan_one(*, trial_id: int) -> list[Session]:
        tried.append(trial_id)
        if trial_id == slow.pk:
            raise SoftTimeLimitExceeded
        return []

    monkeypatch.setattr("server.lab.trials.life.plan_trial", plan_one)
    for _ in range(3):
        with pytest.raises(OutOfBoundsError):
            plan_trials()
    plan_trials()
    assert tried == [slow.pk, usual.pk, slow.pk, usual.pk, slow.pk, usual.pk]
    slow.refresh_from_db()
    assert (slow.state, slow.reason) == (TrialState.FAILED, "planning it took more than a worker has, 3 times")
