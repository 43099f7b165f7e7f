"""What the cells of a trial say together, and how it is written down."""

import pytest

from server.core.reasons import Because
from server.detection.findings.result import remake, result_of
from server.detection.models import Comparison, Finding
from server.lab.models import Boot, Session, Trial
from tests.builders import EPOCH, because, build_series, build_trial, build_trial_session, tell_boots
from tests.detection.measured import (
    FASTER,
    SLOWER,
    STEADY,
    Measured,
    judge_series,
    measured_trial,
    physical,
)

pytestmark = pytest.mark.django_db


def judged(measured: Measured) -> Finding:
    trial = measured_trial(build_series(), measured)
    finding = judge_series(series_id=trial.series_id or 0)
    assert finding is not None
    return finding


def same_code(trial: Trial, machine_name: str, uarch: str) -> Session:
    session = build_trial_session(trial, physical(machine_name, uarch))
    session.boots.all().delete()
    Session.objects.filter(pk=session.pk).update(state="done", reason_code=Because.SAME_CODE, concluded_at=EPOCH)
    return session


def verdicts(finding: Finding) -> dict[str, tuple[str, str]]:
    return {row.uarch.name: (row.verdict, row.reason) for row in finding.verdicts.select_related("uarch")}


def test_judging_a_series_with_a_trial_gives_its_finding() -> None:
    finding = judged({physical("z3", "zen3"): {"copy": SLOWER}, physical("z5", "zen5"): {"copy": FASTER}})
    assert finding.kind == Finding.Kind.SPLIT
    assert finding.headline == (
        "Regressed on zen3 (1.71x slower in time of mm-basic/copy), "
        "improved on zen5 (29 % faster in time of mm-basic/copy)."
    )
    assert finding.trial is not None
    assert (finding.trial.state, finding.trial.series_id) == ("done", finding.series_id)
    assert finding.trial.answered_at is not None


def test_a_finding_without_a_change_is_confirmed_at_once() -> None:
    assert judged({physical("h1", "haswell"): {"copy": STEADY}}).state == Finding.State.CONFIRMED


def test_judging_again_gives_the_same_finding() -> None:
    first = judged({physical("h1", "haswell"): {"copy": STEADY}})
    assert judge_series(series_id=first.series_id or 0) == first
    assert (Finding.objects.count(), Comparison.objects.count()) == (1, 1)


def test_same_code_on_one_uarch_is_unchanged_there_and_says_so() -> None:
    trial = measured_trial(build_series(), {physical("z3", "zen3"): {"copy": SLOWER}})
    same_code(trial, "n1", "neoverse-n1")
    finding = judge_series(series_id=trial.series_id or 0)
    assert finding is not None
    assert verdicts(finding)["neoverse-n1"] == ("unchanged", "same code")
    assert (finding.kind, finding.identical, finding.gaps) == ("regressed", False, [])
    assert finding.headline == (
        "Regressed on zen3 (1.71x slower in time of mm-basic/copy), no change on neoverse-n1 (same code)."
    )


def test_same_code_everywhere_needs_no_boot() -> None:
    trial = build_trial(series=build_series(), purpose="series", state=Trial.State.MEASURING)
    same_code(trial, "n1", "neoverse-n1")
    same_code(trial, "z3", "zen3")
    finding = judge_series(series_id=trial.series_id or 0)
    assert finding is not None
    assert (finding.kind, finding.identical, finding.state) == ("unchanged", True, "confirmed")
    assert finding.headline == "Both kernels run the same code. No change on neoverse-n1 (same code), zen3 (same code)."


def test_same_code_on_one_machine_leaves_the_word_to_the_other_of_its_uarch() -> None:
    trial = measured_trial(build_series(), {physical("z3", "zen3"): {"copy": SLOWER}})
    same_code(trial, "z3-lean", "zen3")
    finding = judge_series(series_id=trial.series_id or 0)
    assert finding is not None
    assert verdicts(finding) == {"zen3": ("regressed", "")}


def test_a_session_that_ended_early_is_judged_and_named() -> None:
    trial = measured_trial(build_series(), {physical("z3", "zen3"): {"copy": SLOWER}})
    Session.objects.update(state="failed", reason="patched kernel does not boot: panic")
    finding = judge_series(series_id=trial.series_id or 0)
    assert finding is not None
    assert finding.kind == Finding.Kind.REGRESSED
    assert finding.gaps == [{"machine": "z3", "uarch": "zen3", "reason": "patched kernel does not boot: panic"}]


def test_a_failed_check_of_a_machine_takes_its_change_back_and_nothing_of_the_others() -> None:
    finding = judged({physical("z3", "zen3"): {"copy": SLOWER}, physical("z5", "zen5"): {"copy": FASTER}})
    finding.checks = [{"name": "machine", "outcome": "failed", "text": "its fan was replaced", "machine": "z3"}]
    remake(finding)
    finding.refresh_from_db()
    assert finding.kind == Finding.Kind.IMPROVED
    assert verdicts(finding)["zen3"][0] == "inconclusive"
    assert verdicts(finding)["zen3"][1].startswith("its fan was replaced")
    assert "zen3 (its fan was replaced)" in finding.headline
    assert Comparison.objects.get(session__machine__name="z3").verdict == "regressed"


def test_passed_checks_change_nothing() -> None:
    finding = judged({physical("z3", "zen3"): {"copy": SLOWER}})
    before = verdicts(finding)
    finding.checks = [{"name": "machine", "outcome": "passed", "text": "well", "machine": "z3"}]
    remake(finding)
    assert (finding.kind, verdicts(finding)) == ("regressed", before)


def test_there_is_no_result_while_a_session_goes_on() -> None:
    trial = measured_trial(build_series(), {physical("z3", "zen3"): {"copy": SLOWER}})
    build_trial_session(trial, physical("z5", "zen5"), state=Session.State.RUNNING)
    assert judge_series(series_id=trial.series_id or 0) is None
    assert result_of(trial) is None


def test_a_superseded_series_gets_no_finding_and_its_trial_is_answered() -> None:
    series = build_series()
    trial = measured_trial(series, {physical("z3", "zen3"): {"copy": SLOWER}})
    series.advance("superseded", because("replaced by v2"))
    assert judge_series(series_id=series.pk) is None
    trial.refresh_from_db()
    assert (trial.state, trial.answered_at is None) == ("done", False)


def test_a_session_that_saw_two_machines_is_not_believed() -> None:
    trial = measured_trial(build_series(), {physical("z3", "zen3"): {"copy": SLOWER, "mmap": STEADY}})
    for boot in Boot.objects.filter(arm="base"):
        tell_boots([boot], facts={"fingerprint": "1-new" if boot.position > 3 else "1-old"})
    finding = judge_series(series_id=trial.series_id or 0)
    assert finding is not None
    assert finding.kind == Finding.Kind.INCONCLUSIVE
    assert {(row.verdict, row.reason) for row in Comparison.objects.all()} == {
        ("inconclusive", "the machine's hardware or firmware changed between the boots of the session")
    }


def test_what_the_patched_kernel_says_of_its_machine_is_not_heard() -> None:
    trial = measured_trial(build_series(), {physical("z3", "zen3"): {"copy": SLOWER}})
    for boot in Boot.objects.all():
        tell_boots([boot], facts={"fingerprint": f"1-{boot.arm}"})
    finding = judge_series(series_id=trial.series_id or 0)
    assert finding is not None
    assert finding.kind == Finding.Kind.REGRESSED
