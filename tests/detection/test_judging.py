from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import DjangoCaptureOnCommitCallbacks, Settings

from server.builds.models import Artifact, Build
from server.core.models import Transition
from server.core.reasons import Because
from server.detection.findings.result import remade
from server.detection.models import Comparison, Finding, FindingVerdict
from server.detection.trials.judgement import fresh_comparisons
from server.lab.models import Boot, Session
from server.sources.models import Series
from tests.builders import (
    because,
    build_boot,
    build_build,
    build_case,
    build_measurement,
    build_series,
    build_session,
    tell_boots,
)
from tests.detection.measured import (
    FASTER,
    SLOWER,
    STEADY,
    failed_session,
    judge_series,
    measured_session,
    physical,
    virtual,
)

pytestmark = pytest.mark.django_db


def judged(series_id: int) -> Finding:
    finding = judge_series(series_id=series_id)
    assert finding is not None
    return finding


def verdicts(finding: Finding) -> dict[str, str]:
    return {row.uarch.name: row.verdict for row in finding.verdicts.select_related("uarch")}


def test_regression_on_some_uarchs_names_each_with_its_worst_ratio() -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"fault-4k": SLOWER, "copy": STEADY})
    measured_session(series, physical("z1", "zen1"), {"fault-4k": STEADY, "copy": STEADY})
    measured_session(series, physical("n1", "nehalem"), {"fault-4k": STEADY, "copy": STEADY})
    finding = judged(series.pk)
    assert finding.kind == Finding.Kind.REGRESSED
    assert verdicts(finding) == {"haswell": "regressed", "nehalem": "unchanged", "zen1": "unchanged"}
    assert finding.headline == (
        "Regressed on haswell (1.71x slower in time of mm-basic/fault-4k), "
        "no change on nehalem, zen1 (would have seen 1.1 %)."
    )


def test_regression_here_and_improvement_there_is_split() -> None:
    series = build_series()
    measured_session(series, physical("z3", "zen3"), {"copy": SLOWER})
    measured_session(series, physical("z5", "zen5"), {"copy": FASTER})
    finding = judged(series.pk)
    assert finding.kind == Finding.Kind.SPLIT
    assert finding.headline == (
        "Regressed on zen3 (1.71x slower in time of mm-basic/copy), "
        "improved on zen5 (29 % faster in time of mm-basic/copy)."
    )


def test_regression_and_improvement_of_one_uarch_is_its_own_split() -> None:
    series = build_series()
    measured_session(series, physical("z3", "zen3"), {"copy": SLOWER, "fault-4k": FASTER, "mmap": STEADY})
    finding = judged(series.pk)
    assert (finding.kind, verdicts(finding)) == ("split", {"zen3": "split"})
    assert finding.headline == (
        "Split on zen3 (1.71x slower in time of mm-basic/copy, 29 % faster in time of mm-basic/fault-4k)."
    )


def test_two_regressed_uarchs_are_joined_by_and() -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"fault-4k": SLOWER})
    measured_session(series, physical("z3", "zen3"), {"fault-4k": (100.0, 250.0)})
    expected = (
        "Regressed on haswell (1.71x slower in time of mm-basic/fault-4k) and "
        "zen3 (2.50x slower in time of mm-basic/fault-4k)."
    )
    assert judged(series.pk).headline == expected


def test_constants_coarser_than_the_minimum_effect_are_not_called_unchanged() -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": (40.0, 40.0)})
    assert judged(series.pk).kind == Finding.Kind.INCONCLUSIVE


def test_unchanged_finding_says_what_would_have_been_seen() -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"fault-4k": STEADY, "copy": (400.0, 400.0)})
    finding = judged(series.pk)
    verdict = finding.verdicts.get()
    worst = Comparison.objects.get(case__name="copy")
    assert (finding.kind, verdict.mde) == ("unchanged", worst.mde)
    assert worst.mde is not None
    assert worst.mde > 0.013
    assert finding.headline == f"No change on haswell (would have seen {100 * worst.mde:.1f} %)."


