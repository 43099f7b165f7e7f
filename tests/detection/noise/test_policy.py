"""Which machines measure equal kernels, when, and what."""

from datetime import timedelta
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from server.core import clock
from server.detection.noise.nights import due_machines, next_share
from server.lab.models import Machine, Session, Trial
from tests.builders import build_case, build_machine, build_session, build_trial
from tests.detection.noise.shown import shown_trial

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nightly(settings: Settings) -> None:
    settings.NOISE_HOURS = 24.0
    settings.NOISE_BOOTS = 4
    settings.NOISE_SESSION_HOURS = 4.0
    settings.VIRTUAL_VERDICTS = False


def due() -> list[str]:
    return [machine.name for machine in due_machines()]


def asked(machine: Machine, *benchmarks: str, state: str = Trial.State.DONE) -> Trial:
    return build_trial(purpose=Trial.Purpose.NOISE, state=state, machines=[machine], benchmarks=list(benchmarks))


def test_an_idle_good_machine_is_due() -> None:
    build_machine("idle")
    assert due() == ["idle"]


@pytest.mark.parametrize("state", [Session.State.PLANNED, Session.State.RUNNING])
def test_a_machine_with_work_is_not(state: str) -> None:
    build_session(machine=build_machine(), state=state)
    assert due() == []


def test_a_machine_is_kept_free_for_a_trial_whose_kernels_are_being_built() -> None:
    here, _there = build_machine("here"), build_machine("there")
    build_trial(state=Trial.State.WANTED, machines=[here])
    assert due() == ["there"]
    build_trial(state=Trial.State.WANTED)
    assert due() == []
    Trial.objects.update(created_at=clock.now() - timedelta(days=2))
    assert due() == ["here", "there"]


@pytest.mark.parametrize(
    "fields", [{"enabled": False}, {"health": Machine.Health.QUARANTINED}, {"health": Machine.Health.MAINTENANCE}]
)
def test_a_machine_out_of_service_is_not(fields: dict[str, Any]) -> None:
    build_machine(**fields)
    assert due() == []


def test_a_virtual_machine_is_due_only_where_its_results_count(settings: Settings) -> None:
    build_machine(virtual=True)
    assert due() == []
    settings.VIRTUAL_VERDICTS = True
    assert due() == ["vm-haswell"]


def test_a_site_may_want_none(settings: Settings) -> None:
    build_machine()
    settings.NOISE_HOURS = 0.0
    assert due() == []


def test_the_next_trial_is_due_a_day_after_the_last() -> None:
    trial = shown_trial(build_machine(), {})
    assert due() == []
    Trial.objects.filter(pk=trial.pk).update(created_at=clock.now() - timedelta(hours=25))
    assert due() == ["vm-haswell"]


def test_a_trial_that_waits_for_its_kernel_is_not_asked_again() -> None:
    trial = asked(build_machine(), state=Trial.State.WANTED)
    Trial.objects.filter(pk=trial.pk).update(created_at=clock.now() - timedelta(days=3))
    assert due() == []


def test_all_cases_are_measured_where_their_time_limits_allow() -> None:
    build_case("copy", timeout_seconds=600)
    build_case("clear", timeout_seconds=1200)
    share = next_share(build_machine())
    assert (share.benchmarks, share.seconds) == (("mm-basic/clear", "mm-basic/copy"), 1800)


def test_cases_take_turns_where_one_night_is_too_short(settings: Settings) -> None:
    settings.NOISE_SESSION_HOURS = 1.0
    for name in "abcde":
        build_case(name, timeout_seconds=200)
    machine, seen = build_machine(), []
    for _ in range(3):
        share = next_share(machine)
        seen.append(share.benchmarks)
        asked(machine, *share.benchmarks)
    assert seen == [("mm-basic/a", "mm-basic/b"), ("mm-basic/c", "mm-basic/d"), ("mm-basic/e", "mm-basic/a")]


def test_a_case_longer_than_the_night_has_its_turn_alone() -> None:
    build_case("long", timeout_seconds=90_000)
    build_case("short", timeout_seconds=60)
    machine = build_machine()
    assert next_share(machine).benchmarks == ("mm-basic/long",)


def test_a_case_whose_name_begins_others_is_counted_with_them(settings: Settings) -> None:
    settings.NOISE_SESSION_HOURS = 1.0
    for name in ("copy", "copy-4k", "copy-2m", "zero"):
        build_case(name, timeout_seconds=150)
    share = next_share(build_machine())
    assert share.benchmarks == ("mm-basic/copy", "mm-basic/copy-2m", "mm-basic/copy-4k")
    assert share.seconds == 450


def test_only_what_the_machine_measures_is_asked_for() -> None:
    build_case("copy")
    build_case("clear")
    build_case("off", enabled=False)
    assert next_share(build_machine(cases=["mm-basic/cl*"])).benchmarks == ("mm-basic/clear",)
    assert next_share(build_machine("none", cases=["other/*"])).benchmarks == ()


def test_a_machine_that_is_held_in_quarantine_is_due_whatever_waits_for_it_to_come_back() -> None:
    held = {"health": Machine.Health.QUARANTINED, "health_hold": "lifted by quiet nights"}
    machine = build_machine(**held)
    build_trial(state=Trial.State.WANTED, machines=[machine])
    session = build_session(machine=machine)
    assert due() == [machine.name]
    Session.objects.filter(pk=session.pk).update(state=Session.State.RUNNING)
    assert due() == []
    Session.objects.filter(pk=session.pk).update(state=Session.State.DONE)
    asked(machine)
    assert due() == [], "at the pace of all others"
