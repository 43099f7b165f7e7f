"""Fresh boots decide what becomes of a suspected change."""

import pytest

from server.core.reasons import Because
from server.detection.branches.candidates import take_up_news
from server.detection.branches.fleet import Looked, Told, read_fleet
from server.detection.branches.observation import publish
from server.detection.models import ChangePoint, Comparison, Finding, MachineQuestion, MeasuredHead, Verdict
from server.detection.on_trial_over import answer_branch
from server.detection.sweep import tend_branches
from server.lab.models import Machine, Session, Trial
from tests.builders import build_case, build_comparison, build_trial_session
from tests.detection.heads.histories import History

pytestmark = pytest.mark.django_db
LAB = {"h1": "haswell", "z1": "zen3"}


@pytest.fixture
def history() -> History:
    history = History(LAB)
    history.head()
    history.passed(3)
    history.steps(103, {("h1", 0): 0.1})
    return history


def suspected() -> tuple[Finding, Trial]:
    finding = Finding.objects.get()
    assert finding.trial
    return finding, finding.trial


def confirmed(verdicts: dict[str, str], case: str = "case-0") -> Finding:
    """The confirmation is over, with these verdicts of the case by machine."""
    finding, trial = suspected()
    for machine in trial.machines.all():
        session = build_trial_session(trial, machine, state=Session.State.DONE, looks=[4])
        build_comparison(session, verdicts[machine.name], case=build_case(case))
    Trial.objects.filter(pk=trial.pk).update(state=Trial.State.DONE)
    trial.refresh_from_db()
    answer_branch(trial)
    finding.refresh_from_db()
    return finding


@pytest.mark.usefixtures("history")
def test_a_change_that_is_seen_again_is_claimed() -> None:
    finding = confirmed({"h1": Verdict.REGRESSED, "z1": Verdict.UNCHANGED})
    assert finding.state in Finding.STANDING
    assert finding.kind == Finding.Kind.REGRESSED
    assert finding.headline.startswith("Regressed on haswell")
    assert {verdict.verdict for verdict in finding.verdicts.all()} == {"regressed", "unchanged"}
    assert ChangePoint.objects.get().state == ChangePoint.State.SETTLED


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("verdict", [Verdict.UNCHANGED, Verdict.INCONCLUSIVE, Verdict.IMPROVED])
def test_what_is_not_seen_again_the_same_way_is_no_claim(verdict: str) -> None:
    finding = confirmed({"h1": verdict, "z1": Verdict.UNCHANGED})
    assert finding.state == Finding.State.INVALID
    assert "not seen again" in finding.reason
    assert ChangePoint.objects.get().state == ChangePoint.State.WITHDRAWN


@pytest.mark.usefixtures("history")
def test_a_change_of_another_microarchitecture_does_not_confirm_it() -> None:
    finding = confirmed({"h1": Verdict.UNCHANGED, "z1": Verdict.REGRESSED})
    assert finding.state == Finding.State.INVALID


def test_what_joined_after_the_trial_was_asked_for_gets_a_question_of_its_own(history: History) -> None:
    history.steps(103, {("z1", 2): 0.1})
    assert Finding.objects.count() == 1
    refuted = confirmed({"h1": Verdict.UNCHANGED, "z1": Verdict.UNCHANGED})
    assert refuted.state == Finding.State.INVALID
    assert [point.state for point in refuted.change_points.all()] == [ChangePoint.State.WITHDRAWN]
    asked = Finding.objects.exclude(pk=refuted.pk).select_related("trial").get()
    assert asked.trial
    assert (asked.state, asked.trial.benchmarks) == ("candidate", ["mm-basic/case-2"])
    assert [point.timeline.machine.name for point in asked.change_points.all()] == ["z1"]


def told(history: History, point: ChangePoint, state: str, place: int) -> list[ChangePoint]:
    """The watch decides about a suspect; returns what must be asked once more, and asks it."""
    head = MeasuredHead.objects.latest("place")
    fleet = read_fleet(head, [], virtual=False)
    news = Told(str(point.timeline_id), point.first_place, place, place - 1, point.effect, 9.0, state)
    again = publish(head, fleet, Looked(fleet.watch, (news,)))
    take_up_news(head, again)
    point.refresh_from_db()
    return again


@pytest.mark.parametrize(
    ("decided", "place", "state", "stays"),
    [("withdrawn", 103, "withdrawn", True), ("settled", 103, "settled", True), ("settled", 106, "settled", False)],
)
def test_what_joined_and_fresh_boots_did_not_see_goes_on_as_its_timeline_says(
    history: History, decided: str, place: int, state: str, *, stays: bool
) -> None:
    history.passed(5)
    history.steps(103, {("z1", 2): 0.1}, really=place)
    ChangePoint.objects.update(finding=Finding.objects.earliest("pk"))
    finding = Finding.objects.earliest("pk")
    Finding.objects.exclude(pk=finding.pk).delete()
    confirmed({"h1": Verdict.REGRESSED, "z1": Verdict.UNCHANGED})
    seen, joined = ChangePoint.objects.order_by("pk")
    assert (seen.state, joined.state) == ("settled", "suspect")
    again = told(history, joined, decided, place)
    assert (joined.state, joined.finding_id == finding.pk, again == []) == (state, stays, stays)
    assert Finding.objects.count() == 1 + (not stays)


