"""What a mail says is what its finding claims: after the checks, with the patch that made it."""

import math
from dataclasses import replace

import pytest

from server.core import clock
from server.core.reasons import Because
from server.detection.findings.result import remade
from server.detection.models import Bisection, BisectionState, BisectionStep, Comparison, Finding, Verdict
from server.detection.on_trial_over import answer_trial
from server.detection.trials.look import look_at_trial
from server.lab.models import Session, Trial
from server.lab.trials.life import SAME_CODE
from server.reports.composer import MOST_LINES, compose, gather
from server.reports.composer.told import Culprit, Separation
from server.reports.models import Report
from server.reports.recipients import envelope
from server.reports.writing import compose_report
from server.sources.models import Message, Series, Tree
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
    assert "cannot be told on zen3" in text.body
    assert "faster" not in text.body


def test_machine_whose_kernels_run_the_same_code_is_told_as_such() -> None:
    series = split_series()
    unbooted(series, "box-zen1", "zen1")
    assert f"  box-zen1: {SAME_CODE}" in text_about(series).body


def test_series_that_changes_no_code_is_told_without_an_empty_table() -> None:
    series = build_series()
    unbooted(series, "box-zen1", "zen1")
    text = text_about(series, Finding.Kind.UNCHANGED)
    assert text.body.startswith("No change: same code on zen1.")
    assert "would have" not in text.body
    assert "kernel lean-x86-64 (x86_64), gcc" in text.body
    assert_fits(text)


def test_machine_that_ran_out_of_boots_is_marked() -> None:
    series = split_series()
    Session.objects.filter(machine__name="box-zen5").update(cut_short=True)
    body = text_about(series).body
    assert "box-zen5 (zen5): Vendor(R) zen5 CPU (cut short" in body
    assert "box-zen3 (zen3): Vendor(R) zen3 CPU\n" in body


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
    told = gather(build_finding(series, gaps=gaps))
    walk = tuple(f"patch {n} {'improved time of copy-4k (29 % faster); ' * 9}" for n in range(30))
    culprit = Culprit(f"Bisection: {'made by patch 2 of 3; ' * 60}", walk)
    text = compose(replace(told, culprit=culprit, separation=Separation(("no fsrm",) * 30, ("a",), ("b",))))
    assert_fits(text)
    assert "+- 6 ns" in text.body
    short = gather(build_finding(split_series()))
    assert "What each patch adds:" in compose(replace(short, culprit=culprit)).body


def explanation(facts: list[str], *, chance: float, alike: list[str] | None = None) -> dict[str, object]:
    return {
        "outcome": "one",
        "conditions": facts,
        "alike": alike or [],
        "changed": ["box-haswell"],
        "others": ["box-zen3", "box-zen5"],
        "chance": chance,
    }


def why(**fields: object) -> str:
    finding = build_finding(split_series(), Finding.Kind.SPLIT, **fields)
    text = compose(gather(finding))
    assert_fits(text)
    return next((" ".join(part.split()) for part in text.body.split("\n\n") if part.startswith("Why")), "")


def test_fact_by_which_the_kernel_chooses_what_the_patches_touch_comes_first_however_few_machines_there_are() -> None:
    rows = [explanation(["no clzero"], chance=0.6), explanation(["avx512f"], chance=1.0, alike=["no fsrm", "no erms"])]
    series = split_series()
    series.patches.update(subject="mm: Let folio_copy() copy pages in batches")
    finding = build_finding(series, Finding.Kind.SPLIT, explanations=rows)
    said = " ".join(compose(gather(finding)).body.split())
    assert "no fsrm and no erms on the machine box-haswell, unlike zen3 and zen5." in said
    assert "The patches are about folio_copy(), whose variants the kernel chooses by fsrm and erms." in said
    assert "One other fact separates them as well; with 1 against 2 machines some fact always does." in said


def test_diff_of_a_patch_tells_what_it_touches() -> None:
    series = split_series()
    patch = series.patches.get(index=1)
    diff = (
        "diff --git a/mm/util.c b/mm/util.c\n--- a/mm/util.c\n+++ b/mm/util.c\n@@ -1,2 +1,2 @@ void batch(void)\n"
        " \tone();\n-\tcopy_highpage(to, from);\n+\tcopy_all(to, from);\n"
    )
    raw = f"From: Ada <ada@example.org>\nSubject: [PATCH 1/2] mm: Batch\nMessage-ID: <p@x>\n\nWords.\n---\n{diff}"
    Message.objects.filter(pk=patch.message_id).update(raw=raw.encode())
    finding = build_finding(series, Finding.Kind.SPLIT, explanations=[explanation(["no fsrm"], chance=1.0)])
    assert "The patches are about copy_highpage()," in " ".join(compose(gather(finding)).body.split())


def test_machines_that_the_tree_does_not_ask_for_are_said_to_be_so() -> None:
    series = split_series()
    assert series.base is not None
    Tree.objects.filter(pk=series.base.tree_id).update(name="mm", uarchs=["haswell", "zen3", "zen5"])
    build_machine("box-n1", "neoverse-n1")
    build_machine("box-zen4", "zen4", health="quarantined")
    told = gather(build_finding(Series.objects.get(pk=series.pk), Finding.Kind.SPLIT)).uncovered
    assert told == (("neoverse-n1", "the tree mm does not ask for them"), ("zen4", "out of service"))


def test_facts_that_the_patches_do_not_point_to_are_told_as_what_they_are() -> None:
    said = why(explanations=[explanation(["no fsrm"], chance=0.6), explanation(["no clzero"], chance=0.1)])
    assert said == (
        "Why is not known. The machines differ: no clzero on the machine box-haswell, unlike zen3 and zen5. With 1 "
        "against 2 machines chance alone finds such facts in 10 % of cases."
    )


def test_mail_says_that_nothing_separates_the_machines_and_nothing_where_none_can_be_compared() -> None:
    none = {"outcome": "none", "conditions": []}
    assert why(explanations=[none]) == "Why here and not there is not known: no fact of the machines separates them."
    assert why(explanations=[none | {"outcome": "no-contrast"}]) == ""


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
    assert "No change: same code on zen1." in report.body


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


@pytest.mark.parametrize(("low", "high", "speaks"), [(1.5, 1.9, "box-a"), (1.58, 1.62, "box-b")])
def test_mail_and_page_let_the_same_machine_speak_for_its_microarchitecture(
    low: float, high: float, speaks: str
) -> None:
    series = build_series()
    precise = {"ratio": 1.71, "ratio_low": 1.70, "ratio_high": 1.72}
    other = {"ratio": 1.6, "ratio_low": low, "ratio_high": high}
    for name, figures in (("box-a", precise), ("box-b", other)):
        build_comparison(measured_session(series, name, "haswell"), Verdict.REGRESSED, **figures)
    finding = build_finding(series)
    [cell] = gather(finding).speaking
    result = remade(finding)
    assert result is not None
    [moved] = result.vector[0].moved
    assert moved.speaker.session.machine.name == speaks
    assert cell.ratio == moved.speaker.ratio
