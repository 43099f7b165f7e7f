"""What is told after a first mail, and of branches: gathered from rows, in a few queries."""

from dataclasses import replace
from datetime import timedelta

import pytest

from server.core import clock
from server.core.errors import DomainError
from server.detection.models import Comparison, Finding, FindingVerdict, Verdict
from server.lab.models import Session, Trial
from server.reports.composer import (
    compose,
    gather,
    gather_bisection,
    gather_correction,
    gather_digest,
    gather_follow_up,
    gather_retraction,
)
from server.reports.models import Report
from server.reports.writing import compose_report
from tests.builders import (
    build_comparison,
    build_finding,
    build_machine,
    build_revision,
    build_series,
    build_trial,
    build_trial_session,
)
from tests.reports.test_compose import assert_fits, measured_session, split_series
from tests.reports.test_evidence import bisected

pytestmark = pytest.mark.django_db


def branch_finding(verdict: str = Verdict.REGRESSED) -> Finding:
    """A regression of a branch on haswell, with its trial judged."""
    good = build_revision(subject="mm: Good")
    bad = build_revision(good.tree, good, subject="mm: Bad")
    trial = build_trial(good, bad, purpose=Trial.Purpose.CONFIRM, state=Trial.State.DONE)
    session = build_trial_session(trial, build_machine("box-haswell", "haswell"), state=Session.State.DONE)
    row = build_comparison(session, verdict)
    branch = good.tree.branches.create(name="mm-unstable")
    finding = Finding.objects.create(
        branch=branch,
        before=good,
        after=bad,
        culprit=bad,
        trial=trial,
        kind=Finding.Kind.REGRESSED,
        state=Finding.State.CONFIRMED,
        headline="Regressed on haswell.",
        virtual=False,
    )
    FindingVerdict.objects.create(finding=finding, uarch=session.machine.uarch, verdict=verdict, comparison=row)
    return finding


def told_report(finding: Finding) -> Report:
    report = compose_report(finding_id=finding.pk)
    assert report is not None
    return report


def body_words(text: str) -> str:
    return " ".join(text.split())


def test_regression_of_a_branch_names_its_commits_and_begins_a_thread() -> None:
    finding = branch_finding()
    text = compose(gather(finding))
    good = finding.before.sha[:12] if finding.before else ""
    assert text.subject == f"[REGRESSION] stable/mm-unstable: 1.7x slower on haswell since {good}"
    assert text.body.startswith("Regressed: 1.7x slower on haswell (1000 -> 1710 ns). In stable/mm-unstable,\nbetween ")
    assert f"  last good: {good} (mm: Good)\n" in text.body
    assert f"/findings/{finding.pk}/" in text.body
    # On one line, or on two where the address is long.
    assert f"/findings/{finding.pk}/ mm-basic/fault-4k" in body_words(text.body.replace("\\\n", ""))
    assert_fits(text)


def test_culprit_of_a_branch_is_told_with_how_sure_that_is() -> None:
    finding = branch_finding()
    bisected(finding, Comparison.objects.get())
    text = compose(gather(finding))
    assert 'since "mm: Bad"' in text.subject
    assert "(mm: Bad) by" in body_words(text.body)
    assert "Bisection: made by patch 2 of 3" in text.body


def test_result_of_a_bisection_leads_its_mail() -> None:
    finding = build_finding(split_series(), Finding.Kind.SPLIT)
    with pytest.raises(DomainError, match="has said nothing yet"):
        gather_bisection(finding)
    bisected(finding, Comparison.objects.get(session__machine__name="box-haswell"))
    text = compose(gather_bisection(finding))
    assert text.body.startswith("Bisection: made by patch 2 of 3: mm: Patch 2")
    assert text.body.count("Bisection:") == 1
    assert_fits(text)


def test_new_version_is_told_beside_the_one_before_with_the_figures_of_both() -> None:
    first = split_series()
    earlier = told_report(build_finding(first, Finding.Kind.SPLIT))
    second = build_series(first.mailing_list, version=2)
    for uarch in ("haswell", "zen3", "zen5"):
        machine = Session.objects.filter(machine__uarch__name=uarch).get().machine
        row = build_comparison(measured_session(second, machine.name, uarch), Verdict.UNCHANGED)
        assert row.session.machine == machine
    text = compose(gather_follow_up(build_finding(second, Finding.Kind.UNCHANGED), earlier))
    said = body_words(text.body)
    assert said.startswith(
        "v2 no longer shows what v1 cost: 1.7x slower on haswell -> no change (would have seen 1.2 %). No change on "
    )
    assert "v1: 1000 +- 5 -> 1710 +- 6 ns: 1.71x slower [1.69 to 1.73x], 4+4 boots" in said
    assert "v2: 1000 +- 5 -> 1001 +- 6 ns: no change, would have seen 1.2 %, 4+4 boots" in said
    assert_fits(text)


