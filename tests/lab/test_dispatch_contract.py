"""What every dispatcher does, proved with real programs: processes of this host, and builds of a controller.

`each` is any of them; `world` one that starts what it is given.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.errors import DomainError
from server.lab import rounds
from server.lab.dispatch.jenkins import adapter, runs
from server.lab.hosts.state import goes_away
from server.lab.models import Attempt, AttemptState
from server.lab.port import BY_ITSELF, DispatchError, Observed, Work, dispatcher, dispatcher_of, runs_of
from server.lab.scheduling.placement import why_waiting
from tests.builders import build_attempt, build_machine, build_series, build_session
from tests.lab.worlds import WORLDS, World, let_end, new_work, starts, until

pytestmark = pytest.mark.django_db


@pytest.fixture(params=WORLDS)
def each(
    request: pytest.FixtureRequest, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    # Waiting for what may still be on its way is what takes a controller's adapter its time.
    monkeypatch.setattr(runs, "_UNKNOWN_SECONDS", 0.1)
    monkeypatch.setattr(runs, "_MISSED_SECONDS", 0.3)
    made = WORLDS[request.param](tmp_path, settings)
    monkeypatch.setattr(rounds, "dispatcher", lambda: made.port)
    yield made
    made.close()


@pytest.fixture
def world(each: World) -> World:
    return each


STARTING = pytest.mark.parametrize("each", [name for name in WORLDS if WORLDS[name].hands_out], indirect=True)


@pytest.fixture
def work(each: World) -> Work:
    return ready(each)[1]


def ready(world: World, machine: str = "vm-haswell") -> tuple[Attempt, Work]:
    attempt, work = new_work(machine)
    world.define()
    return attempt, work


def seen(world: World, work: Work) -> Observed:
    return world.port.look([work]).works[work.key].observed


def running(world: World, work: Work) -> None:
    world.port.submit(work)
    until(lambda: starts(world, work.key) == 1 and seen(world, work) is Observed.ALIVE)


def stopped(world: World, work: Work) -> None:
    """As rounds do it: who asks whether he is to go on hears it from the row."""
    Attempt.objects.filter(key=work.key).update(state=AttemptState.CANCELING)
    until(lambda: world.port.cancel(work))


def test_work_that_was_never_submitted_is_absent_and_can_be_canceled(each: World, work: Work) -> None:
    assert seen(each, work) is Observed.ABSENT
    assert each.port.cancel(work)


@STARTING
def test_submitted_work_runs_once_and_ends(world: World, work: Work) -> None:
    running(world, work)
    let_end(world, work.key)
    until(lambda: seen(world, work) is Observed.ENDED)
    assert starts(world, work.key) == 1


@STARTING
def test_work_submitted_twice_runs_once(world: World, work: Work) -> None:
    world.port.submit(work)
    world.port.submit(work)
    until(lambda: seen(world, work) is Observed.ALIVE)
    world.port.submit(work)
    let_end(world, work.key)
    until(lambda: seen(world, work) is Observed.ENDED)
    assert starts(world, work.key) == 1


@STARTING
def test_key_that_ended_never_works_again(world: World, work: Work) -> None:
    running(world, work)
    let_end(world, work.key)
    until(lambda: seen(world, work) is Observed.ENDED)
    world.port.submit(work)
    assert starts(world, work.key) == 1


@STARTING
def test_running_work_is_canceled(world: World, work: Work) -> None:
    running(world, work)
    assert not world.port.cancel(work)
    stopped(world, work)
    assert seen(world, work) in {Observed.ENDED, Observed.LEFT}


@STARTING
def test_program_that_ignores_sigterm_is_canceled_or_let_go_of(world: World, work: Work) -> None:
    (world.folder / "stubborn").touch()
    running(world, work)
    stopped(world, work)
    assert seen(world, work) is (Observed.ENDED if world.kills else Observed.LEFT)


@STARTING
def test_other_work_goes_on_when_one_is_canceled(world: World, work: Work) -> None:
    _, other = ready(world, "vm-zen")
    running(world, work)
    running(world, other)
    stopped(world, work)
    assert seen(world, other) is Observed.ALIVE
    let_end(world, other.key)
    until(lambda: seen(world, other) is Observed.ENDED)


@STARTING
def test_many_are_seen_in_one_look(world: World, work: Work) -> None:
    _, other = ready(world, "vm-zen")
    running(world, other)
    look = world.port.look([work, other])
    assert look.works[work.key].observed is Observed.ABSENT
    assert look.works[other.key].observed is Observed.ALIVE
    assert {name for name, host in look.hosts.items() if host.connected} >= {"vm-haswell", "vm-zen"}


def test_outside_that_takes_no_work_is_a_passing_trouble(each: World, work: Work) -> None:
    each.cut()
    with pytest.raises(DispatchError) as raised:
        each.port.submit(work)
    assert not raised.value.permanent
    assert starts(each, work.key) == 0
    if each.hands_out:
        each.mend()
        running(each, work)


def test_hosts_are_held_and_let_go_of_as_often_as_asked(each: World, work: Work) -> None:
    each.port.look([work])
    for _ in range(2):
        assert each.port.hold({work.host: work.key}) == {work.host}
    for _ in range(2):
        assert each.port.hold({}) == frozenset()
    if each.hands_out:
        running(each, work)


def test_hosts_of_the_lab_alone_are_held(each: World, work: Work) -> None:
    each.port.look([work])
    held = each.port.hold({"nobody": work.key})
    assert held == (frozenset({"nobody"}) if each.origin(work) == BY_ITSELF else frozenset())


def test_adapter_is_chosen_by_its_name(each: World, settings: Settings) -> None:
    settings.DISPATCHER = each.port.name
    assert type(dispatcher()) is type(each.port)
    assert each.hands_out is (each.port.slots != 0)
    assert each.port.about


def test_round_hands_out_as_much_as_there_are_slots(each: World) -> None:
    session = build_session(build_series(), build_machine("vm-haswell"))
    each.define()
    rounds.run_round()
    waiting = why_waiting(session)
    if not each.hands_out:
        assert waiting is not None
        assert (session.attempts.count(), waiting.reason) == (0, "the null dispatcher hands nothing out")
    else:
        assert waiting is None
        attempt = session.attempts.get()
        assert (attempt.adapter, attempt.slots) == (each.port.name, each.port.slots or 1)


def test_agent_that_comes_is_recorded_once_and_taken_in_when_its_host_is_held(each: World) -> None:
    attempt, work = ready(each)
    ours = each.origin(work)
    each.port.look([work])
    if each.hands_out:
        each.port.submit(work)
    for again in (False, True):
        each.port.check_origin(work, ours)
        each.port.record_arrival(work, ours, again=again)
    # Where no controller starts agents there are no runs of it either, and no node that it could keep busy.
    alone = ours == BY_ITSELF
    assert each.port.is_held(work) is alone
    each.port.hold({work.host: work.key})
    assert each.port.is_held(work)
    run = runs_of({attempt.pk: each.port.name}).get(attempt.pk)
    if alone:
        assert (run, each.port.controller(), each.port.alarms(clock.now())) == (None, None, ())
        node = each.port.node(work.host)
        assert node is None or (node.asks, node.connected) == (True, True)
    else:
        node = each.port.node(work.host)
        assert run is not None
        assert node is not None
        assert (run.job, run.number, run.node, node.held_for) == (ours.job, ours.number, work.host, work.key)
        with pytest.raises(DomainError, match="arrived in build 7, not in 8"):
            each.port.record_arrival(work, replace(ours, number=8), again=True)


@pytest.mark.parametrize(("present", "handed_to", "away"), [("local", "jenkins", True), ("jenkins", "local", False)])
def test_attempt_asks_the_adapter_that_it_was_handed_to(
    db: None, settings: Settings, present: str, handed_to: str, away: bool
) -> None:
    """Attempts are under way while a site changes its dispatcher."""
    settings.DISPATCHER = present
    session = build_session(machine=build_machine(boot_driver="kexec"))
    attempt = build_attempt(session, adapter=handed_to)
    assert dispatcher_of(handed_to).name == handed_to
    assert goes_away(session.machine, attempt) is away
    assert dispatcher_of("one that there is no more") is dispatcher()


def test_dispatcher_that_is_not_known_is_told(settings: Settings) -> None:
    settings.DISPATCHER = "none"
    with pytest.raises(ImproperlyConfigured, match="no dispatcher 'none'"):
        dispatcher()


def test_ladder_is_patient_by_default() -> None:
    assert adapter._STOP_PATIENCE.total_seconds() == 60
