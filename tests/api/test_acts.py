"""What people do by way of the API: the same as on the pages, once, with their name and that of their token."""

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client

from server.api import permissions
from server.core import clock
from server.core.access.people import issue_person_token
from server.core.models import PersonToken, Transition, Tries
from server.detection.findings.checks import Name, checks_named
from server.detection.lifecycle import triage
from server.detection.lifecycle.retest import retest_series
from server.detection.models import Acceptance, Comparison, Finding, FindingVerdict, Verdict
from server.detection.on_trial_over import answer_trial
from server.lab.models import Enrolment, Machine, Session, Trial, TrialState
from server.reports.models import Report
from server.reports.progress import series_history
from server.reports.writing import compose_report
from server.sources.models import Series
from server.sources.series.requests import posting_mark
from tests.builders import (
    build_comparison,
    build_finding,
    build_machine,
    build_series,
    build_session,
    build_trial_session,
)

pytestmark = pytest.mark.django_db
WHY = "seen on two machines"
ACTOR = "ada (token ci)"
Scope = PersonToken.Scope


@pytest.fixture
def ada() -> User:
    user = User.objects.create_user("ada")
    rights = [name.partition(".")[2] for name in permissions.PERMISSIONS.values()]
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    return user


@pytest.fixture
def client(ada: User) -> Client:
    return Client(headers={"Authorization": f"Bearer {issue_person_token(ada, name='ci', scopes=Scope.values).secret}"})


def told(client: Client, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = client.post(f"/api/v1/{path}", body, "application/json")
    assert answer.status_code == status, answer.content
    found: dict[str, Any] = answer.json()
    return found


# --- tokens ----------------------------------------------------------------------------


def secret_of(*arguments: str, capsys: pytest.CaptureFixture[str], **options: Any) -> str:
    call_command("person_token", *arguments, **options)
    return capsys.readouterr().out.strip()


def test_command_makes_lists_and_ends_tokens(ada: User, capsys: pytest.CaptureFixture[str]) -> None:
    first = secret_of("ada", "--name", "ci", "--scope", "triage", "--scope", "submit", capsys=capsys)
    client = Client(headers={"Authorization": f"Bearer {first}"})
    assert told(client, "findings/1/reopen/", 404, reason=WHY)["code"] == "not-found"
    assert "ci" in secret_of("ada", "--list", capsys=capsys)
    second = secret_of("ada", "--name", "ci", "--scope", "triage", capsys=capsys)
    told(client, "findings/1/reopen/", 401, reason=WHY)
    again = Client(headers={"Authorization": f"Bearer {second}"})
    told(again, "findings/1/reopen/", 404, reason=WHY)
    assert secret_of("ada", "--revoke", capsys=capsys) == "1 revoked"
    told(again, "findings/1/reopen/", 401, reason=WHY)
    assert first not in str(PersonToken.objects.values())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"name": "ci"}, "needs a scope"),
        ({"name": "a b", "scope": ["triage"]}, "letters, digits"),
        ({"name": "", "scope": ["triage"]}, "letters, digits"),
        ({"name": "ci", "scope": ["triage"], "days": 0.0}, "more than 0 days"),
        ({"name": "ci", "scope": ["root"]}, "no scope root"),
    ],
)
def test_command_makes_no_token_that_cannot_be_meant(ada: User, options: dict[str, Any], why: str) -> None:
    with pytest.raises(CommandError, match=why):
        call_command("person_token", "ada", **options)


def test_token_ends_with_its_time(ada: User) -> None:
    with time_machine.travel("2026-01-01T00:00:00Z", tick=False) as time:
        secret = issue_person_token(ada, name="ci", scopes=["triage"], days=2).secret
        client = Client(headers={"Authorization": f"Bearer {secret}"})
        told(client, "findings/1/reopen/", 404, reason=WHY)
        time.shift(timedelta(days=2))
        answer = client.post("/api/v1/findings/1/reopen/", {"reason": WHY}, "application/json")
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="tidemark"')


def test_acts_of_one_token_are_counted(client: Client, ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "MOST_ACTS", 2)
    for _ in range(2):
        told(client, "findings/1/reopen/", 404, reason=WHY)
    answer = client.post("/api/v1/findings/1/reopen/", {"reason": WHY}, "application/json")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "900")
    # Another token, and its owner in a browser, are counted for themselves.
    person = Client()
    person.force_login(ada)
    told(person, "findings/1/reopen/", 404, reason=WHY)
    with time_machine.travel(clock.now() + timedelta(minutes=16)):
        told(client, "findings/1/reopen/", 404, reason=WHY)


