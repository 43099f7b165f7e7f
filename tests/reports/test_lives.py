"""What is told of a finding after its first mail: a new version, a bisection, a retraction, a correction."""

from datetime import timedelta
from email import message_from_bytes

import pytest
import time_machine
from django.core import mail
from django.test import Client
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.models import Transition
from server.core.reasons import Because
from server.detection.branches.release import Why, invalidate
from server.detection.findings.checks import Name, set_checks
from server.detection.findings.result import remake
from server.detection.lifecycle.disproof import disprove
from server.detection.lifecycle.retest import retest_series
from server.detection.models import Comparison, Finding
from server.detection.on_trial_over import answer_trial
from server.lab.models import Trial
from server.reports.models import Delivery, Report
from server.reports.moderation import approve_report, reject_report
from server.reports.outbox import send_delivery, wake_outbox
from server.reports.progress import series_progress
from server.reports.writing import tell_news
from server.sources.models import Series
from tests.builders import because, build_machine
from tests.detection.lifecycle.findings import judged, write_down
from tests.reports.tellable import bisected, last, news, searched, send, silence, told, unmoderated, version, withdraw
from workers.reports import compose

pytestmark = pytest.mark.django_db
UP, DOWN, SAME = "regressed", "improved", "unchanged"


@pytest.fixture(autouse=True)
def open_site(settings: Settings) -> None:
    settings.MAIL_ENABLED = True
    settings.MAIL_FROM = "Tidemark <tidemark@perf.example.org>"
    settings.MAIL_SINK = ""
    settings.MAIL_HOURLY_CAP = 100


def next_version(of: Finding, verdicts: dict[str, dict[str, str]]) -> Finding:
    """As when a new version of its series is judged."""
    newer = version(verdicts, version=2)
    assert of.series is not None
    of.series.advance(Series.State.SUPERSEDED, because("replaced"), superseded_by=newer.series)
    Finding.objects.filter(pk=newer.pk).update(previous=of)
    of.refresh_from_db()
    of.advance(Finding.State.SUPERSEDED, because("v2 is judged"))
    newer.refresh_from_db()
    return newer


def readers(report: Report) -> list[str]:
    return sorted([*report.to, *report.cc])


def test_version_that_removes_a_regression_is_told_beside_the_old_figures_in_its_own_thread() -> None:
    first = version({"zen3": {"fork": UP}})
    told(first)
    second = next_version(first, {"zen3": {"fork": SAME}})
    news(second)
    report = Report.objects.get(first_of=second)
    assert (report.kind, report.answers) == (Report.Kind.FOLLOW_UP, first.report)
    assert second.series is not None
    letter = send(report)
    assert letter["In-Reply-To"] == f"<{second.series.root_message_id}>"
    assert "71 % slower" in report.body or "1.7x slower" in report.body
    assert "0.1 %" in report.body or "no change" in report.body.lower()
    second.refresh_from_db()
    assert second.state == Finding.State.REPORTED


def test_version_of_which_nothing_was_told_before_gets_an_ordinary_report() -> None:
    first = version({"zen3": {"fork": UP}})
    news(first)
    second = next_version(first, {"zen3": {"fork": SAME}})
    news(first)
    news(second)
    assert Report.objects.get(first_of=second).kind == Report.Kind.SERIES
    draft = Report.objects.get(first_of=first)
    assert (draft.state, draft.reason_code) == (Report.State.REJECTED, Because.REPLACED)


def test_improvement_in_place_of_a_told_regression_waits_for_nobody_on_an_open_list() -> None:
    unmoderated()
    first = version({"zen3": {"fork": UP}})
    told(first)
    second = next_version(first, {"zen3": {"fork": DOWN}})
    news(second)
    assert Report.objects.get(first_of=second).state == Report.State.APPROVED


def test_what_a_person_calls_wrong_is_taken_back_in_the_same_thread_from_the_same_people() -> None:
    finding = version({"zen3": {"fork": UP}})
    report = told(finding)
    invalidate(finding, actor="ada", why=Why.NOISE, reason="the machine throttled")
    news(finding)
    retraction = last(Report.Kind.RETRACTION)
    assert (retraction.finding, retraction.answers, retraction.first_of) == (finding, report, None)
    assert readers(retraction) == readers(report)
    letter = send(retraction)
    ours = f"<{report.delivery.message_id}>"
    assert letter["In-Reply-To"] == ours
    assert letter["References"].split() == [*(f"<{name}>" for name in report.references), ours]
    assert "the machine throttled" in retraction.body
    news(finding)
    assert Report.objects.filter(kind=Report.Kind.RETRACTION).count() == 1
    assert finding.state == Finding.State.INVALID


def test_retraction_reaches_the_old_version_s_readers_though_a_newer_one_has_come() -> None:
    finding = version({"zen3": {"fork": UP}})
    told(finding)
    assert finding.series is not None
    finding.series.advance(Series.State.SUPERSEDED, because("v2 has come"))
    withdraw(finding)
    news(finding)
    send(last(Report.Kind.RETRACTION))


