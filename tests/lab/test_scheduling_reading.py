"""The snapshot that is read from the database, and what is placed from it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from server.builds.models import Build
from server.lab.models import Attempt, Builder, PowerCycle, Session
from server.lab.scheduling.placement import next_placements, queue_in_order, why_waiting
from server.lab.scheduling.reader import read_snapshot
from server.lab.work import local_builder
from tests.builders import (
    because,
    build_build,
    build_health_session,
    build_list,
    build_machine,
    build_series,
    build_session,
    build_tree,
)

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def noon(settings: Settings) -> Iterator[time_machine.Traveller]:
    settings.DISPATCHER = "jenkins"
    with time_machine.travel(NOON, tick=False) as traveller:
        yield traveller


def placed() -> list[str]:
    return [str(one.item) for one in next_placements(free_slots=None)]


def an_attempt(of: Session | Build, number: int, **fields: object) -> Attempt:
    one = {"session": of, "machine": of.machine} if isinstance(of, Session) else {"build": of}
    values = {"adapter": "jenkins", "slots": 1, "state": "lost", "trace": of.trace, **one, **fields}
    key = f"{of._meta.model_name}-{of.pk}-{number}"
    return Attempt.objects.create(key=key, number=number, **values)


def why(item: Build | Session | PowerCycle) -> str:
    waiting = why_waiting(item)
    assert waiting is not None
    return waiting.reason


def test_tree_of_higher_priority_goes_first_and_its_own_priority_counts() -> None:
    machine = build_machine()
    low = build_session(build_series(build_list("low", tree=build_tree("low", priority=1))), machine)
    high = build_session(build_series(build_list("high", tree=build_tree("high", priority=3))), machine)
    assert placed() == [str(high)]
    Session.objects.filter(pk=low.pk).update(priority=5)
    assert placed() == [str(low)]
    assert [(one.id, one.position) for one in queue_in_order()] == [(low.pk, 1), (high.pk, 2)]


def test_tree_that_had_more_in_the_last_day_waits() -> None:
    machine = build_machine()
    greedy = build_session(build_series(build_list("greedy", tree=build_tree("greedy"))), machine)
    modest = build_session(build_series(build_list("modest", tree=build_tree("modest"))), machine)
    attempt = an_attempt(build_session(greedy.series, build_machine("m2"), state="done"), 1, agent="a", state="done")
    Attempt.objects.filter(pk=attempt.pk).update(created_at=NOON - timedelta(hours=1), state_since=NOON)
    spent = read_snapshot().on_machines
    assert list(spent.trees.values()) == [3600.0]
    assert (list(spent.series.values()), spent.expected) == ([3600.0], 3600.0)
    assert placed() == [str(modest)]
    Attempt.objects.filter(pk=attempt.pk).update(state_since=NOON - timedelta(hours=25))
    assert placed() == [str(greedy)], "it is forgiven after a day"


def test_work_that_came_back_waits_longer_each_time(noon: time_machine.Traveller) -> None:
    session, build = build_session(), build_build(state="wanted")
    Builder.objects.create(name="big", arches=["x86_64"])
    for number in (1, 2, 3):
        an_attempt(session, number)
        an_attempt(build, number)
    assert placed() == []
    assert why(session) == "tried 3 times in vain; again from 12:00:04 UTC on"
    assert why(build) == "tried 3 times in vain; again from 12:00:04 UTC on"
    noon.shift(4)
    assert sorted(placed()) == sorted([str(session), str(build)])


def test_boot_with_a_result_ends_the_count_of_a_session(noon: time_machine.Traveller) -> None:
    session = build_session()
    an_attempt(session, 1)
    noon.shift(1)
    first = session.boots.first()
    assert first is not None
    first.advance("failed", because("panic"))
    assert placed() == [str(session)]


def test_session_waits_while_its_kernel_is_built_again() -> None:
    session = build_session()
    Build.objects.filter(pk=session.base_build_id).update(state="wanted")
    Builder.objects.create(name="big", arches=["x86_64"])
    assert placed() == [str(session.base_build)]
    assert why(session) == "a kernel of it is being built again"


def test_reasons_name_what_is_missing() -> None:
    build = build_build(state="wanted")
    Build.objects.filter(pk=build.pk).update(arch="riscv")
    assert why(build) == "there is no builder"
    builder = Builder.objects.create(name="big", arches=["x86_64"])
    assert why(build) == "no builder compiles for riscv"
    Builder.objects.filter(pk=builder.pk).update(arches=["riscv"], toolchains=["clang"])
    assert why(build) == "no builder that compiles for riscv has the toolchain gcc"
    Builder.objects.filter(pk=builder.pk).update(toolchains=[], health="quarantined", health_reason="disk full")
    assert why(build) == "big: quarantined: disk full"
    Builder.objects.filter(pk=builder.pk).update(health="good")
    assert why(build) == "goes with the next round"
    an_attempt(build_build(state="running"), 1, builder=builder, state="running")
    assert why(build) == "big makes 1 of at most 1 builds"


def test_reasons_of_sessions_name_the_machine_and_who_holds_it() -> None:
    machine = build_machine()
    sessions = [build_session(build_series(), machine) for _ in range(3)]
    assert [one.reason for one in queue_in_order()] == [
        "goes with the next round", "1 session goes before it", "2 sessions go before it",
    ]  # fmt: skip
    running = an_attempt(sessions[0], 1, state="running")
    Session.objects.filter(pk=sessions[0].pk).update(state="running")
    assert why(sessions[1]) == f"vm-haswell works at {running.key}"
    assert why_waiting(sessions[0]) is None


def test_builder_that_built_the_tree_last_gets_it_again() -> None:
    Builder.objects.create(name="a-cold", arches=["x86_64"])
    warm = Builder.objects.create(name="b-warm", arches=["x86_64"])
    an_attempt(build_build(), 1, builder=warm, state="done", agent="a")
    build_build(state="wanted")
    assert [one.host for one in next_placements(free_slots=None)] == [warm]


def test_base_is_built_before_its_series() -> None:
    Builder.objects.create(name="big", arches=["x86_64"], capacity=2)
    series = build_series()
    head, base = build_build(series.head, state="wanted"), build_build(series.base, state="wanted")
    assert placed() == [str(base), str(head)]


def test_local_site_builds_on_this_host_alone_and_one_at_a_time(settings: Settings) -> None:
    settings.DISPATCHER, settings.LOCAL_SLOTS = "local", 2
    Builder.objects.create(name="node", arches=["x86_64"])
    for _ in range(2):
        build_build(state="wanted")
    placements = next_placements(free_slots=2)
    assert [(one.host, one.slots) for one in placements] == [(local_builder(), 2)]
    assert local_builder() == local_builder()
    assert next_placements(free_slots=1) == []


def test_power_cycle_is_placed_without_a_host() -> None:
    cycle = PowerCycle.objects.create(machine=build_machine(state="power-cycling"), state="wanted")
    (placement,) = next_placements(free_slots=None)
    assert (placement.item, placement.host) == (cycle, None)


def test_queries_do_not_grow_with_what_waits() -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            read_snapshot()
        return len(captured)

    build_session(build_series(), build_machine("m0"))
    build_build(state="wanted")
    few = queries()
    for number in range(5):
        build_session(build_series(), build_machine(f"m{number}"))
        build_build(state="wanted")
    assert queries() == few <= 18


def test_forced_check_stands_before_builds_in_the_queue_as_it_goes_before_them() -> None:
    check = build_health_session(build_machine(health="unknown"))
    session, build = build_session(build_series(), build_machine("m2")), build_build(state="wanted")
    Builder.objects.create(name="big", arches=["x86_64"])
    expected = [("session", check.pk), ("build", build.pk), ("session", session.pk)]
    assert [(one.kind, one.id) for one in queue_in_order()] == expected
    assert placed() == [str(check), str(build), str(session)]


def test_looking_at_the_queue_writes_nothing(settings: Settings) -> None:
    settings.DISPATCHER = "local"
    build_build(state="wanted")
    queue_in_order()
    assert not Builder.objects.exists()
    assert next_placements(free_slots=4)[0].host == Builder.objects.get(name="local-builder")
