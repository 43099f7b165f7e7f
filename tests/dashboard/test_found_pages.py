"""Pages of what was bisected, walked, withdrawn by a check, or never booted."""

import pytest

from server.core.reasons import Because
from server.detection.models import Finding
from server.lab.models import Session
from tests.builders import because, build_comparison, build_finding, build_machine, build_series, build_session
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