def test_noisy_cell_among_unchanged_ones_makes_the_uarch_inconclusive_and_is_named() -> None:
    series = build_series()
    session = measured_session(series, physical("h1", "haswell"), {"fault-4k": STEADY})
    measured_session(series, physical("z1", "zen1"), {"fault-4k": STEADY})
    noisy = measured_session(series, physical("n1", "nehalem"), {"fault-4k": STEADY, "mmap": STEADY}, spread=0.2)
    finding = judged(series.pk)
    row = finding.verdicts.get(uarch__name="nehalem")
    assert (finding.kind, row.verdict) == ("inconclusive", "inconclusive")
    assert row.reason == "could not be told: time of fault-4k, time of mmap"
    assert (row.told, row.untold) == (0, 2)
    assert "inconclusive on nehalem (all 2 cells could not be told below " in finding.headline
    assert noisy.comparisons.count() == 2
    assert session.comparisons.get().verdict == "unchanged"


def test_contradicting_machines_of_one_uarch_are_a_machine_question() -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"fault-4k": SLOWER, "copy": STEADY})
    measured_session(series, physical("h2", "haswell"), {"fault-4k": STEADY, "copy": STEADY})
    finding = judged(series.pk)
    row = finding.verdicts.get()
    assert (finding.kind, row.verdict) == ("inconclusive", "inconclusive")
    assert row.reason == "machine question: time of fault-4k is regressed on h1, unchanged on h2"
    assert row.comparison is not None
    assert row.comparison.case.name == "fault-4k"
    assert finding.headline == "Inconclusive on haswell (its machines disagree)."


def test_of_machines_that_agree_the_most_precise_speaks() -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": (2168.0, 2400.0)}, spread=0.001)
    measured_session(series, physical("h2", "haswell"), {"copy": (2168.0, 2410.0)}, spread=0.01)
    row = judged(series.pk).verdicts.get()
    assert (row.verdict, row.reason) == ("regressed", "")
    assert row.comparison is not None
    assert row.comparison.session.machine.name == "h1"


def test_of_machines_that_saw_changes_of_different_sizes_the_one_of_the_smallest_speaks() -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": (2168.0, 21680.0)})
    measured_session(series, physical("h2", "haswell"), {"copy": (2168.0, 2410.0)}, spread=0.01)
    finding = judged(series.pk)
    row = finding.verdicts.get()
    assert row.verdict == "regressed"
    assert row.reason == (
        "its machines agree on the change and not on its size: time of copy is 10.00x slower on h1, 11 % slower on h2"
    )
    assert finding.headline == "Regressed on haswell (11 % slower in time of mm-basic/copy)."


def test_machine_question_of_one_cell_hides_no_change_of_another() -> None:
    series = build_series()
    for name, copy in (("h1", SLOWER), ("h2", STEADY)):
        measured_session(series, physical(name, "haswell"), {"fault-4k": SLOWER, "copy": copy})
    finding = judged(series.pk)
    row = finding.verdicts.get()
    assert (finding.kind, row.verdict) == ("regressed", "regressed")
    assert row.reason == "machine question: time of copy is regressed on h1, unchanged on h2"
    assert row.comparison is not None
    assert row.comparison.case.name == "fault-4k"
    assert finding.headline == "Regressed on haswell (1.71x slower in time of mm-basic/fault-4k)."


def test_superseded_series_is_not_judged() -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"fault-4k": SLOWER})
    series.advance(Series.State.SUPERSEDED, because("replaced by v2"))
    assert judge_series(series_id=series.pk) is None
    assert not Finding.objects.exists()


def test_noisy_machine_leaves_the_word_to_the_one_that_can_tell() -> None:
    series = build_series()
    measured_session(series, physical("h-count", "haswell", clock="instructions"), {"fault-4k": SLOWER, "copy": STEADY})
    measured_session(series, physical("h-wall", "haswell"), {"fault-4k": SLOWER, "copy": STEADY}, spread=0.15)
    finding = judged(series.pk)
    row = finding.verdicts.get()
    assert (row.verdict, finding.kind) == ("regressed", "regressed")
    assert row.reason == "h-wall alone could not tell: time of copy"
    assert row.comparison is not None
    assert row.comparison.session.machine.name == "h-count"


