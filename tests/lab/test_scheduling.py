"""The decision over a snapshot: what must hold whatever waits."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from server.lab.port import WorkKind
from server.lab.scheduling.decision import decide, effective_priority, machine_trouble, weight_of
from server.lab.scheduling.snapshot import (
    Decision,
    KnownBuilder,
    KnownMachine,
    Snapshot,
    Spent,
    WaitingBuild,
    WaitingCycle,
    WaitingSession,
)

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def a_session(pk: int, machine: int = 1, **fields: Any) -> WaitingSession:
    fields.setdefault("since", NOON - HOUR + timedelta(seconds=pk))
    return WaitingSession(
        **{"id": pk, "machine": machine, "tree": 1, "series": pk, "priority": 0, "due": NOON - HOUR, **fields}
    )


def a_build(pk: int, **fields: Any) -> WaitingBuild:
    fields.setdefault("since", NOON - HOUR + timedelta(seconds=pk))
    known = {"tree": 1, "series": pk, "priority": 0, "due": NOON - HOUR, "arch": "x86_64", "toolchain": "gcc"}
    return WaitingBuild(**{"id": pk, "config": 1, **known, **fields})


def machines(number: int, **fields: Any) -> dict[int, KnownMachine]:
    return {pk: KnownMachine(id=pk, name=f"m{pk}", **fields) for pk in range(1, number + 1)}


def builders(*all_fields: dict[str, Any]) -> dict[int, KnownBuilder]:
    return {pk: KnownBuilder(**{"id": pk, "name": f"b{pk}", **fields}) for pk, fields in enumerate(all_fields, start=1)}


def ids(decisions: list[Decision]) -> list[int]:
    return [one.id for one in decisions]


# --- what always holds --------------------------------------------------------------

_STATES = st.sampled_from(["idle", "idle", "idle", "working", "offline", "returning", "power-cycling"])
_HEALTHS = st.sampled_from(["good", "good", "good", "unknown", "quarantined", "maintenance", "retired"])


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    facts = {
        pk: KnownMachine(
            id=pk,
            name=f"m{pk}",
            enabled=draw(st.integers(0, 9)) > 0,
            health=draw(_HEALTHS),
            state=draw(_STATES),
            busy="session-9-1" if draw(st.integers(0, 4)) == 0 else "",
            capabilities=frozenset(draw(st.sets(st.sampled_from(["cxl", "numa"])))),
            alone=draw(st.booleans()),
        )
        for pk in range(1, draw(st.integers(1, 5)) + 1)
    }
    sessions = tuple(
        a_session(
            pk,
            draw(st.sampled_from(sorted(facts))),
            tree=draw(st.integers(1, 3)),
            series=draw(st.integers(1, 6)),
            priority=draw(st.integers(-1, 2)),
            since=NOON - draw(st.integers(0, 80)) * HOUR,
            due=NOON + draw(st.sampled_from([-HOUR, -HOUR, HOUR])),
            deadline=draw(st.sampled_from([None, None, NOON - HOUR, NOON + 50 * HOUR])),
            forced=draw(st.integers(0, 9)) == 0,
            needs=frozenset(draw(st.sets(st.sampled_from(["cxl", "numa"]), max_size=1))),
        )
        for pk in range(1, draw(st.integers(0, 25)) + 1)
    )
    return Snapshot(
        now=NOON,
        sessions=sessions,
        cycles=tuple(WaitingCycle(pk, pk, NOON, NOON) for pk in facts if draw(st.integers(0, 9)) == 0),
        machines=facts,
        weights={1: 1.0, 2: 2.0, 3: 4.0},
        on_machines=Spent({1: float(draw(st.integers(0, 9999)))}, {}, 600.0),
        free_slots=draw(st.sampled_from([None, None, 2])),
        all_slots=2,
    )


@given(snapshots())
@settings(max_examples=50, deadline=None)
def test_each_machine_gets_one_piece_of_work_that_it_can_take(snapshot: Snapshot) -> None:
    by_id = {one.id: one for one in snapshot.sessions}
    chosen = decide(snapshot)
    sessions = [by_id[one.id] for one in chosen if one.kind == WorkKind.SESSION]
    switched = [
        one.machine for one in snapshot.cycles if (WorkKind.POWER_CYCLE, one.id) in {(c.kind, c.id) for c in chosen}
    ]
    assert max(Counter([*(one.machine for one in sessions), *switched]).values(), default=0) <= 1
    for session in sessions:
        machine = snapshot.machines[session.machine]
        assert (machine.enabled, machine.state, machine.busy) == (True, "idle", "")
        assert machine.health == "good" or (session.forced and machine.health in {"unknown", "quarantined"})
        assert session.needs <= machine.capabilities
        assert session.due <= snapshot.now


@given(snapshots())
@settings(max_examples=50, deadline=None)
def test_higher_priority_never_waits_behind_lower_on_one_machine(snapshot: Snapshot) -> None:
    by_id = {one.id: one for one in snapshot.sessions}
    for decision in decide(snapshot):
        if decision.kind != WorkKind.SESSION:
            continue
        chosen = by_id[decision.id]
        others = [one for one in snapshot.sessions if one.machine == chosen.machine and one.due <= NOON]
        able = [one for one in others if not machine_trouble(snapshot, one)]
        if chosen.forced:
            continue
        assert not [one for one in able if one.forced]
        if chosen.deadline is not None and chosen.deadline <= NOON:
            continue
        assert not [one for one in able if one.deadline is not None and one.deadline <= NOON]
        assert effective_priority(chosen, NOON) == max(effective_priority(one, NOON) for one in able)


@given(snapshots(), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_decision_does_not_depend_on_the_order_of_what_was_read(snapshot: Snapshot, random: Any) -> None:
    shuffled = list(snapshot.sessions)
    random.shuffle(shuffled)
    turned = dict(reversed(list(snapshot.machines.items())))
    again = Snapshot(**{**vars(snapshot), "sessions": tuple(shuffled), "machines": turned})
    assert decide(again) == decide(snapshot)


@given(snapshots())
@settings(max_examples=30, deadline=None)
def test_machine_that_could_take_something_is_not_left_idle(snapshot: Snapshot) -> None:
    unlimited = Snapshot(**{**vars(snapshot), "free_slots": None})
    taken = {one.host for one in decide(unlimited) if one.kind == WorkKind.SESSION}
    switched = {one.machine for one in unlimited.cycles if not unlimited.machines[one.machine].busy}
    able = {one.machine for one in unlimited.sessions if one.due <= NOON and not machine_trouble(unlimited, one)}
    assert taken == able - switched


# --- fair share ---------------------------------------------------------------------


def served(priorities: dict[int, int], series: dict[int, int], rounds: int) -> Counter[int]:
    """How often each tree got one of two machines when all trees always have work; priority only as a weight."""
    spent: Counter[int] = Counter()
    by_series: Counter[int] = Counter()
    for _ in range(rounds):
        sessions = tuple(
            a_session(1000 * tree + 10 * one + machine, machine, tree=tree, series=100 * tree + one, since=NOON)
            for tree, number in series.items()
            for one in range(number)
            for machine in (1, 2)
        )
        by_id = {one.id: one for one in sessions}
        weights = {tree: weight_of(priority) for tree, priority in priorities.items()}
        spent_now = Spent({k: 600.0 * v for k, v in spent.items()}, {k: 600.0 * v for k, v in by_series.items()}, 600.0)
        snapshot = Snapshot(NOON, sessions, machines=machines(2), weights=weights, on_machines=spent_now)
        for decision in decide(snapshot):
            spent[by_id[decision.id].tree] += 1
            by_series[by_id[decision.id].series] += 1
    return spent


def test_trees_share_alike_however_many_series_each_has() -> None:
    shares = served({1: 0, 2: 0, 3: 0}, {1: 1, 2: 9, 3: 3}, rounds=30)
    assert max(shares.values()) - min(shares.values()) <= 2


def test_shares_come_to_stand_as_the_weights() -> None:
    shares = served({1: 0, 2: 1, 3: 2}, {1: 2, 2: 2, 3: 2}, rounds=70)
    assert [round(shares[tree] / shares[1]) for tree in (1, 2, 3)] == [1, 2, 4]


def test_series_inside_a_tree_take_turns() -> None:
    sessions = tuple(a_session(pk, pk % 4 + 1, series=1 if pk < 13 else 2, since=NOON) for pk in range(1, 25))
    by_id = {one.id: one for one in sessions}
    chosen = decide(Snapshot(NOON, sessions, machines=machines(4)))
    assert Counter(by_id[one.id].series for one in chosen) == {1: 2, 2: 2}


def test_day_of_waiting_is_one_step_of_priority() -> None:
    old = a_session(1, priority=0, since=NOON - timedelta(days=3))
    assert ids(decide(Snapshot(NOON, (old, a_session(2, priority=2)), machines=machines(1)))) == [1]
    assert ids(decide(Snapshot(NOON, (old, a_session(2, priority=4)), machines=machines(1)))) == [2]


def test_what_must_begin_now_to_meet_its_deadline_goes_before_priority() -> None:
    soon = a_session(1, deadline=NOON + timedelta(minutes=5))
    later = a_session(2, deadline=NOON + timedelta(hours=9), priority=1)
    important = a_session(3, priority=7)
    snapshot = Snapshot(NOON, (important, later, soon), machines=machines(1), on_machines=Spent(expected=600.0))
    assert ids(decide(snapshot)) == [1]
    assert ids(decide(Snapshot(NOON, (important, later), machines=machines(1)))) == [3]


# --- power cycles, checks, builds -----------------------------------------------------


def test_power_cycles_and_checks_go_first_then_kernels_then_sessions() -> None:
    snapshot = Snapshot(
        NOON,
        sessions=(a_session(1, 1, priority=9), a_session(2, 2, forced=True), a_session(3, 3)),
        builds=(a_build(4),),
        cycles=(WaitingCycle(5, 3, NOON, NOON),),
        machines={
            1: KnownMachine(1, "a"),
            2: KnownMachine(2, "b", health="quarantined"),
            3: KnownMachine(3, "c", state="power-cycling", cycling=True),
        },
        builders=builders({}),
    )
    order = [(one.kind, one.id) for one in decide(snapshot)]
    assert order == [(WorkKind.POWER_CYCLE, 5), (WorkKind.SESSION, 2), (WorkKind.BUILD, 4), (WorkKind.SESSION, 1)]


def test_power_cycle_waits_for_the_session_that_is_being_stopped() -> None:
    busy = {1: KnownMachine(1, "a", state="working", busy="session-1-1", cycling=True)}
    assert decide(Snapshot(NOON, cycles=(WaitingCycle(5, 1, NOON, NOON),), machines=busy)) == []


def test_builder_with_the_warm_tree_is_chosen_and_the_emptiest_else() -> None:
    two = builders({"capacity": 2, "busy": 1}, {"capacity": 2})
    cold = Snapshot(NOON, builds=(a_build(1),), builders=two)
    assert [one.host for one in decide(cold)] == [2]
    warm = Snapshot(NOON, builds=(a_build(1),), builders=two, warm={(1, 1): 1})
    assert [one.host for one in decide(warm)] == [1]


def test_builders_get_only_what_they_can_make_and_have_room_for() -> None:
    fleet = builders(
        {"arches": frozenset({"arm64"}), "capacity": 2},
        {"toolchains": frozenset({"clang"})},
        {"health": "quarantined", "capacity": 9},
        {"state": "offline", "capacity": 9},
    )
    waiting = (
        *(a_build(pk, arch="arm64") for pk in (1, 2, 3)),
        a_build(4),
        a_build(5, toolchain="clang"),
        a_build(6, arch="riscv"),
    )
    chosen = decide(Snapshot(NOON, builds=waiting, builders=fleet))
    assert {(one.id, one.host) for one in chosen} == {(1, 1), (2, 1), (5, 2)}


def test_base_goes_before_its_series_and_the_series_that_lacks_least_first() -> None:
    waiting = (
        a_build(1, series=7, stage=2),
        a_build(2, series=7, stage=2, base=True),
        a_build(3, series=8, stage=1),
    )
    assert ids(decide(Snapshot(NOON, builds=waiting, builders=builders({"capacity": 3})))) == [3, 2, 1]


def test_nothing_smaller_overtakes_where_slots_are_few() -> None:
    facts = {1: KnownMachine(1, "a", alone=True), 2: KnownMachine(2, "b")}
    sessions = (a_session(1, 1, priority=1), a_session(2, 2))
    assert ids(decide(Snapshot(NOON, sessions, machines=facts, free_slots=1, all_slots=2))) == []
    assert ids(decide(Snapshot(NOON, sessions, machines=facts, free_slots=2, all_slots=2))) == [1]
    assert ids(decide(Snapshot(NOON, sessions[1:], machines=facts, free_slots=1, all_slots=2))) == [2]