def test_a_cell_that_fresh_boots_saw_stand_still_does_not_join(history: History) -> None:
    finding = confirmed({"h1": Verdict.REGRESSED, "z1": Verdict.UNCHANGED})
    history.steps(103, {("z1", 0): 0.1})
    assert finding.change_points.count() == 1
    assert Finding.objects.count() == 2


def test_machines_of_one_microarchitecture_that_disagree_are_a_question_and_no_finding() -> None:
    history = History({"h1": "haswell", "h2": "haswell"})
    history.head()
    history.passed(3)
    history.steps(103, {("h1", 0): 0.1})
    finding = confirmed({"h1": Verdict.REGRESSED, "h2": Verdict.UNCHANGED})
    assert finding.state == Finding.State.INVALID
    question = MachineQuestion.objects.get()
    assert (question.kind, question.finding) == ("disagreement", finding)


def test_a_quarantined_machine_contradicts_nobody() -> None:
    history = History({"h1": "haswell", "h2": "haswell"})
    history.head()
    history.passed(3)
    history.steps(103, {("h1", 0): 0.1})
    Machine.objects.filter(name="h2").update(health=Machine.Health.QUARANTINED, health_reason="its fan stands still")
    finding = confirmed({"h1": Verdict.REGRESSED, "h2": Verdict.UNCHANGED})
    assert finding.state in Finding.STANDING
    assert finding.kind == Finding.Kind.REGRESSED


@pytest.mark.usefixtures("history")
def test_answering_twice_changes_nothing() -> None:
    finding = confirmed({"h1": Verdict.REGRESSED, "z1": Verdict.UNCHANGED})
    before = (finding.state, finding.headline, Comparison.objects.count())
    assert finding.trial
    answer_branch(finding.trial)
    finding.refresh_from_db()
    assert (finding.state, finding.headline, Comparison.objects.count()) == before


def test_what_joined_one_that_could_not_be_measured_gets_a_question_of_its_own(history: History) -> None:
    finding, trial = suspected()
    history.steps(103, {("z1", 2): 0.1})
    assert finding.change_points.count() == 2
    Trial.objects.filter(pk=trial.pk).update(state=Trial.State.FAILED, reason="it does not boot")
    trial.refresh_from_db()
    answer_branch(trial)
    assert finding.change_points.count() == 1
    assert Finding.objects.latest("pk").state == Finding.State.CANDIDATE


@pytest.mark.usefixtures("history")
def test_a_confirmation_that_fails_leaves_no_claim() -> None:
    finding, trial = suspected()
    Trial.objects.filter(pk=trial.pk).update(state=Trial.State.FAILED, reason="it does not boot")
    trial.refresh_from_db()
    answer_branch(trial)
    finding.refresh_from_db()
    assert (finding.state, finding.reason) == ("invalid", "could not be measured again: it does not boot")
    assert ChangePoint.objects.get().state == ChangePoint.State.SUSPECT


@pytest.mark.usefixtures("history")
def test_a_suspicion_that_is_taken_back_ends_its_trial() -> None:
    finding, trial = suspected()
    ChangePoint.objects.update(state=ChangePoint.State.WITHDRAWN)
    tend_branches()
    finding.refresh_from_db()
    trial.refresh_from_db()
    assert (finding.state, finding.reason) == ("invalid", "later points took the suspicion back")
    assert trial.state == Trial.State.CANCELED


@pytest.mark.usefixtures("history")
def test_kernels_of_the_same_code_refute_what_was_suspected_between_them() -> None:
    finding, trial = suspected()
    for machine in trial.machines.all():
        build_trial_session(trial, machine, state=Session.State.DONE, looks=[4], reason_code=Because.SAME_CODE)
    Trial.objects.filter(pk=trial.pk).update(state=Trial.State.DONE)
    trial.refresh_from_db()
    answer_branch(trial)
    finding.refresh_from_db()
    assert (finding.state, finding.reason) == ("invalid", "the kernels before and after run the same code")
    assert ChangePoint.objects.get().state == ChangePoint.State.WITHDRAWN


@pytest.mark.parametrize(("place", "asked_again"), [(103, False), (105, True)])
def test_a_refuted_step_is_asked_again_where_it_settles_elsewhere(
    history: History, place: int, asked_again: bool
) -> None:
    confirmed({"h1": Verdict.UNCHANGED, "z1": Verdict.UNCHANGED})
    history.passed(2)
    again = told(history, ChangePoint.objects.get(), "settled", place)
    assert [point.place for point in again] == ([105] if asked_again else [])
    assert Finding.objects.count() == 1 + asked_again