def test_session_needs_its_csrf_token(ada: User) -> None:
    forged = Client(enforce_csrf_checks=True)
    forged.force_login(ada)
    assert told(forged, "findings/1/reopen/", 403, reason=WHY)["code"] == "permission-denied"
    page = forged.get("/admin/")
    mark = page.cookies["csrftoken"].value if "csrftoken" in page.cookies else ""
    answer = forged.post(
        "/api/v1/findings/1/reopen/", {"reason": WHY}, "application/json", headers={"X-CSRFToken": mark or "x" * 32}
    )
    assert answer.status_code == (404 if mark else 403)


@pytest.mark.parametrize(
    "body",
    [
        b"[]", b"null", b'"x"', b"{", b"\xff", b'{"reason": 1e999}', b'{"reason": ""}', b'{"reason": " "}',
        b'{"reason": "a\\u0000b"}', b'{"reason": "\\ud800"}', b'{"reason": ["x"]}', b'{"reason": "x", "raeson": "y"}',
        b"[" * 100_000, b'{"reason": "' + b"x" * 501 + b'"}',
    ],
)  # fmt: skip
def test_body_that_is_none_is_refused(client: Client, body: bytes) -> None:
    answer = client.post("/api/v1/findings/1/reopen/", body, "application/json")
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")


def test_unknown_parameter_and_wrong_type_are_refused(client: Client) -> None:
    answer = client.post("/api/v1/findings/1/reopen/?reason=x", {"reason": WHY}, "application/json")
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["reason"])
    assert client.post("/api/v1/findings/1/reopen/", "reason=x", "text/plain").status_code == 415


# --- series ----------------------------------------------------------------------------


def test_series_is_approved_as_it_was_read_and_once(client: Client) -> None:
    series = build_series(state=Series.State.HELD)
    path = f"series/{series.pk}/approval/"
    read = Client().get(f"/api/v1/{path}").json()
    assert (read["may_be_approved"], read["seen"]) == (True, posting_mark(series))
    assert any("ada@example.org" in line for line in read["told"])
    assert told(client, path, 409, reason=WHY, seen="0" * 32)["code"] == "posting-changed"
    assert told(client, path, reason=WHY, seen=read["seen"]) == {"series": series.pk, "state": "ready", "acted": True}
    assert told(client, path, reason=WHY, seen=read["seen"])["acted"] is False
    line = Transition.objects.get(subject="series", subject_id=series.pk, after="ready")
    assert (line.actor, line.reason) == (ACTOR, f"approved by {ACTOR}: {WHY}")


def test_series_that_is_not_held_is_not_approved(client: Client) -> None:
    series = build_series()
    assert told(client, f"series/{series.pk}/approval/", 409, reason=WHY, seen="x")["code"] == "not-held"
    told(client, f"series/{series.pk}/approval/", 400, reason=WHY)


@pytest.fixture
def measured() -> Finding:
    """A finding whose trial is over."""
    session = build_session(state=Session.State.DONE)
    build_comparison(session, Verdict.REGRESSED, ratio=1.2)
    assert session.series is not None
    Trial.objects.update(state=TrialState.DONE)
    return build_finding(session.series)


def test_series_is_measured_again_by_a_trial_of_its_own(client: Client, measured: Finding) -> None:
    path = f"series/{measured.series_id}/retest/"
    answer = client.post(f"/api/v1/{path}", {"reason": WHY}, "application/json")
    assert answer.status_code == 202
    trial = Trial.objects.get(purpose=Trial.Purpose.RETEST)
    assert answer.json() == {
        "series": measured.series_id, "trial": trial.pk, "state": "wanted", "machines": [], "benchmarks": [],
        "acted": True,
    }  # fmt: skip
    assert client.get(answer.headers["Location"]).json()["results"] == []
    # The same request told twice is the same trial; another one has to wait.
    assert told(client, path, reason=WHY)["acted"] is False
    assert told(client, path, 409, reason=WHY, machines=["vm-haswell"])["code"] == "under-way"
    assert told(client, path, 409, reason=WHY, benchmarks=["mm-basic"])["code"] == "under-way"
    assert "Known: mm-basic" in str(told(client, path, 400, reason=WHY, benchmarks=["mm-basics"]))
    assert "Known: fault-4k" in str(told(client, path, 400, reason=WHY, benchmarks=["mm-basic/x"]))
    measured.refresh_from_db()
    assert [check["outcome"] for check in checks_named(measured, Name.RETEST)] == ["pending"]
    assert measured.series is not None
    assert ACTOR in {step.actor for step in series_history(measured.series)}


