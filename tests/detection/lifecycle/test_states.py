"""The table of states: what may follow what, and that every step keeps who and why."""

import pytest

from server.core.models import Transition
from server.detection.models import Finding, FindingState
from tests.builders import because, build_finding, build_series

pytestmark = pytest.mark.django_db

_ENDS = {"fixed", "accepted", "invalid", "superseded"}
MAY_FOLLOW = {
    "candidate": {"confirmed", "accepted", "invalid", "superseded"},
    "confirmed": {"candidate", "bisecting", "reported", *_ENDS},
    "bisecting": {"confirmed", "reported", *_ENDS},
    "reported": {"bisecting", *_ENDS},
    "fixed": {"confirmed", "reported", "superseded"},
    "accepted": {"candidate", "confirmed", "reported", "fixed", "invalid", "superseded"},
    "invalid": set(),
    "superseded": set(),
}


def test_the_table_is_the_one_that_is_documented() -> None:
    assert set(MAY_FOLLOW) == set(FindingState.values)
    assert {str(state): set(map(str, Finding.NEXT.get(state, ()))) for state in FindingState} == MAY_FOLLOW


def test_every_step_of_the_table_is_taken_and_kept_with_who_and_why() -> None:
    finding = build_finding(build_series())
    for before, states in MAY_FOLLOW.items():
        for after in sorted(states):
            Finding.objects.filter(pk=finding.pk).update(state=before)
            finding.refresh_from_db()
            assert finding.advance(after, because(f"from {before}"), actor="ada")
            line = Transition.objects.filter(subject="finding", subject_id=finding.pk).latest("id")
            assert (line.before, line.after, line.reason, line.actor) == (before, after, f"from {before}", "ada")


def test_no_other_step_is_possible() -> None:
    finding = build_finding(build_series())
    for before, states in MAY_FOLLOW.items():
        finding.state = before
        for after in set(FindingState.values) - states:
            with pytest.raises(ValueError, match=f"no way from {before} to {after}"):
                finding.advance(after, because("why not"))
    finding.refresh_from_db()
    assert finding.state == Finding.State.CONFIRMED
