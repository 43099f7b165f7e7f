"""How far a series has come, told from its rows."""

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from server.builds.models import Build
from server.detection.models import Finding, Verdict
from server.lab.models import Attempt, Boot, Session
from server.reports.models import Delivery, Report
from server.reports.progress import series_history, series_progress, series_progress_many
from server.reports.stop_switch import stop_all
from server.sources.models import Patch, Series
from tests.builders import (
    because,
    build_build,
    build_comparison,
    build_finding,
    build_machine,
    build_series,
    build_session,
)

pytestmark = pytest.mark.django_db


def states(series: Series) -> dict[str, str]:
    return {stage.name: stage.state for stage in series_progress(series).stages}


def series_of(finding: Finding) -> Series:
    assert finding.series is not None
    return finding.series


def judged_series(kind: str = Finding.Kind.REGRESSED) -> Finding:
    series = build_series()
    build_comparison(build_session(series, state=Session.State.DONE), Verdict.REGRESSED)
    return build_finding(series, kind)


def report_on(finding: Finding, state: str, **fields: Any) -> Report:
    given = {"subject": "Re: x", "body": "x", "in_reply_to": "a@b", "to": ["ada@example.org"]} | fields
    return Report.objects.create(
        finding=finding, first_of=finding, state=state, trace=finding.trace, **given
    ).record_creation()


def delivery_of(report: Report, state: str, **fields: Any) -> Delivery:
    return Delivery.objects.create(
        report=report, state=state, message_id="tidemark.1@example.org", trace=report.trace, **fields
    ).record_creation()


def test_incomplete_series_counts_its_patches() -> None:
    series = build_series(state=Series.State.INCOMPLETE)
    Patch.objects.filter(series=series, index=2).delete()
    progress = series_progress(series)
    assert progress.state == "running"
    assert progress.reason == "mails: 1 of 2 patches have arrived"
    assert progress.current.name == "mails"


def test_held_series_waits_for_a_person() -> None:
    progress = series_progress(build_series(state=Series.State.HELD, reason="sender is not trusted"))
    assert progress.state == "held"
    assert "sender is not trusted" in progress.reason


def test_held_series_whose_senders_are_not_checked_yet_waits_for_nobody() -> None:
    progress = series_progress(build_series(state=Series.State.HELD, checked_at=None))
    assert progress.state == "running"
    assert progress.reason == "mails: 2 of 2 patches; its senders are being checked"
    assert not progress.current.held


def test_series_that_does_not_apply_has_failed_with_its_reason() -> None:
    series = build_series(state=Series.State.READY)
    series.advance(Series.State.REFUSED, because("patch 2 does not apply"))
    progress = series_progress(series)
    assert progress.state == "failed"
    assert progress.reason == "apply: patch 2 does not apply"
    assert states(series)["mails"] == "done"


def test_superseded_series_names_the_newer_version() -> None:
    newer = build_series(version=2)
    series = build_series(state=Series.State.SUPERSEDED, superseded_by=newer)
    progress = series_progress(series)
    assert (progress.state, progress.reason) == ("superseded", "superseded by version 2")


def test_superseded_series_promises_neither_verdict_nor_mail() -> None:
    series = build_series()
    build_session(series, state=Session.State.DONE)
    series.advance(Series.State.SUPERSEDED, because("replaced by v2"))
    progress = series_progress(series)
    assert [(stage.state, stage.detail) for stage in progress.stages[4:]] == [("waiting", "replaced by v2")] * 2
    build_finding(series)
    assert series_progress(series).stage("report").state == "waiting"


def test_kernels_are_expected_for_each_recipe_of_the_good_machines_before_any_is_wanted() -> None:
    build_machine("box-a", "zen3")
    build_machine("box-b", "zen5")
    build_machine("box-off", "zen4", enabled=False)
    stage = series_progress(build_series()).stage("builds")
    assert [(item.arm, item.state) for item in stage.builds] == [("base", "missing"), ("patched", "missing")]


def test_running_build_shows_what_its_agent_says() -> None:
    build_machine()
    series = build_series()
    build_build(series.base)
    build = build_build(series.head, state=Build.State.RUNNING)
    Attempt.objects.create(
        key="build-1-1", number=1, build=build, adapter="local", slots=1, state="running", progress="CC mm/memory.o"
    )
    stage = series_progress(series).stage("builds")
    assert (stage.state, stage.detail) == ("running", "1 of 2 kernels")
    assert stage.builds[1].detail == "CC mm/memory.o"


def test_series_whose_patched_kernel_does_not_build_has_failed() -> None:
    series = build_series()
    patched = build_build(series.head, state=Build.State.FAILED, reason="mm/memory.c:1: error")
    build_session(series, patched_build=patched, state=Session.State.FAILED, reason="patched kernel does not build")
    progress = series_progress(series)
    assert progress.state == "failed"
    assert progress.reason.startswith("builds: 1 of 2 kernels; the series breaks the build: mm/memory.c:1")


def test_sessions_count_their_boots() -> None:
    series = build_series()
    session = build_session(series, state=Session.State.RUNNING)
    Boot.objects.filter(session=session, position=0).update(state="measured", boot_id="x", build_id="y")
    Boot.objects.filter(session=session, position=1).update(state="failed")
    Attempt.objects.create(
        key="session-1-1", number=1, session=session, adapter="local", slots=1, state="running", progress="boot 3 of 4"
    )
    item = series_progress(series).stage("sessions").sessions[0]
    assert (item.measured, item.failed, item.planned, item.detail) == (1, 1, 2, "boot 3 of 4")
    assert series_progress(series).state == "running"


