"""A person with the right approves a held series on its page; nobody else can."""

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from server.core.models import Transition
from server.dashboard.rows import postings
from server.sources.mail.postings import Marks, parse_subject
from server.sources.models import Patch, Series
from server.sources.series.requests import posting_mark
from tests.builders import build_message, build_series
from tests.dashboard.conftest import Reader

pytestmark = pytest.mark.django_db


@pytest.fixture
def held() -> Series:
    return build_series(state=Series.State.HELD, reason="bob@example.org is not proved")


@pytest.fixture
def person() -> User:
    return User.objects.create_user("ada", is_staff=True)


@pytest.fixture
def approver(person: User) -> User:
    person.user_permissions.add(Permission.objects.get(codename="change_series"))
    return person


def page_of(series: Series) -> str:
    return f"/series/{series.pk}/"


def form(series: Series, reason: str) -> dict[str, str]:
    """As the page sends it."""
    return {"reason": reason, "seen": posting_mark(series)}


def state_of(series: Series) -> str:
    series.refresh_from_db()
    return series.state


def test_stranger_sees_who_may_approve_and_where_to_log_in(reader: Reader, held: Series, approver: User) -> None:
    text = " ".join(reader.read(page_of(held)).split())
    assert "1 person has it at this site." in text
    assert f'href="/login/?next=/series/{held.pk}/"' in text
    assert 'name="reason"' not in text
    assert "ada" not in text.split('id="approval"')[1].split("</section>")[0].replace("Ada Author", "")


def test_who_approves_is_told_which_patches_anybody_may_have_written(reader: Reader, held: Series) -> None:
    held.patches.all().delete()
    for index, proved in ((1, True), (2, False)):
        mail = build_message(subject=f"[PATCH {index}/2] mm: Step {index}", authentic=proved)
        Patch.objects.create(series=held, index=index, message=mail, subject=f"mm: Step {index}")
    Series.objects.filter(pk=held.pk).update(total=2)
    text = " ".join(reader.read(page_of(held)).split())
    box, patches = (text.split(f'id="{name}"')[1].split("</section>")[0] for name in ("approval", "patches"))
    assert "<li>2/2 mm: Step 2</li>" in box
    assert "mm: Step 1" not in box
    assert patches.count("not proved") == 1