def test_unchanged_stands_where_the_other_machine_is_too_noisy() -> None:
    series = build_series()
    measured_session(series, physical("h-count", "haswell", clock="instructions"), {"copy": STEADY})
    measured_session(series, physical("h-wall", "haswell"), {"copy": STEADY}, spread=0.2)
    finding = judged(series.pk)
    assert finding.kind == Finding.Kind.UNCHANGED
    assert finding.verdicts.get().reason == "h-wall alone could not tell: time of copy"


def test_failed_session_is_a_gap_and_its_uarch_is_not_measured() -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    failed = failed_session(series, physical("z3-box", "zen3"), "patched kernel does not boot: panic")
    Session.objects.filter(pk=failed.pk).update(reason_code=Because.KERNEL_FAILS)
    finding = judged(series.pk)
    assert finding.kind == Finding.Kind.INCONCLUSIVE, "a kernel that does not boot is no good news"
    assert finding.gaps == [{"machine": "z3-box", "uarch": "zen3", "reason": "patched kernel does not boot: panic"}]
    assert finding.verdicts.get(uarch__name="zen3").reason == (
        "not measured: z3-box: patched kernel does not boot: panic"
    )
    assert finding.headline.endswith("; not measured on zen3 (z3-box: patched kernel does not boot: panic).")


def test_failed_session_beside_a_done_one_of_the_same_uarch_leaves_its_verdict() -> None:
    series = build_series()
    measured_session(series, physical("z3-a", "zen3"), {"copy": SLOWER})
    failed_session(series, physical("z3-b", "zen3"), "lost power")
    finding = judged(series.pk)
    assert verdicts(finding) == {"zen3": "regressed"}
    assert finding.gaps == [{"machine": "z3-b", "uarch": "zen3", "reason": "lost power"}]


def test_values_of_a_session_that_failed_before_its_first_look_are_not_judged() -> None:
    series = build_series()
    session = measured_session(series, physical("z3", "zen3"), {"copy": SLOWER}, looks=[6])
    Session.objects.filter(pk=session.pk).update(state="failed", reason="gave up")
    assert judged(series.pk).kind == Finding.Kind.INCONCLUSIVE
    assert not Comparison.objects.exists()


def test_values_of_a_failed_boot_are_not_judged() -> None:
    series = build_series()
    session = measured_session(series, physical("z3", "zen3"), {"copy": STEADY})
    late = build_boot(session, 8, Boot.Arm.PATCHED)
    Boot.objects.filter(pk=late.pk).update(state="failed")
    build_measurement(late, [99999.0] * 6, build_case("copy"))
    assert judged(series.pk).kind == Finding.Kind.UNCHANGED


def test_case_that_gave_nothing_is_a_gap_with_the_agents_reason() -> None:
    series = build_series()
    session = measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    note = {"benchmark": "mm-basic", "case": "fault-thp", "outcome": "failed", "reason": "no huge pages"}
    session.boots.filter(position__lte=1).update(notes=[note])
    assert judged(series.pk).gaps == [
        {
            "machine": "h1",
            "uarch": "haswell",
            "reason": "fault-thp: base kernel: no huge pages; patched kernel: no huge pages",
        }
    ]


def test_cases_that_were_skipped_for_one_reason_are_one_gap() -> None:
    series = build_series()
    session = measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    skipped = [
        {"benchmark": "folio-copy", "case": f"copy-{number}", "outcome": "skipped", "reason": "needs NUMA node 1"}
        for number in range(90)
    ]
    other = {"benchmark": "mm-basic", "case": "fault-thp", "outcome": "failed", "reason": "no huge pages"}
    session.boots.filter(arm="base").update(notes=[*skipped, other])
    assert [gap["reason"] for gap in judged(series.pk).gaps] == [
        "copy-0 and 89 more: base kernel: needs NUMA node 1",
        "fault-thp: base kernel: no huge pages",
    ]