def test_retest_by_the_finding_is_that_of_its_series(client: Client, measured: Finding) -> None:
    first = told(client, f"findings/{measured.pk}/retest/", 202, reason=WHY)
    assert (first["finding"], first["series"], first["acted"]) == (measured.pk, measured.series_id, True)
    assert told(client, f"series/{measured.series_id}/retest/", reason=WHY)["trial"] == first["trial"]
    assert told(client, f"findings/{measured.pk}/retest/", 409, reason=WHY, seen=0)["code"] == "changed"


@pytest.mark.parametrize(("verdict", "outcome"), [(Verdict.REGRESSED, "passed"), (Verdict.UNCHANGED, "failed")])
def test_what_fresh_boots_say_stands_beside_the_finding(measured: Finding, verdict: str, outcome: str) -> None:
    assert measured.series is not None
    trial, new = retest_series(measured.series, actor="ada", reason=WHY, machines=list(Machine.objects.all()))
    session = build_trial_session(trial, state=Session.State.DONE)
    build_comparison(session, verdict, ratio=1.2, mde=0.01)
    Trial.objects.filter(pk=trial.pk).update(state=TrialState.DONE)
    assert (new, answer_trial(trial_id=trial.pk)) == (True, True)
    measured.refresh_from_db()
    assert (measured.state == Finding.State.INVALID) == (outcome == "failed")
    assert [check["outcome"] for check in checks_named(measured, Name.RETEST)] == [outcome]
    # It is over: whoever asks now asks anew.
    assert retest_series(measured.series, actor="ada", reason=WHY)[0].key.endswith("retest:2")


def test_finding_that_said_nothing_tells_what_was_measured_since(measured: Finding) -> None:
    assert measured.series is not None
    FindingVerdict.objects.all().delete()
    Comparison.objects.all().delete()
    Finding.objects.update(kind=Finding.Kind.INCONCLUSIVE, state=Finding.State.CONFIRMED)
    trial, _ = retest_series(measured.series, actor="ada", reason=WHY)
    build_comparison(build_trial_session(trial, state=Session.State.DONE), Verdict.IMPROVED, ratio=0.8)
    Trial.objects.filter(pk=trial.pk).update(state=TrialState.DONE)
    answer_trial(trial_id=trial.pk)
    measured.refresh_from_db()
    assert (measured.kind, measured.trial_id) == (Finding.Kind.IMPROVED, trial.pk)
    # What it claims now was checked like any other claim.
    assert checks_named(measured, Name.CODE)


def test_finding_that_was_uncertain_is_not_replaced_until_chance_speaks(measured: Finding) -> None:
    assert measured.series is not None
    Finding.objects.update(kind=Finding.Kind.INCONCLUSIVE, state=Finding.State.CONFIRMED)
    trial, _ = retest_series(measured.series, actor="ada", reason=WHY)
    build_comparison(build_trial_session(trial, state=Session.State.DONE), Verdict.IMPROVED, ratio=0.8)
    Trial.objects.filter(pk=trial.pk).update(state=TrialState.DONE)
    answer_trial(trial_id=trial.pk)
    measured.refresh_from_db()
    assert measured.kind == Finding.Kind.INCONCLUSIVE
    assert [check["outcome"] for check in checks_named(measured, Name.RETEST)] == ["failed"]


def test_retest_is_refused_where_nothing_was_measured_yet(client: Client, measured: Finding) -> None:
    path = f"series/{measured.series_id}/retest/"
    answer = told(client, path, 400, reason=WHY, machines=["vm-haswel"])
    assert "Known: vm-haswell" in str(answer["errors"])
    build_machine("off", enabled=False)
    assert told(client, path, 409, reason=WHY, machines=["off"])["code"] == "disabled"
    Trial.objects.update(state=TrialState.MEASURING)
    assert told(client, path, 409, reason=WHY)["code"] == "under-way"
    held = build_series(state=Series.State.HELD)
    assert told(client, f"series/{held.pk}/retest/", 409, reason=WHY)["code"] == "conflict"


# --- handing in ------------------------------------------------------------------------


def test_finding_is_withdrawn_once(client: Client, measured: Finding) -> None:
    path = f"findings/{measured.pk}/withdraw/"
    told(client, path, 400, reason=WHY, why="weather")
    answer = told(client, path, reason=WHY, why="noise")
    assert (answer["finding"], answer["state"], answer["acted"]) == (measured.pk, "invalid", True)
    assert told(client, path, reason=WHY, why="noise") == {**answer, "acted": False}
    measured.refresh_from_db()
    assert measured.reason == f"noise: {WHY}"
    line = Transition.objects.get(subject="finding", subject_id=measured.pk, after="invalid")
    assert (line.actor, line.pk) == (ACTOR, answer["seen"])