def test_of_many_patches_that_anybody_may_have_written_some_are_read_and_named(
    reader: Reader, held: Series, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.patches.all().delete()
    for index in range(1, 31):
        mail = build_message(subject="[PATCH]" + "[]" * 3900, authentic=index == 7 or None)
        Patch.objects.create(series=held, index=index, message=mail, subject=f"mm: Step {index} {'x' * 8000}")
    Series.objects.filter(pk=held.pk).update(total=30, cover=build_message(subject="[PATCH 0/30] mm: All"))
    read: list[str] = []

    def parses(subject: str) -> Marks:
        read.append(subject)
        return parse_subject(subject)

    monkeypatch.setattr("server.sources.trust.senders.parse_subject", parses)
    text = reader.read(page_of(held))
    box = text.split('id="approval"')[1].split("</section>")[0]
    assert [f"<li>{n}/30 mm: " in box for n in (0, 1, 6, 7, 8, 20, 21)] == [True, True, True, False, True, True, False]
    assert "and 10 more" in box
    assert read == ["[PATCH 0/30] mm: All"]
    assert len(text) < 100_000


def test_stranger_who_posts_is_sent_to_the_login(client: Client, held: Series) -> None:
    response = client.post(f"{page_of(held)}approve/", form(held, "let me"))
    assert response.status_code == 302
    assert response["Location"].startswith("/login/?next=/series/")
    assert state_of(held) == Series.State.HELD


def test_person_without_the_right_is_refused(client: Client, held: Series, person: User) -> None:
    client.force_login(person)
    assert 'name="reason"' not in client.get(page_of(held)).content.decode()
    assert client.post(f"{page_of(held)}approve/", form(held, "let me")).status_code == 403
    assert state_of(held) == Series.State.HELD


def test_approval_lets_it_run_and_stays_in_its_history(client: Client, held: Series, approver: User) -> None:
    client.force_login(approver)
    assert 'name="reason"' in client.get(page_of(held)).content.decode()
    response = client.post(f"{page_of(held)}approve/", form(held, "read it, harmless"), follow=True)
    assert response.redirect_chain == [(page_of(held), 302)]
    assert state_of(held) == Series.State.READY
    last = Transition.objects.filter(subject="series", subject_id=held.pk).latest("id")
    assert last.reason == "approved by ada: read it, harmless"
    assert "approved by ada: read it, harmless" in response.content.decode()


@pytest.mark.parametrize("reason", ["", "  ", "x" * 501, "a\0b"])
def test_approval_without_a_proper_reason_changes_nothing(
    client: Client, held: Series, approver: User, reason: str
) -> None:
    client.force_login(approver)
    response = client.post(f"{page_of(held)}approve/", form(held, reason))
    assert response.status_code == 400
    assert b'role="alert"' in response.content
    assert state_of(held) == Series.State.HELD


def test_form_of_another_site_is_refused(held: Series, approver: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(approver)
    assert client.post(f"{page_of(held)}approve/", form(held, "forged")).status_code == 403
    assert state_of(held) == Series.State.HELD


def test_second_approval_says_that_it_is_not_held(client: Client, held: Series, approver: User) -> None:
    client.force_login(approver)
    client.post(f"{page_of(held)}approve/", form(held, "fine"))
    response = client.post(f"{page_of(held)}approve/", form(held, "fine"))
    assert response.status_code == 409
    assert "not held" in response.content.decode()


def test_refused_series_can_be_tried_again(client: Client, approver: User) -> None:
    refused = build_series(state=Series.State.REFUSED, reason="patch 2 does not apply")
    client.force_login(approver)
    assert "Try it again" in client.get(page_of(refused)).content.decode()
    client.post(f"{page_of(refused)}approve/", form(refused, "the base was fetched"))
    assert state_of(refused) == Series.State.READY


def test_series_that_waits_for_nobody_has_no_approval(reader: Reader) -> None:
    assert 'id="approval"' not in reader.read(page_of(build_series()))
    assert 'id="approval"' not in reader.read(page_of(build_series(state=Series.State.INCOMPLETE)))


def test_approval_is_of_the_mails_that_were_read(client: Client, held: Series, approver: User) -> None:
    """An author may send another patch for the same place while somebody reads the first one."""
    client.force_login(approver)
    page = client.get(page_of(held)).content.decode()
    read = form(held, "harmless")
    assert f'value="{read["seen"]}"' in page
    held.patches.update(message=build_message(subject="[PATCH] mm: Something else"))
    response = client.post(f"{page_of(held)}approve/", read)
    assert response.status_code == 409
    assert "not the ones that you have read" in response.content.decode()
    assert client.post(f"{page_of(held)}approve/", {"reason": "unseen"}).status_code == 400
    assert state_of(held) == Series.State.HELD


def test_who_approves_is_told_whose_series_it_would_end(reader: Reader, held: Series) -> None:
    other = build_series(state=Series.State.READY, change_id="one-id", author_address="ada@example.org")
    Series.objects.filter(pk=held.pk).update(change_id="one-id", version=2, author_address="eve@example.net")
    text = reader.read(page_of(held))
    box = " ".join(text.split('id="approval"')[1].split("</section>")[0].split())
    assert f'It would replace <a href="/series/{other.pk}/">' in box
    assert "another author: that one is then measured no more" in box


def test_mail_that_comes_while_the_page_is_made_is_not_approved_with_it(
    admin_client: Client, held: Series, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark is taken before the mails are read: what came later may be shown, and has to be read again."""
    before = posting_mark(held)

    patches_of = postings.patches_of

    def late(series: Series) -> postings.Patches:
        shown = patches_of(series)
        late_mail = build_message(subject="[PATCH 2/2] mm: Something else")
        series.patches.latest("index").delete()
        Patch.objects.create(series=series, index=9, message=late_mail, subject="mm: Something else")
        return shown

    monkeypatch.setattr("server.dashboard.series_pages.patches_of", late)
    text = Reader(admin_client).read(page_of(held))
    assert f'value="{before}"' in text
    assert posting_mark(held) != before
