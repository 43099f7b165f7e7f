"""What a mail says is what its finding claims: after the checks, with the patch that made it."""

import math
from dataclasses import replace

import pytest

from server.core import clock
from server.core.reasons import Because
from server.detection.models import Bisection, BisectionState, BisectionStep, Comparison, Finding, Verdict
from server.detection.on_trial_over import answer_trial
from server.detection.trials.look import look_at_trial
from server.lab.models import Session, Trial
from server.lab.trials.life import SAME_CODE
from server.reports.evidence import gather
from server.reports.mail import MOST_LINES, compose, envelope
from server.reports.models import Report
from server.reports.outbox import compose_report
from server.sources.models import Message, Series
from tests.builders import (
    build_case,
    build_comparison,
    build_finding,
    build_list,
    build_machine,
    build_message,
    build_revision,
    build_series,
    build_session,
    build_trial,
    build_trial_session,
)
from tests.reports.test_compose import assert_fits, measured_session, split_series, text_about

pytestmark = pytest.mark.django_db


def unbooted(series: Series, machine: str, uarch: str) -> Session:
    return build_session(series, build_machine(machine, uarch), state=Session.State.DONE, reason_code=Because.SAME_CODE)


def bisected(finding: Finding, comparison: Comparison, *, state: str = BisectionState.FOUND) -> Bisection:
    """Three patches, of which the second made it; as far as `state` says."""
    base, *patches = [build_revision(subject=f"mm: Patch {number}") for number in range(4)]
    bisection = Bisection.objects.create(
        finding=finding,
        machine=comparison.session.machine,
        target=comparison,
        revisions=[row.sha for row in (base, *patches)],
        low=1,
        high=2,
        effect=math.log(1.71),
        state=state,
        culprit=patches[1] if state == BisectionState.FOUND else None,
        reason="made by patch 2 of 3: mm: Patch 2 (1.71x time of fault-4k on box-haswell)",
    )
    trial = Trial.objects.create(
        key="bisection:1:1", purpose="bisect", base=base, patched=patches[1], looks=[4], state="done"
    )
    BisectionStep.objects.create(bisection=bisection, number=1, kind="culprit", index=2, trial=trial, answer="bad")
    return bisection


def test_cell_that_a_failed_check_took_away_is_no_claim_of_the_mail() -> None:
    series = split_series()
    gone = Comparison.objects.get(session__machine__name="box-zen3")
    check = {"name": "layout", "outcome": "failed", "text": "gone with another layout", "machine": "box-zen3"}
    text = text_about(
        series, Finding.Kind.REGRESSED, checks=[check | {"comparisons": [gone.pk]}], headline="Regressed."
    )
    assert "zen3: 1 inconclusive" in text.body
    assert "0.80x" not in text.body


def test_machine_whose_kernels_run_the_same_code_is_told_as_such() -> None:
    series = split_series()
    unbooted(series, "box-zen1", "zen1")
    assert f"  box-zen1: {SAME_CODE}" in text_about(series).body


def test_series_that_changes_no_code_is_told_without_an_empty_table() -> None:
    series = build_series()
    unbooted(series, "box-zen1", "zen1")
    headline = "Both kernels run the same code. No change on zen1 (same code)."
    text = text_about(series, Finding.Kind.UNCHANGED, headline=headline)
    assert " ".join(text.body.split()).startswith(f"No regression found. {headline}")
    assert "would have been seen" not in text.body
    assert "kernel lean-x86-64 (x86_64), gcc" in text.body
    assert_fits(text)


def test_machine_that_ran_out_of_boots_is_marked() -> None:
    series = split_series()
    Session.objects.filter(machine__name="box-zen5").update(cut_short=True)
    body = text_about(series).body
    assert "box-zen5 (cut short" in body
    assert "box-zen3: Vendor" in body


def test_mail_names_the_patch_that_made_it() -> None:
    series = split_series()
    finding = build_finding(series, Finding.Kind.SPLIT, headline="Regressed on haswell, improved on zen3.")
    bisected(finding, Comparison.objects.get(session__machine__name="box-haswell"))
    text = compose(gather(finding))
    assert "\nBisection: made by patch 2 of 3: mm: Patch 2 (1.71x time of fault-4k" in text.body
    assert_fits(text)


def test_bisection_that_is_under_way_names_nobody() -> None:
    series = split_series()
    finding = build_finding(series, Finding.Kind.SPLIT, headline="Regressed on haswell, improved on zen3.")
    bisected(finding, Comparison.objects.get(session__machine__name="box-haswell"), state=BisectionState.CHECKING)
    assert "Bisection" not in compose(gather(finding)).body


def test_why_a_person_ended_a_bisection_is_not_mailed() -> None:
    series = split_series()
    finding = build_finding(series, Finding.Kind.SPLIT, headline="Regressed on haswell, improved on zen3.")
    bisection = bisected(finding, Comparison.objects.get(session__machine__name="box-haswell"), state="canceled")
    Bisection.objects.filter(pk=bisection.pk).update(reason="ask bob first")
    body = compose(gather(finding)).body
    assert "ask bob first" not in body
    assert "Bisection" not in body