def test_trade_off_is_accepted_and_taken_back_once(client: Client, measured: Finding) -> None:
    path = f"findings/{measured.pk}/accept/"
    first = told(client, path, reason=WHY, uarchs=["haswell"])
    assert (first["acted"], first["state"]) == (True, "accepted")
    assert told(client, path, reason=WHY, uarchs=["haswell"]) == {**first, "acted": False}
    line = Acceptance.objects.get()
    assert (line.pk, line.person, line.reason) == (first["acceptance"], ACTOR, WHY)
    back = told(client, f"acceptances/{line.pk}/withdraw/", reason="it was too much")
    assert (back["acted"], back["state"]) == (True, "confirmed")
    assert told(client, f"acceptances/{line.pk}/withdraw/", reason="it was too much")["acted"] is False


@pytest.mark.parametrize(
    ("body", "status", "what"),
    [
        ({"uarchs": ["zen9"]}, 400, "uarch-unknown"),
        ({"metric": "time"}, 400, "named with its benchmark"),
        ({"benchmark": "mm-basic", "metric": "tmie"}, 400, "has no metric tmie"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, 400, "expired"),
        ({"expires_at": "9999-12-31T23:59:59-23:00"}, 400, "expires_at"),
        ({"uarchs": "haswell"}, 400, "uarchs"),
        ({"uarchs": ["a"] * 101}, 400, "uarchs"),
    ],
)
def test_acceptance_that_cannot_be_meant_is_refused(
    client: Client, measured: Finding, body: dict[str, Any], status: int, what: str
) -> None:
    assert what in str(told(client, f"findings/{measured.pk}/accept/", status, reason=WHY, **body))
    assert not Acceptance.objects.exists()


def test_only_what_is_mended_is_opened_again_and_only_a_branch_is_mended(client: Client, measured: Finding) -> None:
    assert told(client, f"findings/{measured.pk}/reopen/", 409, reason=WHY)["code"] == "conflict"
    Finding.objects.update(state=Finding.State.FIXED)
    assert told(client, f"findings/{measured.pk}/reopen/", reason=WHY)["state"] == "confirmed"
    assert told(client, f"findings/{measured.pk}/fix/", 409, commit="1234567")["code"] == "conflict"
    told(client, f"findings/{measured.pk}/fix/", 400, commit="main")
    told(client, f"findings/{measured.pk}/fix/", 400)
    told(client, f"findings/{measured.pk}/fix/", 400, commit="1234567", subject="mm: Be quick again")
    assert told(client, f"findings/{measured.pk}/fix/", 409, subject="mm: Be quick again")["code"] == "conflict"


def test_a_finding_stands_down_for_another_once(client: Client, measured: Finding) -> None:
    other = build_finding(build_series())
    path = f"findings/{measured.pk}/duplicate/"
    assert told(client, path, reason=WHY, of=other.pk)["state"] == "superseded"
    assert told(client, path, reason=WHY, of=other.pk)["acted"] is False
    told(client, path, 400, reason=WHY, of=other.pk + 99)
    assert told(client, f"findings/{other.pk}/duplicate/", 409, reason=WHY, of=other.pk)["code"] == "conflict"


def test_report_is_released_and_rejected(client: Client, measured: Finding) -> None:
    compose_report(finding_id=measured.pk)
    report = Report.objects.get()
    assert told(client, f"reports/{report.pk}/reject/", reason=WHY) == {"report": report.pk, "state": "rejected"}
    assert told(client, f"reports/{report.pk}/reject/", reason=WHY)["state"] == "rejected"
    lines = Transition.objects.filter(subject="report", after="rejected").values_list("actor", flat=True)
    assert list(lines) == [ACTOR]
    told(client, f"reports/{report.pk + 1}/approve/", 404, reason=WHY)


# --- machines --------------------------------------------------------------------------


@pytest.fixture
def box() -> Machine:
    return build_machine("box")


def test_machine_is_taken_out_and_put_back(client: Client, box: Machine) -> None:
    path = "machines/box/maintenance/"
    out = {"machine": "box", "health": "maintenance", "health_reason": "new memory"}
    assert told(client, path, on=True, reason="new memory") == out
    assert told(client, path, on=True, reason="new memory") == out
    assert told(client, path, on=False, reason="it is in")["health"] == "good"
    assert told(client, path, on=False, reason="it is in")["health"] == "good"
    lines = Transition.objects.filter(subject="machine-health", subject_id=box.pk).values_list("after", "actor")
    assert list(lines) == [("maintenance", ACTOR), ("good", ACTOR)]