def test_draft_of_a_withdrawn_finding_is_rejected_with_the_reason_and_nothing_is_taken_back() -> None:
    finding = version({"zen3": {"fork": UP}})
    news(finding)
    withdraw(finding, "noise: the machine was busy")
    news(finding)
    report = Report.objects.get()
    assert (report.state, report.reason_code) == (Report.State.REJECTED, Because.WITHDRAWN)
    assert "the machine was busy" in report.reason


def test_queued_mail_of_a_withdrawn_finding_does_not_leave() -> None:
    unmoderated()
    finding = version({"zen3": {"fork": UP}})
    news(finding)
    withdraw(finding)
    news(finding)
    assert Report.objects.get().state == Report.State.REJECTED
    assert Delivery.objects.get().state == Delivery.State.FAILED


def test_finding_that_falls_while_its_mail_is_being_sent_is_taken_back_afterwards() -> None:
    unmoderated()
    finding = version({"zen3": {"fork": UP}})
    news(finding)
    delivery = Delivery.objects.get()
    delivery.advance(Delivery.State.SENDING)
    withdraw(finding)
    news(finding)
    assert not Report.objects.filter(kind=Report.Kind.RETRACTION).exists()
    # The server took it.
    delivery.advance(Delivery.State.QUEUED)
    Delivery.objects.filter(pk=delivery.pk).update(state=Delivery.State.SENT)
    Report.objects.filter(pk=delivery.report_id).update(state=Report.State.SENT)
    Finding.objects.filter(pk=finding.pk).update(news=True)
    news(finding)
    assert last(Report.Kind.RETRACTION).answers_id == delivery.report_id


def retest(finding: Finding, verdicts: dict[str, dict[str, str]]) -> Trial:
    machines = {build_machine(f"box-{uarch}", uarch): cases for uarch, cases in verdicts.items()}
    return judged(finding.series, machines, purpose=Trial.Purpose.RETEST)


def test_retest_that_shows_nothing_again_withdraws_the_finding_and_takes_the_mail_back() -> None:
    finding = version({"zen3": {"fork": UP}})
    told(finding)
    assert disprove(finding, retest(finding, {"zen3": {"fork": SAME}}))
    news(finding)
    assert (finding.state, finding.reason_code) == (Finding.State.INVALID, Because.NOISE)
    body = last(Report.Kind.RETRACTION).body
    assert "does not show its change" in " ".join(body.split())


def test_whole_way_of_a_retest_from_the_person_who_asks_to_the_mail_that_takes_it_back(client: Client) -> None:
    finding = version({"zen3": {"fork": UP}})
    report = told(finding)
    assert finding.series is not None
    trial, _ = retest_series(finding.series, actor="ada", reason="cannot see it here")
    write_down(trial, {build_machine("box-zen3", "zen3"): {"fork": SAME}})
    Trial.objects.filter(pk=trial.pk).update(state=Trial.State.DONE)
    assert answer_trial(trial_id=trial.pk)
    sweep_all()
    finding.refresh_from_db()
    assert finding.state == Finding.State.INVALID
    letter = message_from_bytes(mail.outbox[-1].message().as_bytes())
    assert letter["In-Reply-To"] == f"<{report.delivery.message_id}>"
    assert "Retraction" in letter.get_payload()
    stage = series_progress(finding.series).stage("report")
    assert "retraction: sent as" in stage.detail
    for page in (f"/findings/{finding.pk}/", "/findings/feed/", f"/series/{finding.series_id}/"):
        assert "does not show its change" in client.get(page).content.decode(), page
    mails = client.get(f"/series/{finding.series_id}/mail/").content.decode()
    assert mails.index("Retraction") > mails.index("slower")
    told_by_api = client.get(f"/api/v1/reports/?finding={finding.pk}&kind=retraction").json()["results"]
    assert [row["answers"] for row in told_by_api] == [report.pk]


def sweep_all() -> None:
    """As the workers do, with a person who releases every draft."""
    for finding_id in Finding.objects.filter(news=True).values_list("pk", flat=True):
        compose(finding_id)
    for draft in Report.objects.filter(state=Report.State.DRAFT):
        send(draft)


def test_retest_that_shows_it_again_or_cannot_tell_takes_nothing_back() -> None:
    finding = version({"zen3": {"fork": UP}})
    told(finding)
    assert not disprove(finding, retest(finding, {"zen3": {"fork": UP}}))
    unsure = retest(finding, {"zen3": {"fork": SAME}})
    Comparison.objects.filter(session__trial=unsure).update(ratio_low=0.9, ratio_high=1.8)
    assert not disprove(finding, unsure)
    finding.refresh_from_db()
    assert finding.state == Finding.State.REPORTED


def test_retest_that_takes_a_part_away_is_told_as_a_correction() -> None:
    finding = version({"zen3": {"fork": UP, "mmap": UP}})
    report = told(finding)
    assert disprove(finding, retest(finding, {"zen3": {"fork": SAME, "mmap": UP}}))
    news(finding)
    correction = last(Report.Kind.CORRECTION)
    assert (correction.answers, correction.in_reply_to) == (report, report.delivery.message_id)
    assert finding.state == Finding.State.REPORTED
    assert "mmap" in correction.body


