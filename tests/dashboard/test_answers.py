"""What pages say first of a finding, and the page that compares any two kernels."""

import re
from collections.abc import Iterable

import pytest

from server.dashboard.verdicts.first_words import why
from server.detection.models import Finding, FindingVerdict
from server.lab.models import Machine, Session
from server.reports.models import Report
from server.sources.models import Series
from tests.builders import (
    build_case,
    build_comparison,
    build_finding,
    build_machine,
    build_revision,
    build_series,
    build_session,
)
from tests.dashboard.conftest import Reader
from tests.scenarios import erms_regression

pytestmark = pytest.mark.django_db


def quiet_session(unchanged: int, unsure: int) -> Session:
    session = build_session(build_series(), build_machine("z5", "zen5", virtual=False), state=Session.State.DONE)
    for number in range(unchanged):
        build_comparison(session, "unchanged", case=build_case(f"calm-{number}"), mde=0.01 * (1 + number))
    for number in range(unsure):
        build_comparison(session, "inconclusive", case=build_case(f"open-{number}"), mde=0.04)
    return session


def of(session: Session) -> Series:
    assert session.series is not None
    return session.series


def test_series_without_effect_reads_as_all_clear_with_what_would_have_been_seen(reader: Reader) -> None:
    session = quiet_session(3, 1)
    said = "No change on zen5 (3 of 4 cells within 3.0 %; 1 could not be told below 4.0 %)."
    finding = build_finding(of(session), Finding.Kind.UNCHANGED, headline=said)
    FindingVerdict.objects.filter(finding=finding).update(verdict="unchanged", mde=0.03)
    for page in (f"/series/{session.series_id}/", f"/findings/{finding.pk}/"):
        text = reader.read(page)
        assert said in text
        assert 'class="chip inconclusive"' not in text
        assert "no change, with holes" in text
        assert "3 no change, 1 not told, of 4 cells" in text
        assert "down to 2.0 % on half of them, 3.0 % in the noisiest" in text
    assert "(3 of 4 cells within 3.0 %)" in reader.read("/findings/?state=")


def test_sum_of_the_rows_shown_is_not_said_of_all(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.detection.findings.table.MOST_CELLS", 10)
    headline = "Unchanged on zen5 (time)."
    session = quiet_session(12, 0)
    finding = build_finding(of(session), Finding.Kind.UNCHANGED, headline=headline)
    FindingVerdict.objects.filter(finding=finding).update(mde=0.12)
    text = reader.read(f"/findings/{finding.pk}/")
    assert f"<h1>{headline}</h1>" in text
    assert "in the noisiest" not in text
    assert "down to 12" in text


def test_explanation_that_chance_finds_most_seldom_is_told_as_what_fits() -> None:
    row = {"outcome": "one", "alike": [], "others": ["z5"], "changed": ["z3"]}
    finding = Finding(
        kind=Finding.Kind.SPLIT,
        explanations=[
            row | {"conditions": ["no fsrm"], "chance": 0.4, "text": "True: no fsrm; chance alone, 40 %."},
            row | {"conditions": ["no erms"], "chance": 0.02, "text": "True: no erms; chance alone, 2 %."},
        ],
    )
    said = why(finding, {"z3": "zen3", "z5": "zen5"})
    assert said == "Consistent with: no erms, true of zen3 and not of zen5. Not proved: chance alone, 2 %."


@pytest.mark.usefixtures("virtual_verdicts")
def test_first_screen_has_the_command_to_run_the_worst_case_again(reader: Reader) -> None:
    series = erms_regression()
    text = reader.read(f"/series/{series.pk}/")
    document = f"/api/v1/series/{series.pk}/cases/mm-basic/fault-thp/"
    command = text.split('<pre class="command"')[1].split("</pre>")[0]
    assert "tidemark-agent reproduce http" in command
    assert command.endswith(document)
    assert f'href="{document}"' in text
    assert reader.read(document)


def test_finding_of_a_branch_has_figures_commits_and_a_command_as_that_of_a_series(reader: Reader) -> None:
    session = build_session(build_series(), build_machine("z3", "zen3", virtual=False), state=Session.State.DONE)
    cell = build_comparison(session, "regressed", case=build_case("fault-4k"))
    finding = build_finding(of(session))
    base = session.base_build.revision
    branch = base.tree.branches.create(name="mm/unstable")
    made = build_revision(base.tree, subject="mm: The culprit")
    Finding.objects.filter(pk=finding.pk).update(series=None, branch=branch, before=base, after=made, culprit=made)
    text = " ".join(reader.read(f"/findings/{finding.pk}/").split())
    assert f'Made by <span class="figure">{made.sha[:12]}</span> <strong>mm: The culprit</strong>' in text
    assert f"{cell.base_boots}+{cell.patched_boots} boots" in text
    assert f"?base={base.sha}&amp;patched={made.sha}" in text
    document = f"/api/v1/findings/{finding.pk}/cases/mm-basic/fault-4k/"
    assert document in text
    told = reader.client.get(document).json()
    assert (told["format"], told["series"], told["finding"]) == ("tidemark-case", None, finding.pk)
    assert (told["base"]["sha"], told["patched"]["sha"]) == (base.sha, made.sha)
    reader.read(f"/api/v1/findings/{finding.pk}/cases/mm-basic/nothing/", status=404)


@pytest.mark.usefixtures("virtual_verdicts")
def test_waiting_for_moderation_is_nothing_wrong(reader: Reader) -> None:
    series = erms_regression()
    Report.objects.update(state=Report.State.DRAFT, reason="waiting for moderation")
    text = reader.read(f"/series/{series.pk}/")
    assert "reply: waiting for moderation" in text
    assert 'class="warn"' not in text


@pytest.mark.parametrize("page", ["series", "findings"])
def test_unknown_part_is_not_found(reader: Reader, page: str) -> None:
    series = build_series()
    finding = build_finding(series)
    number = series.pk if page == "series" else finding.pk
    reader.read(f"/{page}/{number}/nonsense/", status=404)
    reader.read(f"/{page}/{number}/figures/")


@pytest.mark.usefixtures("virtual_verdicts")
def test_two_kernels_compare_from_stored_samples(reader: Reader) -> None:
    series = erms_regression()
    assert series.base is not None
    assert series.head is not None
    query = f"base={series.base.sha}&patched={series.head.sha}"
    text = reader.read(f"/compare/?{query}")
    assert " cells: the most " in text
    assert "x slower in" in text
    assert "5811" in text
    assert "9932" in text
    assert 'href="/api/v1/compare/?base=' in text
    one = reader.read(f"/compare/?{query}&machine=vm-haswell&benchmark=mm-basic")
    assert "vm-zen3</span>" not in one


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("base=0123abcd", "base: There is no commit 0123abcd here."),
        ("base=xyz", "base: A commit, in full or its first digits"),
        ("patched=build:99999999999", "patched: There is no build 99999999999."),
        ("patched=build:%C2%B2", "There is no build"),
        ("machine=nope", "There is no machine nope here. Known: z3."),
        ("benchmark=%00", "Known: mm-basic"),
    ],
)
def test_what_is_not_known_is_said_with_what_is(reader: Reader, query: str, said: str) -> None:
    session = build_session(build_series(), build_machine("z3", "zen3"), state=Session.State.DONE)
    build_comparison(session)
    text = reader.read(f"/compare/?{query}", status=400)
    assert said in text
    assert session.base_build.revision.sha[:12] in text