def test_end_of_maintenance_lifts_no_quarantine(client: Client, box: Machine) -> None:
    Machine.objects.update(health=Machine.Health.QUARANTINED)
    assert told(client, "machines/box/maintenance/", 409, on=False, reason=WHY)["code"] == "conflict"
    told(client, "machines/box/maintenance/", 400, reason=WHY)
    told(client, "machines/box/maintenance/", 400, reason=WHY, on="false")
    told(client, "machines/bix/maintenance/", 404, on=True, reason=WHY)


def test_code_is_made_for_staff_told_once_and_noted_without_it(client: Client, ada: User, box: Machine) -> None:
    path = "machines/box/enrolment/"
    assert told(client, path, 403, reason=WHY)["code"] == "permission-denied"
    User.objects.filter(pk=ada.pk).update(is_staff=True)
    made = told(client, path, 201, reason="a new disk", hours=2)
    assert made["command"].endswith(f" {made['code']}")
    row = Enrolment.objects.get()
    assert (row.scope, row.subject, row.made_by, row.used_at) == ("machine", "box", ACTOR, None)
    line = Transition.objects.get(subject="machine-enrolment", subject_id=box.pk)
    assert (line.actor, "a new disk" in line.reason, made["code"] in line.reason) == (ACTOR, True, False)
    told(client, path, 400, reason=WHY, hours=721)
    told(client, path, 400, reason=WHY, hours=0)
    told(client, "machines/bix/enrolment/", 404, reason=WHY)
    Machine.objects.update(health=Machine.Health.RETIRED)
    assert told(client, path, 400, reason=WHY)["code"] == "retired"


def test_old_counts_are_no_rows_for_ever(client: Client, box: Machine) -> None:
    told(client, "machines/box/maintenance/", on=True, reason=WHY)
    assert [len(key) <= 90 for key in Tries.objects.values_list("key", flat=True)] == [True]


def test_finding_is_assigned_to_whoever_asks_or_to_who_is_named(client: Client, measured: Finding) -> None:
    bob = User.objects.create_user("bob")
    path = f"findings/{measured.pk}/assign/"
    mine = told(client, path)
    assert (mine["assignee"], mine["acted"]) == ("ada", True)
    assert told(client, path)["acted"] is False
    assert "Known: ada." in str(told(client, path, 400, assignee="bob"))
    bob.user_permissions.add(Permission.objects.get(codename="change_finding"))
    assert told(client, path, assignee="bob")["assignee"] == "bob"
    assert told(client, path, assignee=None)["assignee"] is None
    lines = Transition.objects.filter(subject="finding", subject_id=measured.pk, reason_code="assigned").order_by("id")
    assert [line.reason for line in lines] == ["assigned to ada", "assigned to bob", "assigned to nobody"]
    assert {line.actor for line in lines} == {ACTOR}


ON_A_FINDING: dict[str, dict[str, str]] = {"assign": {}, "reopen": {"reason": WHY}, "accept": {"reason": WHY}}
ON_A_FINDING |= {"withdraw": {"reason": WHY, "why": "noise"}, "fix": {"commit": "1234567"}}


@pytest.mark.parametrize("act", ON_A_FINDING)
def test_act_on_what_was_seen_before_somebody_else_acted_is_a_conflict_that_says_who_did_what(
    client: Client, measured: Finding, act: str
) -> None:
    seen = client.get(f"/api/v1/findings/{measured.pk}/").json()["seen"]
    assert client.get("/api/v1/findings/").json()["results"][0]["seen"] == seen
    carl = User.objects.create_superuser("carl")
    triage.assign(measured, carl, actor="carl")
    answer = client.post(
        f"/api/v1/findings/{measured.pk}/{act}/", {**ON_A_FINDING[act], "seen": seen}, "application/json"
    )
    assert (answer.status_code, answer.headers["Content-Type"]) == (409, "application/problem+json")
    problem = answer.json()
    assert (problem["code"], "assigned to carl" in problem["title"]) == ("changed", True)
    measured.refresh_from_db()
    assert (measured.assignee, measured.state) == (carl, Finding.State.CONFIRMED)


def test_answer_of_an_act_has_the_mark_for_the_next_one(client: Client, measured: Finding) -> None:
    seen = told(client, f"findings/{measured.pk}/assign/", seen=triage.seen_now(measured.pk))["seen"]
    line = told(client, f"findings/{measured.pk}/accept/", reason=WHY, seen=seen)
    told(client, f"acceptances/{line['acceptance']}/withdraw/", 409, reason=WHY, seen=seen)
    told(client, f"acceptances/{line['acceptance']}/withdraw/", reason=WHY, seen=line["seen"])
