"""Questions about machines."""

import pytest
from django.test import Client

from server.core.errors import DomainError
from server.core.models import Transition
from server.detection.models import MachineQuestion, Verdict
from server.detection.noise.questions import answer_question, ask_about_disagreements, open_question
from server.lab.models import Machine, Session
from server.sources.models import Series
from tests.builders import build_case, build_comparison, build_finding, build_machine, build_series, build_session

pytestmark = pytest.mark.django_db


def say(series: Series, machine: Machine, **verdicts: Verdict) -> None:
    session = build_session(series, machine, state=Session.State.DONE)
    for case, verdict in verdicts.items():
        build_comparison(session, verdict, case=build_case(case))


def asked(series: Series) -> list[tuple[str, str]]:
    finding = build_finding(series)
    ask_about_disagreements(finding)
    ask_about_disagreements(finding)
    return [(row.machine.name, row.detail) for row in MachineQuestion.objects.order_by("pk")]


def test_asking_twice_makes_one_question_and_an_answer_stays() -> None:
    machine = build_machine()
    first = open_question("event:1:2", MachineQuestion.Kind.EVENT, machine, "most of it moved", place=7)
    answer_question(first, "ada", "  new\nmicrocode ")
    again = open_question("event:1:2", MachineQuestion.Kind.EVENT, machine, "most of it moved again")
    assert (again.pk, again.state, again.reason, again.place) == (first.pk, "answered", "new microcode", 7)
    lines = Transition.objects.filter(subject="machinequestion", subject_id=first.pk)
    assert [(line.after, line.actor) for line in lines] == [("open", ""), ("answered", "ada")]


@pytest.mark.parametrize(("actor", "text", "code"), [("", "looked", "no-actor"), ("ada", " \n", "no-reason")])
def test_an_answer_needs_a_name_and_a_text(actor: str, text: str, code: str) -> None:
    question = open_question("event:1:2", MachineQuestion.Kind.EVENT, build_machine(), "most of it moved")
    with pytest.raises(DomainError) as caught:
        answer_question(question, actor, text)
    assert caught.value.code == code


def test_a_second_answer_is_refused() -> None:
    question = open_question("event:1:2", MachineQuestion.Kind.EVENT, build_machine(), "most of it moved")
    stale = MachineQuestion.objects.get(pk=question.pk)
    answer_question(question, "ada", "microcode")
    for row in (question, stale):
        with pytest.raises(DomainError, match="answered before"):
            answer_question(row, "bob", "firmware")


def test_a_person_answers_in_the_admin_and_says_what_was_found(admin_client: Client) -> None:
    question = open_question("event:1:2", MachineQuestion.Kind.EVENT, build_machine(), "most of it moved")
    for reason in ("", "new firmware"):
        data = {"action": "answer", "_selected_action": [question.pk], "reason": reason}
        admin_client.post("/admin/detection/machinequestion/", data)
        question.refresh_from_db()
        assert question.state == ("answered" if reason else "open")
    line = Transition.objects.filter(subject="machinequestion", subject_id=question.pk).latest("id")
    assert (line.reason, line.actor) == ("new firmware", "admin")


def test_machines_of_one_uarch_that_disagree_make_one_question_about_the_odd_one() -> None:
    series = build_series()
    say(series, build_machine("one"), copy=Verdict.REGRESSED, clear=Verdict.REGRESSED)
    say(series, build_machine("two"), copy=Verdict.UNCHANGED, clear=Verdict.UNCHANGED)
    say(series, build_machine("three"), copy=Verdict.REGRESSED, clear=Verdict.REGRESSED)
    ((machine, detail),) = asked(series)
    assert machine == "two"
    assert detail == (
        "machines of haswell disagree: "
        "time of clear (all) is regressed on one, regressed on three, unchanged on two, "
        "time of copy (all) is regressed on one, regressed on three, unchanged on two"
    )


def test_a_machine_that_cannot_tell_contradicts_nobody() -> None:
    series = build_series()
    say(series, build_machine("one"), copy=Verdict.REGRESSED)
    say(series, build_machine("two"), copy=Verdict.INCONCLUSIVE)
    assert asked(series) == []


def test_machines_of_two_uarchs_may_differ() -> None:
    series = build_series()
    say(series, build_machine("one"), copy=Verdict.REGRESSED)
    say(series, build_machine("two", "zen3"), copy=Verdict.IMPROVED)
    assert asked(series) == []


def test_a_virtual_machine_is_not_asked_to_agree() -> None:
    series = build_series()
    say(series, build_machine("one"), copy=Verdict.REGRESSED)
    say(series, build_machine("two", virtual=True), copy=Verdict.IMPROVED)
    assert asked(series) == []
