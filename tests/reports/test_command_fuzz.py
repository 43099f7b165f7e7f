"""Thousands of answers to our mails: nobody is obeyed who may not be, and each mail leaves a reason."""

import pytest
from pytest_django.fixtures import Settings

from server.reports.models import CommandState, MailCommand
from tests.fuzz.replies import OURS, Attack

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("seed", range(3))
def test_hostile_answers_are_not_obeyed_and_leave_their_reasons(seed: int, settings: Settings) -> None:
    settings.MAIL_FROM = f"Tidemark <{OURS}>"
    outcome = Attack(seed, threads=6).run(150)
    assert outcome.troubles == {}
    states = set(MailCommand.objects.values_list("state", flat=True))
    assert states == {CommandState.DONE, CommandState.UNDER_WAY, CommandState.REFUSED, CommandState.IGNORED}
    wanted = {"obeyed", "not-allowed", "not-proved", "target-open", "not-own-words", "by-robot", "own-mail", "doubled"}
    assert wanted <= set(outcome.codes)
