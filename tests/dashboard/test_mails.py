"""Mails: what would leave the site now, what holds the others, and each as it would be sent."""

import re
from typing import Any

import pytest
from django.core import mail
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.errors import DomainError
from server.detection.models import Finding
from server.reports.composer import Text
from server.reports.models import Bounce, Delivery, OptOut, Report
from server.reports.outbox import queue_delivery, send_delivery
from server.sources.models import MailingList, Series
from tests.builders import build_finding, build_series
from tests.dashboard.conftest import Reader

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def mail_is_on(settings: Settings) -> None:
    settings.MAIL_ENABLED = True


def words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


@pytest.fixture(autouse=True)
def written_as_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the reports of these tests say is what their findings say."""
    monkeypatch.setattr("server.reports.renewal.gather", lambda finding: finding)
    monkeypatch.setattr("server.reports.renewal.compose", lambda of: Text(of.report.subject, of.report.body))


def report(subject: str = "Re: mm: Batch it", **fields: Any) -> Report:
    finding = build_finding(build_series(), state=Finding.State.CONFIRMED, news=False)
    given = {
        "state": Report.State.DRAFT,
        "body": "Regressed on zen3.\n",
        "to": ["ada@example.org"],
        "cc": ["linux-mm@example.org"],
        "in_reply_to": "cover@example.org",
        "references": ["cover@example.org"],
    }
    return Report.objects.create(
        finding=finding, first_of=finding, subject=subject, **(given | fields)
    ).record_creation()


def released(subject: str = "Re: mm: Batch it") -> Delivery:
    return queue_delivery(report=report(subject, state=Report.State.APPROVED, released=True))


def new_text(_evidence: object) -> Text:
    return Text("Re: mm: Batch it", "Regressed on zen3, by patch 2.\n")


def refused_text(_evidence: object) -> Text:
    raise DomainError("incomplete-report", "the kernel is not told")


def section(text: str, name: str) -> str:
    return words(text.split(f'id="{name}"')[1].split("</section>", maxsplit=1)[0])


def test_empty_outbox_says_that_nothing_leaves(reader: Reader) -> None:
    text = words(reader.read("/mails/"))
    assert "Nothing would leave the site now." in text
    assert "No draft waits." in text


def test_released_mail_leaves_and_a_draft_waits_for_a_person(reader: Reader) -> None:
    released("Re: mm: I leave")
    report("Re: mm: I wait")
    text = reader.read("/mails/")
    assert "1 mail would leave the site now." in words(text)
    assert "1 waits for a person to release or reject it." in words(text)
    assert "Re: mm: I leave" in section(text, "leaving")
    assert "Leaves with the next round of the outbox." in section(text, "leaving")
    assert "Re: mm: I wait" in section(text, "drafts")
    assert "about finding" in section(text, "drafts")


def test_stop_switch_is_said_with_what_it_holds(reader: Reader, settings: Settings) -> None:
    released("Re: mm: I would leave")
    settings.MAIL_ENABLED = False
    text = reader.read("/mails/")
    assert "mail is off" in words(text)
    assert "Nothing leaves the site now. Without the stop switch 1 mail would." in words(text)
    assert "Would leave now if mail were switched on" in section(text, "leaving")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("superseded", "a newer version has replaced the series"),
        ("withdrawn", "its finding is"),
        ("moderated", "its list is moderated since"),
        ("put-off", "put off until"),
        ("cap", "the cap of 0 mails an hour is reached"),
        ("virtual", "virtual results never leave the site"),
        ("bisecting", "the revision that made it is being looked for"),
        ("opted-out", "every recipient has opted out"),
        ("too-many", "2 recipients are too many"),
        ("stale", "its finding says something else since it was written"),
        ("incomplete", "the kernel is not told"),
    ],
)
def test_page_and_outbox_agree_on_what_is_held(
    reader: Reader, settings: Settings, monkeypatch: pytest.MonkeyPatch, change: str, why: str
) -> None:
    delivery = released()
    finding = delivery.report.finding
    assert finding is not None
    if change == "superseded":
        Series.objects.filter(finding=finding).update(state=Series.State.SUPERSEDED)
    elif change == "withdrawn":
        Finding.objects.filter(pk=finding.pk).update(state=Finding.State.INVALID)
    elif change == "bisecting":
        Finding.objects.filter(pk=finding.pk).update(state=Finding.State.BISECTING)
    elif change == "virtual":
        Finding.objects.filter(pk=finding.pk).update(virtual=True)
    elif change == "moderated":
        Report.objects.update(released=False)
        MailingList.objects.update(moderated=True)
    elif change == "opted-out":
        OptOut.objects.bulk_create(OptOut(address=address) for address in ("ada@example.org", "linux-mm@example.org"))
    elif change == "too-many":
        settings.MAIL_MAX_RECIPIENTS = 1
    elif change in ("stale", "incomplete"):
        MailingList.objects.update(moderated=change == "stale")
        Finding.objects.filter(pk=finding.pk).update(news=True)
        monkeypatch.setattr("server.reports.renewal.gather", lambda _finding: None)
        monkeypatch.setattr("server.reports.renewal.compose", new_text if change == "stale" else refused_text)
    elif change == "put-off":
        Delivery.objects.update(not_before=clock.now().replace(year=2999))
    else:
        settings.MAIL_HOURLY_CAP = 0
    text = reader.read("/mails/")
    assert "Nothing would leave the site now." in words(text)
    assert why in section(text, "held")
    assert f"Does not leave now: {why}" in words(reader.read(f"/mails/{delivery.report_id}/"))
    assert not send_delivery(delivery_id=delivery.pk)
    assert mail.outbox == []


def test_page_and_outbox_agree_on_the_rest_of_the_hour(reader: Reader, settings: Settings) -> None:
    settings.MAIL_HOURLY_CAP = 2
    rows = [released(f"Re: mm: Number {place}") for place in range(5)]
    text = reader.read("/mails/")
    assert "2 mails would leave the site now." in words(text)
    assert section(text, "held").count("those before it fill the cap of 2 mails an hour") == 3
    said = [words(reader.read(f"/mails/{row.report_id}/")) for row in rows]
    leaves = ["Leaves with the next round" in one for one in said]
    assert leaves == [send_delivery(delivery_id=row.pk) for row in rows] == [True, True, False, False, False]


def test_failed_mails_hide_none_that_leaves(reader: Reader) -> None:
    for _ in range(26):
        released("Re: mm: I failed")
    Delivery.objects.update(state=Delivery.State.FAILED)
    released("Re: mm: I leave")
    text = reader.read("/mails/")
    assert "1 mail would leave the site now." in words(text)
    assert "Re: mm: I leave" in section(text, "leaving")
    assert "25 or more, the latest first: not sent unless" in section(text, "failed")


def test_more_than_were_looked_at_are_said(reader: Reader, settings: Settings) -> None:
    settings.MAIL_HOURLY_CAP = 100
    for _ in range(26):
        released()
    assert "25 or more mails would leave the site now." in words(reader.read("/mails/"))
    Finding.objects.filter(report__in=Report.objects.order_by("pk")[:25]).update(state=Finding.State.INVALID)
    text = words(reader.read("/mails/"))
    assert "None of the first 25 in line would leave the site now; there are more." in text
    settings.MAIL_HOURLY_CAP = 0
    assert "Nothing would leave the site now." in words(reader.read("/mails/"))


def test_who_opts_out_later_was_written_to(staff: Reader) -> None:
    delivery = released()
    assert send_delivery(delivery_id=delivery.pk)
    OptOut.objects.create(address="linux-mm@example.org")
    assert "Cc: linux-mm@example.org" in staff.read(f"/mails/{delivery.report_id}/")


def test_pages_do_not_tell_the_public_who_opted_out(reader: Reader, staff: Reader) -> None:
    row = report(to=["ada@example.org"], cc=["linux-mm@example.org", "bob@example.org"])
    MailingList.objects.update(address="linux-mm@example.org")
    OptOut.objects.create(address="bob@example.org")
    assert row.series is not None
    pages = (f"/mails/{row.pk}/", f"/series/{row.series.pk}/mail/")
    for page in pages:
        public = reader.read(page).split("<pre")[-1]
        assert "To: 1 address" in public
        assert "Cc: linux-mm@example.org" in public
        assert "ada@example.org" not in public
        assert "bob@example.org" not in public
        named = staff.read(page).split("<pre")[-1]
        assert "To: ada@example.org" in named
        assert "bob@example.org" not in named


def test_mail_is_shown_as_it_is_sent(staff: Reader) -> None:
    delivery = released()
    OptOut.objects.create(address="linux-mm@example.org")
    text = staff.read(f"/mails/{delivery.report_id}/")
    assert "1 asked for no mail, or takes none, and is left out" in words(text)
    assert send_delivery(delivery_id=delivery.pk)
    sent = mail.outbox[0].message().as_bytes().decode()
    shown = text.split("<code>", 2)[-1].split("</code></pre>")[0]
    plain = shown.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&#x27;", "'")
    assert plain.strip() == sent.strip()


def test_draft_has_no_number_yet_and_wide_lines_are_pointed_at(reader: Reader) -> None:
    row = report(body="x" * 90 + "\n")
    text = words(reader.read(f"/mails/{row.pk}/"))
    assert "Message-ID and Date are given when it is released." in text
    assert "Its widest line has 90 columns, more than 78." in text
    assert "Message-ID: &lt;" not in text


def test_body_that_is_wrapped_up_on_its_way_is_shown_as_it_is_read(reader: Reader) -> None:
    row = report(body="Gemessen von Jürgen 测量\n" + "y" * 1200 + "\n")
    text = reader.read(f"/mails/{row.pk}/")
    assert "Gemessen von Jürgen 测量" in text
    assert "here it is read" in text


def test_refused_report_and_unknown_numbers_say_so(reader: Reader) -> None:
    row = report("", state=Report.State.REFUSED, reason="no machine told its kernel", body="", to=[])
    assert "no machine told its kernel" in reader.read(f"/mails/{row.pk}/")
    assert "no machine told its kernel" in section(reader.read("/mails/"), "over")
    reader.read("/mails/999999/", status=404)


def test_list_is_narrowed_to_a_state_and_an_unknown_one_is_said(reader: Reader) -> None:
    released("Re: mm: I leave")
    report("Re: mm: I wait")
    drafts = words(reader.read("/mails/?state=draft"))
    assert "Re: mm: I wait" in drafts
    assert "Re: mm: I leave" not in drafts
    assert "No mail is in this state." in words(reader.read("/mails/?state=sent"))
    text = words(reader.read("/mails/?state=no%00such"))
    assert "There is no state" in text
    assert "known: draft, held, approved, sent, rejected, refused." in text
    assert "Re: mm: I leave" in text


def test_hostile_words_are_words(reader: Reader) -> None:
    row = report("Re: <script>alert(1)</script>", body="<b>bold</b> & \u202eturned\n")
    for path in ("/mails/", f"/mails/{row.pk}/"):
        text = reader.read(path)
        assert "<script>alert" not in text
        assert "<b>bold" not in text
        assert "\u202e" not in text


def test_list_needs_a_dozen_queries_at_most(reader: Reader, django_assert_max_num_queries: Any) -> None:
    for _ in range(3):
        released()
        report()
        report(state=Report.State.REJECTED)
    with django_assert_max_num_queries(12):
        reader.read("/mails/")


def test_what_came_back_is_said_with_lists_by_name_and_people_counted(reader: Reader) -> None:
    delivery = released()
    MailingList.objects.update(address="linux-mm@example.org")
    for address, status in (("linux-mm@example.org", "5.7.1"), ("ada@example.org", "5.1.1")):
        Bounce.objects.create(delivery=delivery, address=address, permanent=True, status=status, said="no")
    text = words(reader.read(f"/mails/{delivery.report_id}/"))
    assert "Came back: linux-mm@example.org refused it (5.7.1); it came back from 1 address." in text
    assert "ada@example.org" not in text
    home = words(reader.read("/"))
    assert "The list linux-mm@example.org refuses reports (5.7.1)." in home
