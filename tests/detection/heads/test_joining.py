"""Findings of one culprit are one change, told once."""

import pytest

from server.detection.models import ChangePoint, Finding
from server.detection.sweep import tend_branches, tend_life
from server.lab.models import Trial
from server.sources.models import Revision
from tests.builders import EPOCH, build_revision
from tests.detection.heads.histories import History

pytestmark = pytest.mark.django_db


@pytest.fixture
def history() -> History:
    history = History({"h1": "haswell", "z1": "zen3"})
    history.head()
    history.passed(8)
    history.steps(104, {("h1", 0): 0.1})
    history.steps(106, {("z1", 1): 0.1})
    return history


def both(culprits: list[Revision], states: list[str]) -> list[Finding]:
    for finding, culprit, state in zip(Finding.objects.order_by("pk"), culprits, states, strict=True):
        Finding.objects.filter(pk=finding.pk).update(culprit=culprit, state=state)
    tend_branches()
    tend_branches()
    return list(Finding.objects.order_by("pk"))


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["confirmed", "confirmed"], ["confirmed", "superseded"]),
        (["confirmed", "reported"], ["superseded", "reported"]),
        (["accepted", "confirmed"], ["accepted", "superseded"]),
        (["invalid", "confirmed"], ["invalid", "confirmed"]),
    ],
)
def test_of_two_findings_of_one_culprit_one_stays(history: History, states: list[str], expected: list[str]) -> None:
    first, second = both([build_revision(history.tree)] * 2, states)
    assert [first.state, second.state] == expected
    for gone, stays in ((first, second), (second, first)):
        if gone.state == Finding.State.SUPERSEDED:
            assert gone.reason.startswith(f"the same change as finding {stays.pk}: ")
            assert set(ChangePoint.objects.values_list("finding", flat=True)) == {stays.pk}


def test_findings_of_two_culprits_both_stay(history: History) -> None:
    culprits = [build_revision(history.tree), build_revision(history.tree)]
    assert [one.state for one in both(culprits, ["confirmed"] * 2)] == ["confirmed"] * 2


@pytest.mark.usefixtures("history")
def test_a_candidate_is_not_checked_before_its_confirmation_is_heard() -> None:
    """It was accepted while the confirmation ran, and the acceptance has ended."""
    finding = Finding.objects.earliest("pk")
    assert finding.trial
    Trial.objects.filter(pk=finding.trial.pk).update(state=Trial.State.FAILED, answered_at=EPOCH)
    tend_life()
    finding.refresh_from_db()
    assert finding.state == Finding.State.CANDIDATE
    tend_branches()
    finding.refresh_from_db()
    assert (finding.state, finding.reason[:21]) == ("invalid", "could not be measured")
