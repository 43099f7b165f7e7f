from dataclasses import replace

import pytest

from server.core.errors import DomainError
from server.lab.models import Trial, TrialState
from server.lab.trials.question import USUAL_LOOKS, Ask, want_trial
from tests.builders import because, build_machine, build_revision

pytestmark = pytest.mark.django_db


def ask() -> Ask:
    base = build_revision()
    return Ask("head:1:2:3", "head", base, build_revision(base.tree, base), (3,), "t" * 16, machines=(build_machine(),))


def test_a_question_asked_twice_is_one_trial() -> None:
    question = ask()
    trial = want_trial(question)
    trial.advance(TrialState.CANCELED, because("no longer"))
    again = want_trial(replace(question, looks=USUAL_LOOKS))
    assert (again, again.state, again.looks) == (trial, TrialState.CANCELED, [3])
    assert [machine.name for machine in trial.machines.all()] == ["vm-haswell"]
    assert Trial.objects.count() == 1


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"key": ""}, "from 1 to 120 characters"),
        ({"key": "k" * 121}, "from 1 to 120 characters"),
        ({"purpose": "curiosity"}, "there is no purpose 'curiosity'"),
        ({"looks": ()}, "looks"),
        ({"looks": (6, 4)}, "looks"),
        ({"budget_seconds": 0.0}, "a budget of 0.0 seconds"),
        ({"min_effect": 1.0}, "a minimum effect of 1.0"),
    ],
)
def test_nonsense_is_refused_with_its_question(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(DomainError, match=told) as refused:
        want_trial(replace(ask(), **wrong))  # type: ignore[arg-type]
    assert refused.value.code == "bad-trial"
    assert not Trial.objects.exists()


def test_a_machine_is_named_once() -> None:
    machine = build_machine()
    with pytest.raises(DomainError, match="named twice"):
        want_trial(replace(ask(), machines=(machine, machine)))