def test_correction_that_was_needless_once_is_written_when_it_is_needed_again() -> None:
    finding = version({"zen3": {"fork": "regressed", "mmap": "regressed"}})
    told(finding)
    for heard_again in (True, False):
        silence(finding, "fork")
        news(finding)
        assert last(Report.Kind.CORRECTION).state == Report.State.DRAFT
        if heard_again:
            set_checks(finding, [Name.AGAIN], [])
            remake(finding)
            news(finding)
            assert last(Report.Kind.CORRECTION).state == Report.State.REJECTED
    assert Report.objects.filter(kind=Report.Kind.CORRECTION).count() == 2


def test_correction_is_written_once_for_what_is_told_and_anew_while_it_waits() -> None:
    finding = version({"zen3": {"fork": UP, "mmap": UP, "exec": UP}})
    told(finding)
    silence(finding, "fork")
    news(finding)
    correction = last(Report.Kind.CORRECTION)
    silence(finding, "exec")
    news(finding)
    correction.refresh_from_db()
    assert Report.objects.filter(kind=Report.Kind.CORRECTION).count() == 1
    assert correction.told == {"moved": moved(finding), "culprits": []}
    send(correction)
    news(finding)
    assert Report.objects.filter(kind=Report.Kind.CORRECTION).count() == 1


def moved(finding: Finding) -> list[int]:
    rows = Comparison.objects.filter(session__trial=finding.trial, verdict=UP).exclude(case__name="exec")
    return sorted(rows.values_list("pk", flat=True))


def test_correction_that_is_needless_by_now_is_rejected() -> None:
    finding = version({"zen3": {"fork": UP, "mmap": UP}})
    told(finding)
    silence(finding, "fork")
    news(finding)
    silence(finding, "nothing")
    news(finding)
    assert last(Report.Kind.CORRECTION).state == Report.State.REJECTED


def test_bisection_that_ends_after_the_mail_is_told_once_in_its_thread() -> None:
    finding = version({"zen3": {"fork": UP}})
    report = told(finding)
    assert finding.series is not None
    culprit = finding.series.head
    assert culprit is not None
    searched(finding, culprit)
    bisected(finding, culprit=culprit)
    news(finding)
    result = last(Report.Kind.BISECTION)
    assert (result.answers, result.in_reply_to) == (report, report.delivery.message_id)
    assert readers(result) == readers(report)
    send(result)
    Finding.objects.filter(pk=finding.pk).update(news=True)
    news(finding)
    assert Report.objects.filter(kind=Report.Kind.BISECTION).count() == 1


def test_rejected_report_is_never_spoken_of_again() -> None:
    finding = version({"zen3": {"fork": UP, "mmap": UP}})
    news(finding)
    reject_report(report_id=Report.objects.get().pk, reason="not worth it", actor="ada")
    silence(finding, "fork")
    news(finding)
    withdraw(finding)
    news(finding)
    assert Report.objects.count() == 1


def test_accepted_finding_is_taken_back_no_less_and_its_draft_waits() -> None:
    finding = version({"zen3": {"fork": UP}})
    told(finding)
    finding.advance(Finding.State.ACCEPTED, because("known"), actor="ada")
    news(finding)
    assert Report.objects.count() == 1
    withdraw(finding)
    news(finding)
    send(last(Report.Kind.RETRACTION))


def test_incomplete_news_are_refused_with_their_reason_and_told_to_nobody() -> None:
    finding = version({"zen3": {"fork": UP}})
    told(finding)
    finding.refresh_from_db()
    finding.advance(Finding.State.INVALID, Because.NOISE(" "), actor="ada")
    news(finding)
    refused = last(Report.Kind.RETRACTION)
    assert (refused.state, refused.reason) == (Report.State.REFUSED, "a retraction says why")
    assert len(mail.outbox) == 1


def test_news_are_told_once_and_forgotten() -> None:
    finding = version({"zen3": {"fork": UP}})
    assert tell_news(finding_id=finding.pk)
    assert not tell_news(finding_id=finding.pk)
    report = Report.objects.get()
    approve_report(report_id=report.pk)
    assert Transition.objects.filter(subject="report").count() == 2


def test_mail_that_may_have_arrived_keeps_its_text_and_is_taken_back_like_one_that_did() -> None:
    unmoderated()
    finding = version({"zen3": {"fork": UP, "mmap": UP}})
    news(finding)
    delivery = Delivery.objects.get()
    delivery.advance(Delivery.State.SENDING, tries=1)
    with time_machine.travel(clock.now() + timedelta(minutes=3)):
        wake_outbox()
    text = Report.objects.get().body
    silence(finding, "fork")
    news(finding)
    assert Report.objects.get().body == text
    withdraw(finding)
    with time_machine.travel(clock.now() + timedelta(minutes=9)):
        assert not send_delivery(delivery_id=delivery.pk)
    news(finding)
    retraction = last(Report.Kind.RETRACTION)
    assert (retraction.answers_id, retraction.state) == (delivery.report_id, Report.State.APPROVED)