def test_gaps_of_a_machine_that_says_very_much_are_counted() -> None:
    series = build_series()
    session = measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    for boot in session.boots.all():
        notes = [{"benchmark": "b", "case": "one", "reason": f"{boot.position} " + "x" * 9999}]
        notes += [{"benchmark": "b", "case": f"c{number}", "reason": f"reason {number}"} for number in range(30)]
        Boot.objects.filter(pk=boot.pk).update(notes=notes)
    reasons = [gap["reason"] for gap in judged(series.pk).gaps]
    assert len(reasons) == 21
    assert reasons[0].startswith("one: base kernel: 0 xxx")
    assert reasons[0].endswith("more reasons")
    assert len(reasons[0]) < 1400
    assert reasons[-1] == "other cases: 11 more reasons"


def test_case_that_one_kernel_cannot_run_is_inconclusive_with_the_agents_reason() -> None:
    series = build_series()
    session = measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    for boot in session.boots.filter(arm="patched"):
        boot.packed.all().delete()
    note = {"benchmark": "mm-basic", "case": "copy", "outcome": "crash", "reason": "killed by signal 11"}
    session.boots.filter(arm="patched").update(notes=[note])
    judged(series.pk)
    comparison = Comparison.objects.get()
    assert comparison.verdict == "inconclusive"
    assert comparison.reason == "patched kernel: no values; patched kernel: killed by signal 11"


def test_session_without_any_value_is_a_gap() -> None:
    series = build_series()
    build_session(series, physical("h1", "haswell"), state=Session.State.DONE)
    finding = judged(series.pk)
    assert finding.gaps == [{"machine": "h1", "uarch": "haswell", "reason": "no boot gave a value"}]
    assert verdicts(finding) == {"haswell": "inconclusive"}


def test_warm_up_is_not_judged() -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    judged(series.pk)
    assert Comparison.objects.get().base_mean == 2168.0


def test_virtual_machines_beside_physical_ones_are_stored_and_not_judged(settings: Settings) -> None:
    settings.VIRTUAL_VERDICTS = True
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    measured_session(series, virtual("vm-zen3", "zen3"), {"copy": SLOWER})
    finding = judged(series.pk)
    assert (finding.kind, finding.virtual) == ("unchanged", False)
    assert verdicts(finding) == {"haswell": "unchanged"}
    assert [row.session.machine.name for row in Comparison.objects.all()] == ["h1"]


def test_virtual_machines_are_judged_among_themselves_where_the_site_says_so(settings: Settings) -> None:
    settings.VIRTUAL_VERDICTS = True
    series = build_series()
    measured_session(series, virtual("vm-zen3", "zen3"), {"copy": SLOWER})
    finding = judged(series.pk)
    assert (finding.kind, finding.virtual) == ("regressed", True)


def test_virtual_machines_alone_give_no_finding_elsewhere(settings: Settings) -> None:
    settings.VIRTUAL_VERDICTS = False
    series = build_series()
    measured_session(series, virtual("vm-zen3", "zen3"), {"copy": SLOWER})
    assert judge_series(series_id=series.pk) is None
    assert not Comparison.objects.exists()


@pytest.mark.parametrize("allowed", [False, True])
def test_boot_whose_probe_saw_a_hypervisor_makes_its_session_virtual(settings: Settings, allowed: bool) -> None:
    settings.VIRTUAL_VERDICTS = allowed
    series = build_series()
    session = measured_session(series, physical("claims-metal", "zen3"), {"copy": SLOWER})
    tell_boots(session.boots.filter(position=3), facts={"virtual": True, "hypervisor": "kvm"})
    finding = judge_series(series_id=series.pk)
    assert (finding is not None and finding.virtual) == allowed


@pytest.mark.parametrize("state", ["planned", "dispatched", "running"])
def test_nothing_is_judged_while_a_session_goes_on(state: str) -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    build_session(series, physical("z3", "zen3"), state=state)
    assert judge_series(series_id=series.pk) is None
    assert not Comparison.objects.exists()


def test_series_without_sessions_is_not_judged() -> None:
    assert judge_series(series_id=build_series().pk) is None


