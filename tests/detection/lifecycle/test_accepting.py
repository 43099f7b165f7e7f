"""The ledger: who accepted which regressions, and until when."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.errors import DomainError
from server.core.models import Transition
from server.detection.lifecycle.ledger import accept, expire_acceptances, withdraw_acceptance
from server.detection.models import Acceptance, Finding
from server.detection.sweep import tend_life
from tests.builders import because, build_metric
from tests.detection.lifecycle.findings import DOWN, SAME, UP, candidate
from tests.detection.measured import physical

pytestmark = pytest.mark.django_db


@pytest.fixture
def finding() -> Finding:
    """Regressed on zen3 and zen4, improved on zen5."""
    one, two, three = physical("m1", "zen3"), physical("m2", "zen4"), physical("m3", "zen5")
    found = candidate({one: {"fork": UP}, two: {"fork": UP}, three: {"fork": DOWN}})
    found.advance(Finding.State.CONFIRMED, because("judged"))
    return found


def state_of(finding: Finding) -> str:
    finding.refresh_from_db()
    return finding.state


def later(monkeypatch: pytest.MonkeyPatch, at: datetime) -> None:
    monkeypatch.setattr(clock, "now", lambda: at)


def test_all_of_it_accepted_makes_the_finding_accepted(finding: Finding) -> None:
    accept(finding, actor="ada", reason="a price worth paying")
    assert state_of(finding) == Finding.State.ACCEPTED
    line = Transition.objects.filter(subject="finding", subject_id=finding.pk).latest("id")
    assert (line.before, line.after, line.actor) == ("confirmed", "accepted", "ada")
    assert line.reason == "accepted (all): a price worth paying"


def test_a_part_of_it_leaves_the_finding_until_the_rest_is_accepted(finding: Finding) -> None:
    accept(finding, actor="ada", reason="zen3 is old", uarchs=["zen3"])
    assert state_of(finding) == Finding.State.CONFIRMED
    assert Transition.objects.filter(subject="finding", actor="ada", before="confirmed", after="confirmed").exists()
    accept(finding, actor="bob", reason="so is this", uarchs=["zen4"], metric=build_metric())
    assert state_of(finding) == Finding.State.ACCEPTED
    assert finding.reason == "accepted (time on zen4): so is this"


def test_an_acceptance_that_is_taken_back_brings_the_state_before(finding: Finding) -> None:
    finding.advance(Finding.State.REPORTED, because("told"))
    line = accept(finding, actor="ada", reason="fine")
    assert withdraw_acceptance(line, actor="bob", reason="not fine")
    assert not withdraw_acceptance(line, actor="bob", reason="not fine")
    assert state_of(finding) == Finding.State.REPORTED
    assert finding.reason == f"acceptance {line.pk} is withdrawn: not fine"


def test_what_was_bisected_comes_back_confirmed(finding: Finding) -> None:
    finding.advance(Finding.State.BISECTING, because("looking"))
    line = accept(finding, actor="ada", reason="fine")
    withdraw_acceptance(line, actor="ada", reason="not fine")
    assert state_of(finding) == Finding.State.CONFIRMED


def test_another_line_goes_on_covering(finding: Finding) -> None:
    line = accept(finding, actor="ada", reason="fine")
    accept(finding, actor="bob", reason="fine with me, too")
    withdraw_acceptance(line, actor="ada", reason="not fine")
    assert state_of(finding) == Finding.State.ACCEPTED


def test_the_end_of_an_acceptance_is_told_to_the_hour(finding: Finding) -> None:
    """The last day that a person names ends when the next one begins."""
    accept(finding, actor="ada", reason="fine", expires_at=datetime(2040, 4, 1, tzinfo=UTC))
    finding.refresh_from_db()
    assert finding.reason == "accepted (all until 2040-04-01 00:00 UTC): fine"


def test_an_acceptance_ends_on_its_day(finding: Finding, monkeypatch: pytest.MonkeyPatch) -> None:
    finding.advance(Finding.State.REPORTED, because("told"))
    end = clock.now() + timedelta(days=30)
    accept(finding, actor="ada", reason="until the release", expires_at=end)
    assert expire_acceptances() == 0
    later(monkeypatch, end + timedelta(seconds=1))
    assert expire_acceptances() == 1
    assert expire_acceptances() == 0
    assert (state_of(finding), finding.reason) == (Finding.State.REPORTED, "its acceptance has expired")


def test_the_sweep_has_acceptances_expire(
    finding: Finding, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.BISECT_HOURS = 0
    end = clock.now() + timedelta(days=30)
    accept(finding, actor="ada", reason="until the release", expires_at=end)
    later(monkeypatch, end + timedelta(days=1))
    tend_life()
    assert state_of(finding) == Finding.State.CONFIRMED


REFUSED: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    (" ", "fine", {}, "nobody"),
    ("ada", " ", {}, "no-reason"),
    ("ada", "fine", {"uarchs": ["zen5"]}, "uarch-unknown"),
    ("ada", "fine", {"expires_at": clock.now() - timedelta(days=1)}, "expired"),
)


def test_what_makes_no_sense_is_refused(finding: Finding) -> None:
    for actor, reason, fields, code in REFUSED:
        with pytest.raises(DomainError) as error:
            accept(finding, actor=actor, reason=reason, **fields)
        assert error.value.code == code
    assert not Acceptance.objects.exists()


def test_nothing_is_there_to_accept_in_another_metric_or_an_invalid_finding(finding: Finding) -> None:
    with pytest.raises(DomainError, match="did not regress in rate"):
        accept(finding, actor="ada", reason="fine", metric=build_metric("rate"))
    finding.advance(Finding.State.INVALID, because("noise"))
    with pytest.raises(DomainError, match="is withdrawn: nothing to accept"):
        accept(finding, actor="ada", reason="fine")


def test_an_improvement_needs_no_acceptance() -> None:
    found = candidate({physical("m1", "zen3"): {"fork": DOWN, "mmap": SAME}})
    with pytest.raises(DomainError, match="did not regress"):
        accept(found, actor="ada", reason="fine")