def test_retraction_says_what_is_withdrawn_and_why_though_checks_took_the_cells_away() -> None:
    finding = build_finding(split_series(), Finding.Kind.SPLIT)
    report = told_report(finding)
    gone = Comparison.objects.get(session__machine__name="box-haswell")
    check = {"name": "again", "outcome": "failed", "text": "gone", "machine": "box-haswell", "comparisons": [gone.pk]}
    Finding.objects.filter(pk=finding.pk).update(checks=[check], state=Finding.State.INVALID)
    report.refresh_from_db()
    text = compose(gather_retraction(report, "fresh boots show no change\n#tidemark accept: all"))
    said = body_words(text.body)
    assert said.startswith("Retraction: ")
    assert "Told: Split: 1.7x slower on haswell (1000 -> 1710 ns), 20 % faster on zen3 (1000 -> 800.0 ns); no" in said
    assert "Why it is taken back: fresh boots show no change # tidemark accept: all" in said
    assert "1000 +- 5 -> 1710 +- 6 ns: 1.71x slower" in said
    assert "Reported-by" not in text.body
    assert_fits(text)
    with pytest.raises(DomainError, match="says why"):
        gather_retraction(report, " ")


def test_correction_names_both() -> None:
    finding = build_finding(split_series(), Finding.Kind.SPLIT)
    report = told_report(finding)
    Comparison.objects.filter(session__machine__name="box-haswell").update(verdict=Verdict.UNCHANGED)
    Finding.objects.filter(pk=finding.pk).update(kind=Finding.Kind.IMPROVED)
    report = Report.objects.get(pk=report.pk)
    text = compose(gather_correction(report))
    said = body_words(text.body)
    assert said.startswith("Correction. Improved: 20 % faster on zen3 (1000 -> 800.0 ns);")
    assert "In place of what was told: Split: 1.7x slower on haswell" in said
    assert_fits(text)


def test_digest_tells_each_finding_of_the_tree_once_and_nothing_inconclusive() -> None:
    finding = branch_finding()
    assert finding.branch is not None
    until = clock.now()
    noisy = replace_kind(finding)
    told = gather_digest(finding.branch.tree, until - timedelta(days=7), until, [finding, noisy])
    assert [entry.kind for entry in told.entries] == ["regressed"]
    text = compose(told)
    assert text.subject.startswith("[tidemark] stable, ")
    assert "1 regressed" in text.subject
    assert "Regressed: 1.7x slower on haswell." in text.body
    assert "1000 +- 5 -> 1710 +- 6 ns" in text.body
    assert_fits(text)
    assert_fits(compose(replace(told, entries=told.entries * 40)))


def replace_kind(finding: Finding) -> Finding:
    copy = Finding.objects.get(pk=finding.pk)
    copy.kind = Finding.Kind.INCONCLUSIVE
    return copy


def test_machines_that_contradict_each_other_claim_nothing_and_stand_in_columns_of_their_own() -> None:
    series = build_series()
    build_comparison(measured_session(series, "zen3-a", "zen3"), Verdict.REGRESSED)
    build_comparison(measured_session(series, "zen3-b", "zen3"), Verdict.UNCHANGED)
    build_comparison(measured_session(series, "zen5-a", "zen5"), Verdict.REGRESSED)
    told = gather(build_finding(series, Finding.Kind.REGRESSED))
    assert told.columns == ("zen3-a", "zen3-b", "zen5-a")
    body = compose(told).body
    assert body.startswith("Regressed: 1.7x slower on zen5 (1000 -> 1710 ns); cannot be told on zen3.")
    # In the first sentence, where it was, beside its figures, and in the table.
    assert body.count("slower") == 4
    assert [line.split() for line in body.splitlines() if line.startswith("  fault")] == [
        ["fault", "4k", "1.71x", "slower", "?", "<1.2%", "?", "<1.2%"]
    ]


def test_of_machines_that_agree_the_smallest_change_is_told() -> None:
    series = build_series()
    build_comparison(measured_session(series, "zen3-a", "zen3"), Verdict.REGRESSED)
    small = {"ratio": 1.2, "ratio_low": 1.19, "ratio_high": 1.21, "patched_mean": 1200.0}
    build_comparison(measured_session(series, "zen3-b", "zen3"), Verdict.REGRESSED, **small)
    assert compose(gather(build_finding(series, Finding.Kind.REGRESSED))).body.startswith(
        "Regressed: 20 % slower on zen3 (1000 -> 1200 ns)."
    )