def test_one_machine_that_fails_does_not_fail_the_series_but_is_named() -> None:
    series = build_series()
    build_session(series, build_machine("box-a", "zen3"), state=Session.State.DONE)
    build_session(series, build_machine("box-b", "zen5"), state=Session.State.FAILED, reason="panic at boot")
    stage = series_progress(series).stage("sessions")
    assert stage.state == "done"
    assert stage.detail.endswith("box-b: panic at boot")
    assert series_progress(series).state == "running"


def test_series_of_which_nothing_was_measured_has_failed() -> None:
    series = build_series()
    build_session(series, state=Session.State.FAILED, reason="panic at boot")
    progress = series_progress(series)
    assert progress.state == "failed"
    assert "panic at boot" in progress.reason


def test_virtual_machines_alone_end_without_a_verdict(settings: Settings) -> None:
    settings.VIRTUAL_VERDICTS = False
    series = build_series()
    build_session(series, build_machine(virtual=True), state=Session.State.DONE)
    progress = series_progress(series)
    assert (progress.state, progress.reason) == ("done", "virtual machines only: stored, not judged")


def test_virtual_machines_are_judged_where_the_site_says_so(settings: Settings) -> None:
    settings.VIRTUAL_VERDICTS = True
    series = build_series()
    build_session(series, build_machine(virtual=True), state=Session.State.DONE)
    assert states(series)["verdict"] == "running"


def test_change_that_is_being_checked_is_no_verdict_yet() -> None:
    finding = judged_series()
    Finding.objects.update(state=Finding.State.CANDIDATE)
    progress = series_progress(series_of(finding))
    verdict = progress.stage("verdict")
    assert (progress.state, verdict.state, verdict.ended_at) == ("running", "running", None)
    assert verdict.detail == f"being checked before it is claimed: {finding.headline}"


def test_inconclusive_finding_ends_the_way_without_a_mail() -> None:
    progress = series_progress(series_of(judged_series(Finding.Kind.INCONCLUSIVE)))
    assert progress.state == "done"
    assert progress.stage("report").detail == "nothing inconclusive is mailed"


def refused(finding: Finding) -> None:
    Report.objects.create(
        finding=finding, first_of=finding, state=Report.State.REFUSED, reason="empty table"
    ).record_creation()


def draft(finding: Finding) -> None:
    report_on(finding, Report.State.DRAFT)


def rejected(finding: Finding) -> None:
    report_on(finding, Report.State.REJECTED, reason="known")


def sent(finding: Finding) -> None:
    delivery_of(report_on(finding, Report.State.SENT), Delivery.State.SENT)


def bounced(finding: Finding) -> None:
    delivery_of(report_on(finding, Report.State.APPROVED), Delivery.State.FAILED, reason="550 no")


def queued(finding: Finding) -> None:
    delivery_of(report_on(finding, Report.State.APPROVED), Delivery.State.QUEUED)


@pytest.mark.parametrize(
    ("step", "state", "words"),
    [
        (refused, "failed", "report: empty table"),
        (draft, "held", "waiting for moderation"),
        (rejected, "done", "Regressed on haswell"),
        (sent, "done", "Regressed on haswell"),
        (bounced, "failed", "report: 550 no"),
        (queued, "running", "report: waiting to be sent"),
    ],
)
def test_report_decides_how_the_series_ends(
    settings: Settings, step: Callable[[Finding], None], state: str, words: str
) -> None:
    settings.MAIL_ENABLED = True
    finding = judged_series()
    step(finding)
    progress = series_progress(series_of(finding))
    assert progress.state == state
    assert words in progress.reason


def test_stopped_mail_waits_for_a_person(settings: Settings) -> None:
    settings.MAIL_ENABLED = False
    finding = judged_series()
    queued(finding)
    assert series_progress(series_of(finding)).reason == "mail is switched off at this site"
    assert series_progress(series_of(finding)).state == "held"


def test_mail_that_a_person_stops_is_no_running_one(settings: Settings) -> None:
    settings.MAIL_ENABLED = True
    finding = judged_series()
    queued(finding)
    stop_all(reason="the list is flooded", actor="ada")
    progress = series_progress(series_of(finding))
    assert (progress.reason, progress.state) == ("a person has stopped all that leaves this site", "held")


def test_number_of_queries_does_not_grow_with_the_series(django_assert_max_num_queries: Any) -> None:
    series = [series_of(judged_series()) for _ in range(6)]
    fresh = list(Series.objects.filter(pk__in=[one.pk for one in series]))
    with django_assert_max_num_queries(12):
        progress = series_progress_many(fresh)
    assert [one.series_id for one in progress] == [one.pk for one in fresh]


def test_history_tells_every_step_with_the_name_of_what_stepped() -> None:
    series = build_series()
    session = build_session(series, state=Session.State.RUNNING)
    boot = session.boots.get(position=1)
    boot.advance(Boot.State.RUNNING, because("claimed"))
    Attempt.objects.create(
        key="build-9-1", number=1, build=session.base_build, adapter="local", slots=1, state="submitting"
    ).record_creation()
    build_series(build_series().mailing_list)
    steps = series_history(series)
    told = [(step.label, step.before, step.after) for step in steps]
    assert told[0] == ("series", "", "applied")
    assert ("base kernel (lean-x86-64)", "", "built") in told
    assert ("patched kernel (lean-x86-64)", "", "built") in told
    assert ("session on vm-haswell", "", "running") in told
    assert ("boot 1 (patched) on vm-haswell", "planned", "running") in told
    assert told[-1] == ("attempt build-9-1", "", "submitting")
    assert len(told) == 1 + 2 + 1 + 1 + 4 + 1 + 1