def test_series_whose_sessions_were_all_canceled_is_not_judged() -> None:
    series = build_series()
    build_session(series, physical("h1", "haswell"), state=Session.State.CANCELED)
    assert judge_series(series_id=series.pk) is None


def test_canceled_session_beside_others_is_a_gap() -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    build_session(series, physical("z3", "zen3"), state=Session.State.CANCELED)
    finding = judged(series.pk)
    assert finding.gaps == [{"machine": "z3", "uarch": "zen3", "reason": "no longer wanted"}]


def test_same_image_is_named_and_its_differences_are_no_verdict() -> None:
    series = build_series()
    session = measured_session(series, physical("h1", "haswell"), {"copy": SLOWER})
    Artifact.objects.filter(build__in=[session.base_build_id, session.patched_build_id]).update(sha256="a" * 64)
    finding = judged(series.pk)
    assert (finding.identical, finding.kind) == (True, "inconclusive")
    assert Comparison.objects.get().reason_code == Because.SAME_IMAGE
    assert finding.headline.startswith("Both kernels are the same image. ")


def test_kernels_that_differ_in_modules_alone_are_not_the_same() -> None:
    series = build_series()
    session = measured_session(series, physical("h1", "haswell"), {"copy": SLOWER})
    builds = [session.base_build, session.patched_build]
    Artifact.objects.filter(build__in=builds).update(sha256="a" * 64)
    for build, kernel_hash in zip(builds, ("b" * 64, "c" * 64), strict=True):
        Build.objects.filter(pk=build.pk).update(kernel_hash=kernel_hash)
    assert judged(series.pk).kind == Finding.Kind.REGRESSED
    assert Comparison.objects.get().reason == ""


def test_one_session_with_other_images_is_not_identical() -> None:
    series = build_series()
    same = build_build(series.base)
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY}, base_build=same, patched_build=same)
    measured_session(series, physical("z1", "zen1"), {"copy": STEADY})
    assert judged(series.pk).identical is False


def test_finding_follows_the_series_trace_and_wakes_the_reports(
    sent_tasks: list[Any], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    with django_capture_on_commit_callbacks(execute=True):
        finding = judged(series.pk)
    assert finding.trace == series.trace
    steps = Transition.objects.filter(subject="finding", subject_id=finding.pk).order_by("pk")
    assert [(step.before, step.after, step.trace) for step in steps] == [
        ("", "candidate", series.trace),
        ("candidate", "confirmed", series.trace),
    ]
    assert ("reports.sweep", ()) in sent_tasks


def test_second_judging_gives_the_same_finding_and_wakes_nobody(
    sent_tasks: list[Any], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    first = judged(series.pk)
    sent_tasks.clear()
    with django_capture_on_commit_callbacks(execute=True):
        assert judged(series.pk) == first
    assert (Finding.objects.count(), Comparison.objects.count(), FindingVerdict.objects.count()) == (1, 1, 1)
    assert sent_tasks == []


def test_queries_do_not_grow_with_cells_and_machines(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    small, large = build_series(), build_series()
    measured_session(small, physical("h1", "haswell"), {"copy": STEADY})
    for name, uarch in (("h1", "haswell"), ("h2", "haswell"), ("z1", "zen1"), ("n1", "nehalem")):
        cases = {f"case-{n}": STEADY for n in range(6)}
        measured_session(large, physical(name, uarch), cases, boots_per_side=2)
    for series in (small, large):
        finding = judged(series.pk)
        with django_assert_num_queries(18):
            fresh_comparisons(list(series.sessions.select_related("machine__uarch")))
            remade(finding)


@pytest.mark.django_db(transaction=True)
def test_concurrent_judging_gives_one_finding() -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": SLOWER})
    start = Barrier(4)

    def judge(_: int) -> int:
        start.wait()
        try:
            return judged(series.pk).pk
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(judge, range(4)))
    assert len(found) == 1
    assert (Finding.objects.count(), Comparison.objects.count(), FindingVerdict.objects.count()) == (1, 1, 1)