def test_one_kernel_is_not_compared_with_itself(reader: Reader) -> None:
    build = build_session().base_build
    query = f"base=build:{build.pk}&patched={build.revision.sha}"
    assert "they are one kernel" in reader.read(f"/compare/?{query}", status=400)


def test_kernels_that_no_machine_measured_both_say_so(reader: Reader) -> None:
    revisions = [build_revision() for _ in range(2)]
    text = reader.read(f"/compare/?base={revisions[0].sha}&patched={revisions[1].sha}")
    assert "No machine measured both" in text
    assert "never built here" in text


def _cells(series: Series, machine: Machine, cases: Iterable[tuple[str, str, float]]) -> None:
    session = build_session(series, machine, state=Session.State.DONE)
    for case, verdict, ratio in cases:
        build_comparison(session, verdict, case=build_case(case), ratio=ratio)


def test_split_of_different_cases_tells_what_both_ran(reader: Reader) -> None:
    series = build_series()
    zen3, zen5, zen4 = (build_machine(f"{name}-1", name, virtual=False) for name in ("zen3", "zen5", "zen4"))
    assert zen4.enabled
    _cells(series, zen3, [("a", "regressed", 1.13), ("b", "regressed", 1.098), ("hot", "regressed", 1.7)])
    _cells(series, zen5, [("a", "improved", 0.5), ("b", "improved", 0.48), ("c", "improved", 0.4)])
    why = {
        "outcome": "one", "conditions": ["no avx512f"], "chance": 1.0, "changed": ["zen3-1"], "others": ["zen5-1"],
        "benchmark": "mm-basic", "case": "a", "metric": "time", "cells": 2, "text": "No; it proves nothing.",
    }  # fmt: skip
    build_finding(series, Finding.Kind.SPLIT, explanations=[why])
    text = reader.read(f"/series/{series.pk}/")
    assert "On the 2 cases of 4 that both ran: zen3 9.8 to 13 % slower, zen5 2.00x to 2.08x faster." in text
    assert "Not measured: zen4 at all; on zen3 mm-basic/c; on zen5 mm-basic/hot." in text
    assert "true of zen3 and not of zen5; in 2 cells, as mm-basic/a time. Not proved: it proves nothing." in text


def test_same_cases_need_no_word_of_what_all_ran(reader: Reader) -> None:
    series = build_series()
    for name in ("zen3", "zen5"):
        _cells(series, build_machine(f"{name}-1", name), [("a", "regressed", 1.2)])
    build_finding(series)
    assert "both ran" not in reader.read(f"/series/{series.pk}/")


def test_answer_without_a_change_says_what_it_shows(reader: Reader) -> None:
    series = build_series()
    _cells(series, build_machine("zen3-1", "zen3"), [("calm", "unchanged", 1.0), ("open", "inconclusive", 1.01)])
    finding = build_finding(series, Finding.Kind.INCONCLUSIVE)
    text = reader.read(f"/findings/{finding.pk}/")
    assert "Nearest to a change on each microarchitecture" in text
    assert "the build id of the one that was wanted" in text


def test_patches_that_never_came_are_counted(reader: Reader) -> None:
    series = build_series(total=3)
    series.patches.filter(index=3).delete()
    assert "2 of 3 patches here" in reader.read(f"/series/{series.pk}/")


@pytest.mark.usefixtures("virtual_verdicts")
def test_command_says_where_its_program_comes_from(reader: Reader) -> None:
    series = erms_regression()
    text = reader.read(f"/series/{series.pk}/")
    assert "scripts/build_agent.py" in text
    assert re.search(r'<script type="module" src="[^"]*copy[^"]*\.js">', text)
