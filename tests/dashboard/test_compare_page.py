"""Two kernels side by side: what is said where one session measured both, and where none did."""

import re

import pytest

from server.detection.models import ChangePoint, Finding
from server.lab.models import Boot, Machine, Session
from tests.builders import build_machine, build_measurement, build_session
from tests.dashboard.conftest import Reader
from tests.found_scenarios import moved_timeline

pytestmark = pytest.mark.django_db


def _measured(machine: Machine, factor: float) -> Session:
    session = build_session(machine=machine, state=Session.State.DONE, boots_per_side=6)
    for boot in session.boots.order_by("position"):
        level = (factor if boot.arm == Boot.Arm.PATCHED else 1.0) * (1 + 0.001 * (boot.position % 3))
        build_measurement(boot, [100.0 * level * (1 + 0.0005 * run) for run in range(6)])
    return session


def _address(base: Session, patched: Session) -> str:
    assert base.base_build is not None
    assert patched.patched_build is not None
    return f"/compare/?base={base.base_build.revision.sha}&patched={patched.patched_build.revision.sha}"


@pytest.fixture
def physical() -> Machine:
    return build_machine("zen3-1", "zen3", virtual=False)


def test_what_no_session_measured_together_is_not_judged_and_yet_shown(reader: Reader, physical: Machine) -> None:
    first, second = _measured(physical, 1.0), _measured(physical, 1.3)
    text = " ".join(reader.read(_address(first, second)).split())
    assert "Not judged: measured in different sessions." in text
    assert "1 of 1 cells differs by more than the noise of both; the most 30 % slower in time of mm-basic/" in text
    assert '<span class="quiet">not judged</span> <span class="figure under quiet">30 % slower</span>' in text
    assert "None of" not in text
    assert "~" not in text
    assert "theirs are the ones to quote" in text


def test_equal_figures_of_two_sessions_are_told_to_differ_in_nothing(reader: Reader, physical: Machine) -> None:
    text = reader.read(_address(_measured(physical, 1.0), _measured(physical, 1.0)))
    assert "none of 1 cells differs by more than its noise" in text


def test_one_session_of_both_is_judged_without_a_bound(reader: Reader, physical: Machine) -> None:
    session = _measured(physical, 1.3)
    text = reader.read(_address(session, session))
    assert "1 slower, 0 faster of 1 cells: the most 30 % slower in time of mm-basic/" in text
    assert "At most" not in text


def test_findings_between_two_heads_are_named(reader: Reader) -> None:
    timeline = moved_timeline()
    heads = [timeline.points.get(place=place).head.revision.sha for place in (105, 120, 155)]
    finding = Finding.objects.get()
    link = f'<a href="/findings/{finding.pk}/"'
    assert link in reader.read(f"/compare/?base={heads[0]}&patched={heads[2]}")
    assert link in reader.read(f"/compare/?base={heads[2]}&patched={heads[0]}")
    assert link not in reader.read(f"/compare/?base={heads[0]}&patched={heads[1]}")
    ChangePoint.objects.update(place=200)
    Finding.objects.update(state=Finding.State.INVALID)
    assert link not in reader.read(f"/compare/?base={heads[0]}&patched={heads[2]}")


def test_both_kernels_are_chosen_of_those_measured_of_late(reader: Reader, physical: Machine) -> None:
    session = _measured(physical, 1.0)
    text = reader.read("/compare/")
    assert session.patched_build is not None
    for name in ("base", "patched"):
        chosen = rf'name="{name}"\s+value="{session.patched_build.revision.sha}"\s+form="pair"'
        assert re.search(chosen, text)
