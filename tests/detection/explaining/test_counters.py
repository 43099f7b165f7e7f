"""Counters that moved beside a change, by machine and case."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from server.core import clock
from server.detection.findings.explanation import explain_finding, explained
from server.detection.models import Finding
from server.lab.models import Boot, Conditions, Machine, Session, Trial
from server.results import retention
from server.results.models import KeptKind, Metric, PackedValues
from tests.builders import build_case, build_measurement, build_metric, tell_boots
from tests.detection.lifecycle.findings import DOWN, SAME, UP, candidate
from tests.detection.measured import physical

pytestmark = pytest.mark.django_db


@pytest.fixture
def machine() -> Machine:
    return physical("m1", "zen3")


def counters(finding: Finding) -> list[dict[str, Any]]:
    return explained(finding)[1]


def count(
    machine: Machine, event: str, base: float, patched: float, *, case: str = "copy", spread: float = 0.01
) -> None:
    """Each boot's agent tells this counter, with a little noise."""
    for boot in Boot.objects.filter(session__machine=machine):
        value = (base if boot.arm == Boot.Arm.BASE else patched) * (1 + spread * (boot.position % 3 - 1))
        entry = {"benchmark": "mm-basic", "case": case, "core_type": "all", "event": event, "value": value}
        before = Conditions.objects.filter(boot=boot).values_list("document__counters", flat=True).first() or []
        tell_boots([boot], conditions={"counters": [*before, entry]})


def test_a_counter_that_moved_is_told_with_its_interval(machine: Machine) -> None:
    finding = candidate({machine: {"copy": UP}})
    count(machine, "instructions", 1e6, 1.8e6)
    count(machine, "cycles", 1e6, 1.01e6)
    (row,) = counters(finding)
    assert (row["machine"], row["uarch"], row["case"], row["counter"]) == ("m1", "zen3", "copy", "instructions")
    assert row["low"] < row["ratio"] < row["high"]
    assert row["ratio"] == pytest.approx(1.8, rel=0.02)
    assert row["text"].startswith("On m1, mm-basic/copy: instructions is 1.8")
    assert row["text"].endswith("where time is 1.71x slower.")


def test_only_changed_cases_have_counters(machine: Machine) -> None:
    finding = candidate({machine: {"copy": UP, "fork": SAME}})
    count(machine, "instructions", 1e6, 1.8e6, case="fork")
    assert counters(finding) == []


def test_a_counter_that_cannot_be_told_from_noise_is_not_shown(machine: Machine) -> None:
    finding = candidate({machine: {"copy": DOWN}})
    count(machine, "cache-misses", 100.0, 110.0, spread=0.5)
    assert counters(finding) == []


def test_metrics_that_only_explain_count_too_and_the_strongest_comes_first(machine: Machine) -> None:
    finding = candidate({machine: {"copy": UP}})
    count(machine, "instructions", 1e6, 1.2e6)
    pages = build_metric("pages", better=Metric.Better.NONE)
    for boot in Boot.objects.filter(session__machine=machine):
        level = 100.0 if boot.arm == Boot.Arm.BASE else 40.0
        build_measurement(boot, [9.0, *[level + boot.position / 100] * 5], build_case("copy"), pages)
    assert [row["counter"] for row in counters(finding)] == ["pages", "instructions"]


def test_counters_of_values_that_have_left_stay_as_they_were_told(machine: Machine, settings: Settings) -> None:
    """Medians stay in the database: they are no samples of their boots."""
    settings.KEEP_MONTHS = dict.fromkeys(KeptKind.values, 3)
    finding = candidate({machine: {"copy": UP}})
    pages = build_metric("pages", better=Metric.Better.NONE)
    for boot in Boot.objects.filter(session__machine=machine):
        level = 100.0 if boot.arm == Boot.Arm.BASE else 40.0
        build_measurement(boot, [level + boot.position / 100] * 5, build_case("copy"), pages)
    explain_finding(finding)
    before = finding.counters
    assert [row["counter"] for row in before] == ["pages"]
    Session.objects.update(created_at=clock.now() - timedelta(days=300))
    Trial.objects.update(answered_at=clock.now())
    retention.retain(lambda _sessions: set(), seconds=60)
    assert not PackedValues.objects.exists()
    assert counters(finding) == before
    finding.counters = []
    assert counters(finding) == []


ENTRY = {"benchmark": "mm-basic", "case": "copy", "core_type": "all"}
STRANGE: tuple[Any, ...] = (
    "counters",
    [3, None, {}],
    [ENTRY | {"event": 7, "value": 1.0}],
    [ENTRY | {"event": "x", "value": "many"}],
    [ENTRY | {"event": "x", "value": True}],
    [ENTRY | {"event": "x", "value": -3.0}],
    [{"benchmark": [], "case": {}, "core_type": None, "event": "x", "value": 1.0}],
)


def test_what_agents_tell_in_another_shape_is_passed_over(machine: Machine) -> None:
    finding = candidate({machine: {"copy": UP}})
    for told in STRANGE:
        tell_boots(Boot.objects.filter(session__machine=machine), conditions={"counters": told})
        assert counters(finding) == []


def test_notes_of_boots_are_not_read_with_their_counters(machine: Machine) -> None:
    """They are as long as their machine's owner wants."""
    finding = candidate({machine: {"copy": UP}})
    with CaptureQueriesContext(connection) as captured:
        counters(finding)
    asked = [query["sql"] for query in captured if '"results_measurement"."values"' in query["sql"]]
    assert asked
    assert not [sql for sql in asked if '"lab_boot"."notes"' in sql]
