"""The list of findings as triagers work in it: what it is narrowed by, who may act, and two who act at once."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from server.core import clock
from server.core.errors import DomainError
from server.core.models import Transition
from server.dashboard.verdicts.first_words import answer_of
from server.detection.branches.release import Why, invalidate
from server.detection.findings.checks import Name, checks_named
from server.detection.lifecycle import triage
from server.detection.lifecycle.ledger import accept
from server.detection.models import Acceptance, Finding
from server.lab.models import Session, Trial
from server.sources.models import Series
from tests.builders import (
    because,
    build_comparison,
    build_finding,
    build_machine,
    build_revision,
    build_series,
    build_session,
    build_tree,
)
from tests.dashboard.conftest import Reader

pytestmark = pytest.mark.django_db
WHY = "known since 6.12"


def found(kind: str, verdicts: dict[str, str], **fields: Any) -> Finding:
    """A finding of its own series, with a machine of each microarchitecture."""
    series = build_series(**fields)
    for uarch, verdict in verdicts.items():
        machine = build_machine(f"{uarch}-a", uarch, virtual=False)
        build_comparison(build_session(series, machine, state=Session.State.DONE), verdict)
    finding = build_finding(series, kind, headline=f"{kind}: {series.subject}.")
    Finding.objects.filter(pk=finding.pk).update(virtual=False)
    return finding


@pytest.fixture
def split() -> Finding:
    return found("split", {"zen3": "regressed", "zen5": "improved"}, subject="mm: Split", author_address="bo@x.org")


@pytest.fixture
def better() -> Finding:
    return found("improved", {"zen3": "improved"}, subject="mm: Better")


def person(name: str, *rights: str) -> User:
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    return user


@pytest.fixture
def ada() -> User:
    return person("ada", "change_finding")


@pytest.fixture
def triager(client: Client, ada: User) -> Client:
    client.force_login(ada)
    return client


def listed(reader: Reader, query: str) -> set[int]:
    return {int(pk) for pk in re.findall(r'<tr id="f(\d+)"', reader.read(f"/findings/?{query}"))}


def mark(finding: Finding) -> str:
    """As the page names it."""
    return f"{finding.pk}:{triage.with_seen(Finding.objects.all()).get(pk=finding.pk).seen}"  # type: ignore[attr-defined]


def act(client: Client, wanted: str, *marks: str, **more: str) -> HttpResponse:
    answer: Any = client.post("/findings/act/", {"act": wanted, "finding": list(marks), **more})
    return answer  # type: ignore[no-any-return]


def steps(finding: Finding) -> list[tuple[str, str]]:
    rows = Transition.objects.filter(subject="finding", subject_id=finding.pk).order_by("pk")
    return [(row.actor, row.reason) for row in rows if row.actor]


# --- what it is narrowed by -------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", {"split", "better"}),
        ("kind=regressed", {"split"}),
        ("kind=improved", {"split", "better"}),
        ("kind=split", {"split"}),
        ("regressed_on=zen3", {"split"}),
        ("improved_on=zen3", {"better"}),
        ("improved_on=zen5&regressed_on=zen3", {"split"}),
        ("uarch=zen5", {"split"}),
        ("author=BO@x.org", {"split"}),
        ("author=nobody@x.org", set()),
        ("benchmark=mm-basic", {"split", "better"}),
        ("state=open", {"split", "better"}),
        ("state=invalid", set()),
        ("assignee=none", {"split", "better"}),
        ("since=2020-01-01", {"split", "better"}),
        ("until=2020-01-01", set()),
        ("path=mm/", set()),
        ("page=99", {"split", "better"}),
    ],
)
def test_list_is_narrowed_by(reader: Reader, split: Finding, better: Finding, query: str, wanted: set[str]) -> None:
    names = {split.pk: "split", better.pk: "better"}
    assert {names[pk] for pk in listed(reader, query)} == wanted


def test_list_is_narrowed_by_tree_and_commit(reader: Reader, split: Finding, better: Finding) -> None:
    tree = build_tree("akpm")
    base, culprit = build_revision(tree), build_revision(tree)
    Series.objects.filter(finding=split).update(base=base)
    Finding.objects.filter(pk=better.pk).update(culprit=culprit)
    assert listed(reader, "tree=akpm") == {split.pk}
    assert listed(reader, f"commit={culprit.sha[:10]}") == {better.pk}


def test_who_asks_for_nothing_sees_what_is_open(reader: Reader, split: Finding, better: Finding) -> None:
    invalidate(better, actor="ada", why=Why.NOISE, reason=WHY)
    assert listed(reader, "") == {split.pk}
    assert listed(reader, "state=") == {split.pk, better.pk}


def test_what_claims_nothing_is_judged_and_not_open(reader: Reader, split: Finding) -> None:
    quiet = found("inconclusive", {"zen3": "inconclusive"}, subject="mm: Quiet")
    assert listed(reader, "") == listed(reader, "state=open") == {split.pk}
    assert listed(reader, "state=confirmed") == {split.pk, quiet.pk}
    text = reader.read("/findings/?state=")
    assert ">judged</span>" in text
    assert 'open <span class="figure">1<' in reader.read("/findings/")
    assert re.search(r">open regressions <span class=.figure.>1<", text)
    assert ">judged</span>" in reader.read(f"/findings/{quiet.pk}/")


def test_findings_of_one_commit_name_each_other(reader: Reader, split: Finding, better: Finding) -> None:
    culprit = build_revision(subject="mm: Culprit")
    Finding.objects.update(culprit=culprit)
    text = reader.read("/findings/")
    assert text.count("mm: Culprit") == 2
    for one in (split, better):
        assert f'same commit as <a href="/findings/{one.pk}/">' in text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("regressed_on=zen9", "There is no uarch zen9 here. Known: zen3, zen5."),
        ("uarch=zen9", "There is no uarch zen9 here."),
        ("tree=akpm", "There is no tree akpm here."),
        ("benchmark=x%00y", "There is no benchmark xy here. Known: mm-basic."),
        ("kind=worse", "Known: regressed, improved, split, unchanged, inconclusive."),
        ("state=shut", "There is no state shut here. Known: open, candidate,"),
        ("assignee=bob", "There is no person who triages bob here. Known: me, none. Names are told to who may triage."),
        ("assignee=me", "Sign in to see the findings that are yours."),
        ("commit=xyz", "Write a commit as 7 to 40 hexadecimal digits."),
        ("since=yesterday", "Write a day as 2026-11-30, not yesterday."),
        ("until=9999-99-99", "Write a day as 2026-11-30, not 9999-99-99."),
        ("author=bob", "An author is asked for by address"),
        ("regresed_on=zen3", "There is no filter regresed_on here. Known: state, kind,"),
        ("kind=%3Cscript%3E", "There is no kind &lt;script&gt; here."),
    ],
)
def test_value_that_is_not_known_is_said_and_lists_nothing(
    reader: Reader, split: Finding, ada: User, query: str, said: str
) -> None:
    text = " ".join(reader.read(f"/findings/?{query}").split())
    assert said in text
    assert f'id="f{split.pk}"' not in text
    assert ada.username == "ada"


def test_states_are_counted_within_what_else_is_asked(reader: Reader, split: Finding, better: Finding) -> None:
    invalidate(better, actor="ada", why=Why.NOISE, reason=WHY)
    text = " ".join(reader.read("/findings/?improved_on=zen3").split())
    counts = re.findall(r'>([a-z]+) <span class="figure">(\d+)</span></a>', text.split('aria-label="States"')[1])
    assert counts == [("all", "1"), ("open", "0"), ("invalid", "1")]
    assert 'href="?state=open&amp;regressed_on=zen3"' in text
    assert "regressed on zen3 <" in text


def test_finding_of_virtual_machines_is_not_listed_where_they_are_not_judged(reader: Reader, split: Finding) -> None:
    Finding.objects.update(virtual=True)
    assert listed(reader, "") == set()
    assert "regressed on zen3 <" not in reader.read("/findings/")


def test_list_needs_few_queries_however_long_it_is(triager: Client, split: Finding) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert triager.get("/findings/?state=open&regressed_on=zen3").status_code == 200
        return len(captured)

    before = queries()
    for number in range(5):
        found("regressed", {"zen3": "regressed"}, subject=f"mm: Step {number}")
    assert queries() == before
    assert before <= 12


# --- who may act ---------------------------------------------------------------------------


def test_reader_sees_no_form_and_where_to_sign_in(reader: Reader, split: Finding) -> None:
    for path in ("/findings/", f"/findings/{split.pk}/"):
        text = reader.read(path)
        assert 'name="act"' not in text
        assert f"/login/?next={path.replace('/', '%2F')}" in text


def test_act_of_somebody_who_is_not_signed_in_leads_to_it_and_back(client: Client, split: Finding) -> None:
    answer = act(client, "assign-me", mark(split), next="/findings/?state=open")
    assert answer["Location"] == "/login/?next=/findings/%3Fstate%3Dopen"
    away = act(client, "assign-me", mark(split), next="https://evil.example/")
    assert away["Location"] == "/login/?next=/findings/"


def test_who_lacks_the_right_is_told_which(client: Client, split: Finding) -> None:
    client.force_login(person("eve"))
    answer = act(client, "invalid", mark(split), reason=WHY, why="noise")
    assert answer.status_code == 403
    assert "You are signed in as eve, who lacks the right detection.change_finding." in answer.content.decode()
    assert steps(split) == []


def test_retest_asks_for_a_right_of_its_own(triager: Client, split: Finding) -> None:
    answer = act(triager, "retest", mark(split), reason=WHY)
    assert answer.status_code == 403
    assert "lab.add_trial" in answer.content.decode()


# --- acts ----------------------------------------------------------------------------------


def test_many_are_assigned_at_once_and_each_tells_it(triager: Client, split: Finding, better: Finding) -> None:
    page = triager.get("/findings/").content.decode()
    marks = re.findall(r'name="finding"\s+value="([\d:]+)"', page)
    assert set(marks) == {mark(split), mark(better)}
    answer = act(triager, "assign-me", *marks, next="/findings/?assignee=me")
    assert answer["Location"] == "/findings/?assignee=me"
    text = triager.get("/findings/?assignee=me").content.decode()
    assert "assigned to you." in text
    assert len(re.findall(r'<tr id="f', text)) == 2
    assert steps(split) == steps(better) == [("ada", "assigned to ada")]
    told = triager.get(f"/api/v1/findings/{split.pk}/?fields=assignee").json()
    assert told == {"assignee": "ada"}


def test_finding_is_assigned_to_another_triager_and_to_nobody(triager: Client, split: Finding) -> None:
    person("bob", "change_finding")
    act(triager, "assign", mark(split), assignee="bob")
    act(triager, "unassign", mark(split))
    assert steps(split) == [("ada", "assigned to bob"), ("ada", "assigned to nobody")]
    person("eve")
    answer = act(triager, "assign", mark(split), assignee="eve")
    assert answer.status_code == 400
    assert "Nobody of that name triages here. Known: ada, bob." in answer.content.decode()


def test_service_refuses_to_assign_to_who_may_not_triage(split: Finding, ada: User) -> None:
    with pytest.raises(DomainError, match="lacks the permission"):
        triage.assign(split, person("eve"), actor="ada")
    with pytest.raises(DomainError, match="who decides this is not said"):
        triage.assign(split, ada, actor=" ")
    assert triage.assign(split, ada, actor="ada")
    assert not triage.assign(split, ada, actor="ada")


def test_finding_is_accepted_until_a_day_and_stands_in_the_ledger(triager: Client, split: Finding) -> None:
    until = clock.now() + timedelta(days=9)
    act(triager, "accept", mark(split), reason=WHY, until=f"{until:%Y-%m-%d}")
    split.refresh_from_db()
    assert split.state == Finding.State.ACCEPTED
    line = Acceptance.objects.get()
    assert (line.person, line.reason, f"{line.expires_at:%Y-%m-%d}") == ("ada", WHY, f"{until:%Y-%m-%d}")
    text = triager.get("/tradeoffs/").content.decode()
    assert WHY in text
    assert "ends soon" in text


def test_finding_is_withdrawn_with_what_it_was_and_why(triager: Client, split: Finding) -> None:
    act(triager, "invalid", mark(split), reason=WHY, why="layout")
    split.refresh_from_db()
    assert (split.state, split.reason, split.reason_code) == ("invalid", f"layout: {WHY}", "layout")
    assert steps(split) == [("ada", f"layout: {WHY}")]


def test_series_of_a_finding_is_measured_again(client: Client, split: Finding) -> None:
    client.force_login(person("ada", "change_finding", "add_trial"))
    base, head = build_revision(), build_revision()
    Series.objects.filter(finding=split).update(base=base, head=head, state=Series.State.APPLIED)
    first = Finding.objects.get(pk=split.pk).trial
    assert first is not None
    Trial.objects.filter(pk=first.pk).update(purpose=Trial.Purpose.SERIES, state="done", series=split.series_id)
    answer = act(client, "retest", mark(split), reason=WHY)
    assert answer.status_code == 302, answer.content
    split.refresh_from_db()
    assert WHY in checks_named(split, Name.RETEST)[0]["text"]
    assert [who for who, _ in steps(split)] == ["ada"]
    act(client, "retest", mark(split), reason="once more")
    text = client.get("/findings/").content.decode()
    assert f"Finding {split.pk}: this goes on already, nothing new was asked for." in text
    assert Trial.objects.filter(purpose=Trial.Purpose.RETEST).count() == 1


def test_finding_stands_down_for_the_one_that_is_named(triager: Client, split: Finding, better: Finding) -> None:
    shown = triager.get(f"/findings/{split.pk}/").content.decode()
    assert 'value="duplicate"' in shown
    assert act(triager, "duplicate", mark(split), reason=WHY, of="none").status_code == 400
    assert act(triager, "duplicate", mark(split), reason="", of=str(better.pk)).status_code == 400
    answer = act(triager, "duplicate", mark(split), reason=WHY, of=str(better.pk))
    assert answer.status_code == 302
    split.refresh_from_db()
    assert (split.state, split.same_as) == (Finding.State.SUPERSEDED, better)
    assert f"superseded by finding {better.pk}" in triager.get("/findings/").content.decode()


def test_retest_by_another_is_a_conflict(client: Client, split: Finding) -> None:
    client.force_login(person("ada", "change_finding", "add_trial"))
    Series.objects.filter(finding=split).update(
        base=build_revision(), head=build_revision(), state=Series.State.APPLIED
    )
    Trial.objects.filter(finding=split).update(purpose=Trial.Purpose.SERIES, state="done", series=split.series_id)
    old = mark(split)
    triage.retest(split, seen=int(old.partition(":")[2]), actor="bob", reason="its fan was dead")
    answer = act(client, "invalid", old, reason=WHY, why="noise")
    assert answer.status_code == 409
    assert "its fan was dead" in answer.content.decode()


def test_finding_that_is_named_twice_is_decided_once(triager: Client, split: Finding) -> None:
    answer = act(triager, "invalid", mark(split), mark(split), reason=WHY, why="noise")
    assert answer.status_code == 302
    assert steps(split) == [("ada", f"noise: {WHY}")]


def test_names_of_triagers_are_told_to_triagers_alone(reader: Reader, ada: User) -> None:
    assert "ada" not in reader.read("/findings/?assignee=zz")
    reader.client.force_login(ada)
    assert "Known: me, none, ada." in " ".join(reader.read("/findings/?assignee=zz").split())


def test_page_of_a_finding_was_read_after_the_step_that_its_form_tells(
    triager: Client, split: Finding, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = mark(split)

    def meanwhile(finding: Finding, *given: Any) -> Any:
        triage.assign(finding, None if finding.assignee else person("bob", "change_finding"), actor="bob")
        return answer_of(finding, *given)

    monkeypatch.setattr("server.dashboard.finding_pages.answer_of", meanwhile)
    assert f'name="finding" value="{old}"' in triager.get(f"/findings/{split.pk}/").content.decode()


@pytest.mark.parametrize(
    ("wanted", "more", "said"),
    [
        ("invalid", {"why": "noise"}, "Say why; everybody can read it."),
        ("invalid", {"reason": WHY}, "Say what it was: noise, layout, the machine, or that it is wrong."),
        ("accept", {}, "Say why; everybody can read it."),
        ("accept", {"reason": WHY, "until": "2020-01-01"}, "2020-01-01 00:00 UTC is over."),
        ("accept", {"reason": WHY, "until": "soon"}, "Write a day as 2026-11-30, not soon."),
        ("explode", {}, "There is no such act."),
        ("", {}, "Say what to do."),
    ],
)
def test_form_that_lacks_something_says_so_and_keeps_the_rest(
    triager: Client, split: Finding, wanted: str, more: dict[str, str], said: str
) -> None:
    answer = act(triager, wanted, mark(split), **more)
    text = answer.content.decode()
    assert answer.status_code == 400
    assert said in text
    assert f'name="finding" value="{mark(split)}"' in text
    assert steps(split) == []


@pytest.mark.parametrize("marks", [[], ["7"], ["x:1"], ["1:-1"], ["9" * 30 + ":1"]])
def test_act_without_a_finding_of_the_page_does_nothing(triager: Client, split: Finding, marks: list[str]) -> None:
    assert act(triager, "assign-me", *marks).status_code == 400
    assert steps(split) == []


def test_finding_that_is_not_there_is_told(triager: Client) -> None:
    answer = act(triager, "assign-me", "123456:0")
    assert answer.status_code == 409
    assert "there is no finding 123456" in answer.content.decode()


# --- two at once -----------------------------------------------------------------------------


def test_second_of_two_triagers_is_told_who_did_what_and_can_decide_anew(
    triager: Client, split: Finding, better: Finding
) -> None:
    old = mark(split)
    invalidate(split, actor="bob", why=Why.MACHINE, reason="its fan is dead")
    answer = act(triager, "assign-me", old, mark(better))
    text = answer.content.decode()
    assert answer.status_code == 409
    assert re.search(r"bob at \d\d:\d\d UTC: \w+ → invalid \(machine: its fan is dead\)", text)
    assert f'name="finding" value="{mark(split)}"' in text
    split.refresh_from_db()
    better.refresh_from_db()
    assert split.assignee is None
    # The others of the form are done.
    assert better.assignee is not None
    assert f'href="/findings/{better.pk}/"' in text


def test_assignment_by_another_is_a_conflict_as_well(triager: Client, split: Finding) -> None:
    old = mark(split)
    triage.assign(split, person("bob", "change_finding"), actor="bob")
    answer = act(triager, "invalid", old, reason=WHY, why="noise")
    assert answer.status_code == 409
    assert "assigned to bob" in answer.content.decode()
    again = act(triager, "invalid", mark(split), reason=WHY, why="noise")
    assert again.status_code == 302


def test_note_of_the_service_about_a_finding_that_stays_is_no_conflict(triager: Client, split: Finding) -> None:
    old = mark(split)
    split.refresh_from_db()
    split.note(because("another layout is being measured"))
    assert mark(split) != old
    assert act(triager, "assign-me", old).status_code == 302


def test_step_of_the_service_is_a_conflict(triager: Client, split: Finding) -> None:
    old = mark(split)
    split.refresh_from_db()
    assert split.advance(Finding.State.SUPERSEDED, because("version 3 is judged"))
    answer = act(triager, "accept", old, reason=WHY)
    assert answer.status_code == 409
    assert "Tidemark at" in answer.content.decode()


def test_finding_page_carries_the_same_form(triager: Client, split: Finding) -> None:
    text = triager.get(f"/findings/{split.pk}/").content.decode()
    assert f'name="finding" value="{mark(split)}"' in text
    assert f'name="next" value="/findings/{split.pk}/"' in text


# --- the ledger ---------------------------------------------------------------------------------


@pytest.fixture
def line(split: Finding) -> Acceptance:
    return accept(split, actor="bob", reason=WHY, expires_at=clock.now() + timedelta(days=90))


def test_acceptance_is_taken_back_once(triager: Client, line: Acceptance, split: Finding) -> None:
    path = f"/tradeoffs/{line.pk}/withdraw/"
    assert triager.post(path, {}).status_code == 400
    assert triager.post(path, {"reason": "it hurts"}).status_code == 302
    split.refresh_from_db()
    assert split.state == Finding.State.CONFIRMED
    assert triager.post(path, {"reason": "it hurts"}).status_code == 409
    assert "taken back" in triager.get("/tradeoffs/?show=withdrawn").content.decode()


def test_ledger_is_read_by_all_and_written_by_triagers(
    client: Client, reader: Reader, line: Acceptance, django_assert_max_num_queries: Callable[[int], Any]
) -> None:
    with django_assert_max_num_queries(4):
        text = reader.read("/tradeoffs/")
    assert WHY in text
    assert "Take back" not in text
    assert client.post(f"/tradeoffs/{line.pk}/withdraw/", {"reason": "x"})["Location"] == "/login/?next=/tradeoffs/"
    assert WHY not in reader.read("/tradeoffs/?show=expired")
    assert "There is no choice &lt;x here. Known: active, soon" in reader.read("/tradeoffs/?show=<x")
