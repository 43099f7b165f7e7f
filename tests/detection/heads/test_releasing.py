"""What moved elsewhere than at the culprit is another change."""

import pytest

from server.detection.branches import candidates
from server.detection.branches.release import Why, invalidate, release_others
from server.detection.models import Bisection, ChangePoint, Finding
from tests.builders import build_comparison, build_revision, build_trial_session
from tests.detection.heads.histories import History
from tests.detection.heads.test_candidates import boundaries

pytestmark = pytest.mark.django_db


@pytest.fixture
def history() -> History:
    """A step so small that it may lie at any head from 104 to 114."""
    history = History({"h1": "haswell", "z1": "zen3"})
    history.head()
    history.passed(20)
    history.steps(110, {("h1", 0): 0.001})
    return history


def bisected(history: History, culprit: int) -> Finding:
    """The finding's change is made at a place."""
    finding = Finding.objects.select_related("before", "after", "trial").get()
    assert finding.before
    assert finding.trial
    shas = {head.place: head.revision.sha for head in history.branch.measured.select_related("revision")}
    places = {sha: place for place, sha in shas.items()}
    made = next(head.revision for head in history.branch.measured.all() if head.place == culprit)
    revisions = [shas[place] for place in range(places[finding.before.sha], max(shas) + 1)]
    session = build_trial_session(finding.trial, history.machines[0])
    Bisection.objects.create(
        finding=finding,
        machine=history.machines[0],
        target=build_comparison(session),
        state="found",
        revisions=revisions,
        high=len(revisions) - 1,
        effect=0.1,
        culprit=made,
    )
    Finding.objects.filter(pk=finding.pk).update(culprit=made, state=Finding.State.CONFIRMED)
    finding.refresh_from_db()
    return finding


def test_what_joined_elsewhere_in_a_wide_boundary_is_let_go_when_the_culprit_is_known(history: History) -> None:
    history.steps(112, {("z1", 1): 0.1})
    assert Finding.objects.count() == 1
    finding = bisected(history, 106)
    assert release_others(finding) == 1
    other = Finding.objects.exclude(pk=finding.pk).get()
    assert other.state == Finding.State.CANDIDATE
    assert [point.timeline.machine.name for point in other.change_points.all()] == ["z1"]
    assert release_others(finding) == 0


def test_what_is_let_go_of_long_after_it_moved_is_looked_for_where_it_moved(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An acceptance has expired, say, and the search went on with it."""
    history.steps(112, {("z1", 1): 0.1})
    finding = bisected(history, 106)
    history.passed(10)
    monkeypatch.setattr(candidates, "_AROUND", 5)
    assert release_others(finding) == 1
    assert boundaries()[1] == (111, 112)


@pytest.mark.parametrize(("case", "findings"), [(1, 2), (0, 1)])
def test_what_a_withdrawn_finding_never_measured_is_asked_on_its_own(
    history: History, case: int, findings: int
) -> None:
    finding = Finding.objects.get()
    Finding.objects.update(state=Finding.State.CONFIRMED)
    history.steps(112, {("z1", case): 0.1})
    assert finding.change_points.count() == 2
    invalidate(finding, actor="", why=Why.NOISE, reason="measured again, its change does not show")
    assert Finding.objects.count() == findings
    assert finding.change_points.count() == 3 - findings
    assert Finding.objects.latest("pk").state == (Finding.State.CANDIDATE if findings == 2 else Finding.State.INVALID)


def test_what_may_be_at_the_culprit_stays(history: History) -> None:
    history.steps(107, {("z1", 1): 0.1})
    finding = bisected(history, 106)
    assert release_others(finding) == 0
    assert ChangePoint.objects.filter(finding=finding).count() == 2


@pytest.mark.parametrize(("place", "findings"), [(112, 2), (106, 1)])
def test_of_later_suspects_only_those_at_the_culprit_join(history: History, place: int, findings: int) -> None:
    bisected(history, 106)
    history.steps(place, {("z1", 1): 0.1})
    assert Finding.objects.count() == findings


def test_without_a_search_the_whole_boundary_is_claimed(history: History) -> None:
    Finding.objects.update(culprit=build_revision(history.tree), state=Finding.State.CONFIRMED)
    history.steps(112, {("z1", 1): 0.1})
    assert Finding.objects.count() == 1
