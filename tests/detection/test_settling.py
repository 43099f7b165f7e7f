"""A change that few boots show is looked at again before it is claimed."""

import pytest

from server.detection.models import Comparison
from server.detection.trials.look import look_at_trial
from server.lab.models import Boot, Session, Trial
from tests.builders import build_trial, build_trial_session
from tests.detection.measured import SLOWER, STEADY, measure, measured_trial, physical, visit

pytestmark = pytest.mark.django_db

USUAL = (4, 6, 8, 12, 16)


def test_a_change_that_four_boots_a_side_show_is_claimed_after_two_more_of_each() -> None:
    machine = physical("h1", "haswell")
    trial = measured_trial(None, {machine: {"copy": SLOWER}}, looks=USUAL, purpose="bisect")
    assert not look_at_trial(trial_id=trial.pk)
    session = trial.sessions.get()
    assert (session.state, session.reason, session.boots.count()) == ("planned", "changes to be seen again: 1", 12)
    visit(session, {"copy": SLOWER})
    assert look_at_trial(trial_id=trial.pk)
    row = Comparison.objects.get()
    assert (row.verdict, row.base_boots) == ("regressed", 6)


def test_a_machine_of_two_modes_gets_boots_until_its_cell_tells_nothing_any_more() -> None:
    """The only cell of its session: by chance all first boots of each kernel lie in one mode."""
    trial = build_trial(state=Trial.State.MEASURING, looks=list(USUAL), purpose="bisect")
    session = build_trial_session(trial, physical("h1", "haswell"), state=Session.State.DONE)
    for boot in session.boots.all():
        _one_mode(boot, slow=boot.arm == Boot.Arm.PATCHED)
    while not look_at_trial(trial_id=trial.pk):
        planned = list(session.boots.filter(state=Boot.State.PLANNED))
        visit(session, {})
        for boot in planned:
            # From here on each kernel is slow in every other boot.
            _one_mode(boot, slow=boot.position // 2 % 2 == 0)
        session.refresh_from_db()
    row = Comparison.objects.get()
    assert row.verdict == "inconclusive"
    assert row.reason.startswith("regressed at 4 boots a side, no longer at ")
    assert session.boots.count() > 2 * 6


def test_a_cell_without_a_change_is_believed_at_the_first_look() -> None:
    trial = measured_trial(None, {physical("h1", "haswell"): {"copy": STEADY}}, looks=USUAL, purpose="bisect")
    assert look_at_trial(trial_id=trial.pk)
    assert Comparison.objects.get().base_boots == 4


def test_a_change_is_claimed_by_what_there_is_when_the_budget_is_spent() -> None:
    trial = measured_trial(
        None, {physical("h1", "haswell"): {"copy": SLOWER}}, looks=USUAL, purpose="bisect", budget_seconds=1.0
    )
    Boot.objects.filter(position=0).update(started_at="2026-01-01T00:00:00Z", ended_at="2026-01-01T00:01:00Z")
    assert look_at_trial(trial_id=trial.pk)
    assert trial.sessions.get().cut_short
    assert Comparison.objects.get().verdict == "regressed"


def _one_mode(boot: Boot, *, slow: bool) -> None:
    level = (1100.0 if slow else 1000.0) + boot.position / 10
    measure(boot, {"copy": (level, level)})
