"""`manage.py session`: how soon a session is wanted, said by a person."""

import io

import pytest
from django.core.management import CommandError, call_command

from server.core.models import Transition
from server.lab.models import Session
from server.lab.scheduling.decision import decide
from server.lab.scheduling.reader import read_snapshot
from tests.builders import build_machine, build_series, build_session

pytestmark = pytest.mark.django_db


def command(*words: str) -> str:
    out = io.StringIO()
    call_command("session", *words, stdout=out)
    return out.getvalue()


def test_priority_that_a_person_gives_lets_a_session_go_first_and_stands_in_the_history() -> None:
    first, second = build_session(), build_session(build_series())
    assert [one.id for one in decide(read_snapshot())] == [first.pk]
    said = command(str(second.pk), "--priority", "5", "--by", "ada")
    assert said == f"session {second.pk} on vm-haswell: priority 0 -> 5\n"
    assert [one.id for one in decide(read_snapshot())] == [second.pk]
    line = Transition.objects.filter(subject="session", subject_id=second.pk).latest("id")
    assert (line.actor, line.reason, line.before, line.after) == ("ada", "priority 0 -> 5", "planned", "planned")
    assert "place 1 for vm-haswell: goes with the next round" in command(str(second.pk))


def test_deadline_and_needs_are_set_and_taken_back() -> None:
    build_machine(capabilities=["cxl"])
    session = build_session()
    command(str(session.pk), "--deadline", "2099-12-01T18:00", "--needs", "cxl")
    session.refresh_from_db()
    assert (f"{session.deadline_at}", session.needs) == ("2099-12-01 18:00:00+00:00", ["cxl"])
    said = command(str(session.pk), "--deadline", "none", "--needs", "none")
    assert "deadline 2099-12-01 18:00 UTC -> none; needs cxl -> nothing" in said
    session.refresh_from_db()
    assert (session.deadline_at, session.needs) == (None, [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--priority", "100000"], "priority 100000: from -1000 to 1000"),
        (["--deadline", "2020-01-01T00:00"], "is in the past"),
        (["--deadline", "2026-99-01T00:00"], "write it as 2026-12-01T18:00"),
        (["--deadline", "tomorrow"], "write it as 2026-12-01T18:00"),
        (["--needs", "cxll"], "no machine has all of cxll; capabilities of machines: cxl"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_changes_nothing(words: list[str], message: str) -> None:
    build_machine(capabilities=["cxl"])
    session = build_session()
    with pytest.raises(CommandError, match=message):
        command(str(session.pk), *words)
    assert Transition.objects.filter(subject="session").count() == 1


def test_session_that_is_over_or_unknown_is_refused() -> None:
    session = build_session(state=Session.State.DONE)
    with pytest.raises(CommandError, match="is over: done"):
        command(str(session.pk), "--priority", "1")
    with pytest.raises(CommandError, match="there is no session 999999"):
        command("999999")
