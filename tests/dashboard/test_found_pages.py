"""Pages of what was bisected, walked, withdrawn by a check, or never booted."""

import pytest

from server.core.reasons import Because
from server.detection.models import Bisection, Finding, FindingVerdict
from server.detection.models.finding import BisectionStep
from server.lab.models import Session
from tests.builders import (
    because,
    build_case,
    build_comparison,
    build_finding,
    build_machine,
    build_series,
    build_session,
)
from tests.dashboard.conftest import Reader
from tests.found_scenarios import split_finding

pytestmark = pytest.mark.django_db


def test_series_names_the_patch_that_made_it_and_what_each_adds(reader: Reader) -> None:
    finding = split_finding()
    assert "adds nothing beyond 1.0 % on zen3 and zen5" in reader.read(f"/series/{finding.series_id}/patches/")
    home = f"/findings/{finding.pk}/"
    for page in (f"/series/{finding.series_id}/patches/", f"{home}walk/"):
        text = reader.read(page)
        assert 'class="stairs"' in text
        assert "up to patch 3: " in text
    assert 'class="narrowed"' in reader.read(f"{home}bisection/")
    assert "made by patch 2 of 3: mm: Step 2" in reader.read(f"{home}bisection/")
    assert "Against the version before" in reader.read(f"{home}versions/")


def test_cell_that_a_failed_check_took_away_is_shown_as_it_is_heard(reader: Reader) -> None:
    series = build_series()
    row = build_comparison(build_session(series, build_machine("z3", "zen3"), state=Session.State.DONE), "regressed")
    check = {"name": "layout", "outcome": "failed", "text": "gone with another layout", "machine": "z3"}
    finding = build_finding(series, Finding.Kind.INCONCLUSIVE, checks=[check | {"comparisons": [row.pk]}])
    for page in (f"/series/{series.pk}/", f"/findings/{finding.pk}/"):
        text = reader.read(page)
        assert '<td class="inconclusive">' in text
        assert '<td class="regressed">' not in text
        assert "gone with another layout" in reader.read(f"{page}figures/")


def test_machine_that_was_not_booted_shows_why(reader: Reader) -> None:
    series = build_series()
    build_comparison(build_session(series, build_machine("z3", "zen3"), state=Session.State.DONE))
    build_session(series, build_machine("z5", "zen5"), state=Session.State.DONE, reason_code=Because.SAME_CODE)
    build_finding(series, Finding.Kind.UNCHANGED)
    text = " ".join(reader.read(f"/series/{series.pk}/").split())
    assert "both kernels run the same code there" in text


@pytest.mark.parametrize("state", [Finding.State.SUPERSEDED, Finding.State.ACCEPTED])
def test_series_says_what_became_of_its_finding(reader: Reader, state: str) -> None:
    series = build_series()
    build_comparison(build_session(series, build_machine("z3", "zen3"), state=Session.State.DONE), "regressed")
    build_finding(series).advance(state, because("told by ada"))
    text = reader.read(f"/series/{series.pk}/")
    assert f"{Finding.State(state).label}: told by ada" in text
    assert f"not told; the finding is {Finding.State(state).label}" in text


def _plain(text: str) -> str:
    return " ".join(text.split())


def test_search_of_several_machines_tells_its_commit_once(reader: Reader) -> None:
    finding = split_finding()
    text = _plain(reader.read(f"/findings/{finding.pk}/"))
    assert text.count("without it the change is gone") == 1
    assert "It alone: zen3 1.71x slower in time of mm-basic/folio-copy-2m, zen5 " in text
    assert "(2 cells bisected; without it the change is gone)" in text
    assert "The verdicts above are of all that lies between the two heads below" in text
    assert "Made by" in reader.read(f"/series/{finding.series_id}/")


def test_commits_of_several_microarchitectures_are_each_named(reader: Reader) -> None:
    finding = split_finding()
    other = Bisection.objects.get(machine__name="zen5-a")
    Bisection.objects.filter(pk=other.pk).update(culprit=finding.series.base if finding.series else None)
    Finding.objects.filter(pk=finding.pk).update(culprit=None)
    text = _plain(reader.read(f"/findings/{finding.pk}/"))
    assert "mm: Step 2 of copying folios alone: zen3 1.71x slower" in text
    assert "Linux 7.2 alone: zen5 " in text


def test_search_that_could_not_narrow_says_why(reader: Reader) -> None:
    finding = split_finding()
    Finding.objects.filter(pk=finding.pk).update(culprit=None)
    Bisection.objects.update(culprit=None, low=0, high=2)
    steps = BisectionStep.objects.filter(kind="middle")
    steps.update(answer="skipped", ratio=None, reason="does not build: mm/file.c:1: error: expected ';'")
    text = _plain(reader.read(f"/findings/{finding.pk}/"))
    assert text.count("narrowed from 3 commits to 2: one of 2") == 1
    assert "; 1 between: does not build: mm/file.c:1" in text
    assert "narrowed to 2 of 3" in reader.read(f"/findings/{finding.pk}/bisection/")


def test_step_that_another_one_answered_says_so(reader: Reader) -> None:
    finding = split_finding()
    for search in Bisection.objects.all():
        culprit, middle = (search.steps.get(kind=kind) for kind in ("culprit", "middle"))
        BisectionStep.objects.filter(pk=culprit.pk).update(trial=middle.trial_id)
        assert middle.trial is not None
        build_comparison(middle.trial.sessions.get(), "regressed", case=search.target.case, metric=search.target.metric)
    text = _plain(reader.read(f"/findings/{finding.pk}/bisection/"))
    assert text.count("the same boots as step 2") == 2
    assert "with it" in text
    assert ">bad<" not in text


@pytest.mark.parametrize("part", ["", "figures/", "boots/", "sessions/", "life/"])
def test_every_tab_has_the_same_verdicts(reader: Reader, part: str) -> None:
    series = build_series()
    session = build_session(series, build_machine("z3", "zen3"), state=Session.State.DONE)
    cells = [build_comparison(session, case=build_case(f"calm-{number}"), mde=0.02) for number in range(3)]
    cells.append(build_comparison(session, "inconclusive", case=build_case("open"), mde=0.04))
    finding = build_finding(series, Finding.Kind.INCONCLUSIVE)
    FindingVerdict.objects.filter(finding=finding).update(verdict="unchanged", comparison=cells[-1], told=3, untold=1)
    for home in (f"/findings/{finding.pk}/", f"/series/{series.pk}/"):
        page = "history/" if part == "life/" and "series" in home else part
        text = _plain(reader.read(f"{home}{page}"))
        assert "no change, with holes" in text
        assert "3 no change, 1 not told, of 4 cells" in text


def test_search_for_a_fix_that_found_none_is_no_missing_check(reader: Reader) -> None:
    check = {"name": "fix-search", "outcome": "not-checked", "text": "nothing up to abc says so", "machine": ""}
    finding = build_finding(build_series(), checks=[check | {"revision": "a" * 40}])
    text = _plain(reader.read(f"/findings/{finding.pk}/"))
    assert "</span> searched</span>" in text
    assert "not checked" not in text