def test_walk_is_told_patch_by_patch_once_it_is_whole() -> None:
    series = build_series(total=2)
    assert series.base is not None
    build_comparison(measured_session(series, "box-haswell", "haswell"), Verdict.REGRESSED)
    series.patches.all().delete()
    before, trials = series.base, []
    for number in (1, 2):
        subject = f"mm: Patch {number}"
        mail = build_message(series.mailing_list, subject=subject)
        patch = series.patches.create(index=number, message=mail, subject=subject, revision=build_revision())
        assert patch.revision is not None
        trials.append(
            Trial.objects.create(
                key=f"walk:{series.pk}:{number}", purpose="patch", series=series, base=before, patched=patch.revision,
                looks=[4], state="failed", reason="no machine",
            )
        )  # fmt: skip
        before = patch.revision
    finding = build_finding(series, headline="Regressed on haswell (1.71x time of fault-4k).")
    assert "What each patch adds:\n  patch 1 was not measured: no machine\n" in compose(gather(finding)).body
    Trial.objects.filter(pk=trials[1].pk).update(state="measuring")
    body = compose(gather(finding)).body
    assert "What each patch adds" not in body
    assert len(body.splitlines()) <= MOST_LINES


def test_mail_with_a_long_walk_and_a_large_table_still_fits() -> None:
    series = build_series()
    cases = [build_case(f"a-rather-long-case-name-number-{n:02}") for n in range(12)]
    for n in range(8):
        session = measured_session(series, f"machine-with-a-long-name-{n:02}", f"microarchitecture-{n:02}")
        for case in cases:
            build_comparison(session, Verdict.REGRESSED if n % 2 else Verdict.UNCHANGED, case=case)
    gaps = [{"machine": f"gone-{n}", "uarch": "x", "reason": "panic " * 60} for n in range(30)]
    evidence = gather(build_finding(series, headline=f"Regressed on {', '.join('abcdefgh' * 60)}.", gaps=gaps))
    walk = tuple(f"patch {n} {'improved time of copy-4k (0.71x); ' * 9}" for n in range(30))
    culprit, why = f"Bisection: {'made by patch 2 of 3; ' * 60}", "no fsrm " * 30
    text = compose(replace(evidence, culprit=culprit, explanation=why, walk=walk))
    assert_fits(text)
    assert "+- 6 ns" in text.body
    assert "What each patch adds:" in compose(replace(gather(build_finding(split_series())), walk=walk)).body


def explanation(text: str, *, chance: float) -> dict[str, object]:
    return {"outcome": "one", "text": text, "case": "fault-4k", "metric": "time", "chance": chance}


def test_mail_says_what_separates_the_machines_and_what_that_is_worth() -> None:
    told = "True of all machines that regressed and of none of the improved ones: no fsrm; chance finds it in 10 %."
    rows = [explanation("No fact.", chance=0.6), explanation(told, chance=0.1), explanation("Another.", chance=0.1)]
    finding = build_finding(split_series(), Finding.Kind.SPLIT, explanations=rows)
    text = compose(gather(finding))
    said = " ".join(text.body.split())
    assert f"Why here and not there (time of fault-4k): true{told[4:]} " in said
    assert "No fact" not in said
    assert "Another" not in said
    assert_fits(text)


def test_explanation_is_told_whole_or_left_to_the_page() -> None:
    rows = [explanation(f"True of all: {'no fsrm, ' * 80}; chance finds it in 50 %.", chance=0.5)]
    finding = build_finding(split_series(), Finding.Kind.SPLIT, explanations=rows)
    assert "Why here" not in compose(gather(finding)).body


def test_series_of_comments_goes_the_whole_way_without_a_boot() -> None:
    series = build_series(build_list(moderated=False))
    trial = build_trial(purpose="series", series=series, state=Trial.State.MEASURING, looks=[4, 6])
    session = build_trial_session(trial, build_machine("box-zen1", "zen1"), state=Session.State.DONE)
    session.boots.all().delete()
    Session.objects.filter(pk=session.pk).update(reason_code=Because.SAME_CODE, concluded_at=clock.now())
    assert look_at_trial(trial_id=trial.pk)
    answer_trial(trial_id=trial.pk)
    finding = Finding.objects.get(series=series)
    assert (finding.kind, finding.state) == (Finding.Kind.UNCHANGED, Finding.State.CONFIRMED)
    report = compose_report(finding_id=finding.pk)
    assert report is not None
    assert (report.state, report.reason) == (Report.State.APPROVED, "the list is not moderated")
    assert "Both kernels run the same code." in report.body


def test_reply_goes_to_whom_the_series_itself_was_sent() -> None:
    """Anybody can send a mail with the Message-ID of another one, and be the first whom the archive shows."""
    mailing_list = build_list()
    raw = b"From: Ada <ada@example.org>\nTo: %s@example.net\nMessage-ID: <c@x>\n\nbody\n"
    build_message(mailing_list, message_id="c@x", raw=raw % b"stranger")
    cover = build_message(
        mailing_list, message_id="c@x", raw=raw % b"maintainer", kind=Message.Kind.COVER, authentic=True
    )
    found = envelope(build_series(mailing_list, cover=cover, root_message_id="c@x"))
    assert "maintainer@example.net" in found.cc
    assert "stranger@example.net" not in found.cc
    assert found.in_reply_to == "c@x"


def test_reply_goes_to_nobody_whom_others_may_have_named_unless_a_person_saw_it() -> None:
    """Some domains sign no To or no Cc: whoever posts the mail again writes there what he likes."""
    mailing_list = build_list()
    raw = (
        b"From: Ada <ada@example.org>\nTo: maintainer@example.net\nCc: victim@example.net\nMessage-ID: <c@x>\n\nbody\n"
    )
    cover = build_message(
        mailing_list, message_id="c@x", raw=raw, kind=Message.Kind.COVER, authentic=True, unsigned=["cc"]
    )
    series = build_series(mailing_list, cover=cover, root_message_id="c@x")
    assert envelope(series).cc == (mailing_list.address, "maintainer@example.net")
    series.approved_at = clock.now()
    assert "victim@example.net" in envelope(series).cc
