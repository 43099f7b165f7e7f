"""`manage.py finding` and the actions of the admin: what people decide, by whom and why."""

import io
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from server.core.models import Transition
from server.detection.models import Acceptance, Finding
from tests.builders import because
from tests.detection.lifecycle.findings import DOWN, UP, candidate
from tests.detection.measured import physical

pytestmark = pytest.mark.django_db


@pytest.fixture
def finding() -> Finding:
    found = candidate({physical("m1", "zen3"): {"fork": UP}, physical("m2", "zen5"): {"fork": DOWN}})
    found.advance(Finding.State.CONFIRMED, because("judged"))
    return found


def command(*words: object) -> str:
    out = io.StringIO()
    call_command("finding", *map(str, words), stdout=out)
    return out.getvalue()


def test_show_tells_verdicts_ledger_and_history(finding: Finding) -> None:
    command("accept", finding.pk, "worth it", "--by", "ada")
    told = command("show", finding.pk)
    assert f"finding {finding.pk}: split, known and accepted" in told
    assert "  zen3: regressed" in told
    assert "all metrics on all microarchitectures, by ada: worth it" in told
    assert "confirmed -> accepted by ada: accepted (all): worth it" in told


def test_accept_takes_metric_uarch_and_day(finding: Finding) -> None:
    words = ("--metric", "mm-basic:time", "--uarch", "zen3", "--until", "2099-12-31")
    assert "known and accepted" in command("accept", finding.pk, "worth it", "--by", "ada", *words)
    line = Acceptance.objects.get()
    assert (line.person, line.uarchs, line.expires_at) == ("ada", ["zen3"], datetime(2100, 1, 1, tzinfo=UTC))
    assert "confirmed" not in command("show", finding.pk).splitlines()[0]


def test_unaccept_takes_lines_back(finding: Finding) -> None:
    command("accept", finding.pk, "worth it", "--by", "ada")
    assert "judged from interleaved boots" in command("unaccept", finding.pk, "not so", "--by", "bob")
    with pytest.raises(CommandError, match="has not a line in the ledger that holds"):
        command("unaccept", finding.pk, "again", "--by", "bob")


def test_invalidate_says_what_it_was(finding: Finding) -> None:
    assert "withdrawn" in command("invalidate", finding.pk, "seen once", "--why", "noise", "--by", "ada")
    line = Transition.objects.filter(subject="finding").latest("id")
    assert (line.after, line.reason, line.actor) == ("invalid", "noise: seen once", "ada")


def test_reopen_takes_back_that_it_is_mended(finding: Finding) -> None:
    finding.advance(Finding.State.REPORTED, because("told"))
    finding.advance(Finding.State.FIXED, because("mended"))
    assert "told to people" in command("reopen", finding.pk, "it is back in rc3", "--by", "ada")
    with pytest.raises(CommandError, match="is told to people, not mended"):
        command("reopen", finding.pk, "again", "--by", "ada")


REFUSED: tuple[tuple[tuple[object, ...], str], ...] = (
    (("show", 999_999), "there is no finding 999999"),
    (("accept", "ID", "worth it"), "--by"),
    (("accept", "ID", "worth it", "--by", " "), "who decides this is not said"),
    (("accept", "ID", "worth it", "--by", "ada", "--metric", "time"), "there is no metric 'time'"),
    (("accept", "ID", "worth it", "--by", "ada", "--until", "soon"), "'soon' is no day"),
    (("accept", "ID", "worth it", "--by", "ada", "--uarch", "zen5"), "did not regress on zen5; it did on zen3"),
    (("accept", "ID", "worth it", "--by", "ada", "--until", "2001-01-01"), "is over"),
    (("invalidate", "ID", "so", "--by", "ada"), "--why"),
    (("invalidate", "ID", " ", "--why", "noise", "--by", "ada"), "without a reason"),
    (("invalidate", "ID", "so", "--why", "mood", "--by", "ada"), "invalid choice"),
)


def test_what_makes_no_sense_is_refused_clearly(finding: Finding) -> None:
    for words, said in REFUSED:
        with pytest.raises(CommandError, match=said):
            command(*(finding.pk if word == "ID" else word for word in words))
    finding.refresh_from_db()
    assert finding.state == Finding.State.CONFIRMED


def act(client: Client, page: str, action: str, pk: int, reason: str) -> str:
    chosen = {"action": action, "_selected_action": [pk], "reason": reason}
    return client.post(reverse(f"admin:detection_{page}_changelist"), chosen, follow=True).content.decode()


def test_the_admin_decides_in_the_name_of_its_user(finding: Finding, client: Client) -> None:
    client.force_login(User.objects.create_superuser("ada"))
    assert "1 done" in act(client, "finding", "accept_all", finding.pk, "worth it")
    assert "1 done" in act(client, "acceptance", "withdraw", Acceptance.objects.get().pk, "not so")
    assert "why is not said" in act(client, "finding", "accept_all", finding.pk, "")
    assert "1 done" in act(client, "finding", "invalidate_layout", finding.pk, "moved by a pad")
    finding.refresh_from_db()
    assert (finding.state, finding.reason) == (Finding.State.INVALID, "layout: moved by a pad")
    lines = Transition.objects.filter(subject="finding", actor="ada").order_by("id")
    assert [line.after for line in lines] == ["accepted", "confirmed", "invalid"]


def test_who_may_only_look_cannot_decide(finding: Finding, client: Client) -> None:
    client.force_login(User.objects.create_user("bob", is_staff=True))
    act(client, "finding", "accept_all", finding.pk, "worth it")
    finding.refresh_from_db()
    assert finding.state == Finding.State.CONFIRMED
