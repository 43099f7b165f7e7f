"""What every dispatcher does, proved with real programs: processes of this host, and builds of a controller."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from server.lab.dispatch.jenkins import adapter, runs
from server.lab.models import Attempt
from server.lab.port import DispatchError, Observed, Work
from tests.lab.worlds import ApartWorld, JenkinsWorld, LocalWorld, World, let_end, new_work, starts, until

pytestmark = pytest.mark.django_db


@pytest.fixture(params=["local", "apart", "jenkins"])
def world(
    request: pytest.FixtureRequest, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    # Waiting for what may still be on its way is what takes a controller's adapter its time.
    monkeypatch.setattr(runs, "_UNKNOWN_SECONDS", 0.1)
    monkeypatch.setattr(runs, "_MISSED_SECONDS", 0.3)
    worlds: dict[str, type[LocalWorld | ApartWorld | JenkinsWorld]] = {
        "local": LocalWorld, "apart": ApartWorld, "jenkins": JenkinsWorld,
    }  # fmt: skip
    made: World = worlds[request.param](tmp_path, settings)
    yield made
    made.close()


@pytest.fixture
def work(world: World) -> Work:
    return ready(world)[1]


def ready(world: World, machine: str = "vm-haswell") -> tuple[Attempt, Work]:
    attempt, work = new_work(machine)
    if isinstance(world, JenkinsWorld):
        world.define()
    return attempt, work


def seen(world: World, work: Work) -> Observed:
    return world.port.look([work]).works[work.key].observed


def running(world: World, work: Work) -> None:
    world.port.submit(work)
    until(lambda: starts(world, work.key) == 1 and seen(world, work) is Observed.ALIVE)


def stopped(world: World, work: Work) -> None:
    until(lambda: world.port.cancel(work))


def test_work_that_was_never_submitted_is_absent_and_can_be_canceled(world: World, work: Work) -> None:
    assert seen(world, work) is Observed.ABSENT
    assert world.port.cancel(work)


def test_submitted_work_runs_once_and_ends(world: World, work: Work) -> None:
    running(world, work)
    let_end(world, work.key)
    until(lambda: seen(world, work) is Observed.ENDED)
    assert starts(world, work.key) == 1


def test_work_submitted_twice_runs_once(world: World, work: Work) -> None:
    world.port.submit(work)
    world.port.submit(work)
    until(lambda: seen(world, work) is Observed.ALIVE)
    world.port.submit(work)
    let_end(world, work.key)
    until(lambda: seen(world, work) is Observed.ENDED)
    assert starts(world, work.key) == 1


def test_key_that_ended_never_works_again(world: World, work: Work) -> None:
    running(world, work)
    let_end(world, work.key)
    until(lambda: seen(world, work) is Observed.ENDED)
    world.port.submit(work)
    assert starts(world, work.key) == 1


def test_running_work_is_canceled(world: World, work: Work) -> None:
    running(world, work)
    assert not world.port.cancel(work)
    stopped(world, work)
    assert seen(world, work) in {Observed.ENDED, Observed.LEFT}


def test_program_that_ignores_sigterm_is_canceled_or_let_go_of(world: World, work: Work) -> None:
    (world.folder / "stubborn").touch()
    running(world, work)
    stopped(world, work)
    # A controller never kills: what it says then proves nothing about the program, whose lease does.
    assert seen(world, work) is (Observed.ENDED if isinstance(world, LocalWorld | ApartWorld) else Observed.LEFT)


def test_other_work_goes_on_when_one_is_canceled(world: World, work: Work) -> None:
    _, other = ready(world, "vm-zen")
    running(world, work)
    running(world, other)
    stopped(world, work)
    assert seen(world, other) is Observed.ALIVE
    let_end(world, other.key)
    until(lambda: seen(world, other) is Observed.ENDED)


def test_many_are_seen_in_one_look(world: World, work: Work) -> None:
    _, other = ready(world, "vm-zen")
    running(world, other)
    look = world.port.look([work, other])
    assert look.works[work.key].observed is Observed.ABSENT
    assert look.works[other.key].observed is Observed.ALIVE
    assert {name for name, host in look.hosts.items() if host.connected} >= {"vm-haswell", "vm-zen"}


def test_outside_that_takes_no_work_is_a_passing_trouble(world: World, work: Work) -> None:
    world.cut()
    with pytest.raises(DispatchError) as raised:
        world.port.submit(work)
    assert not raised.value.permanent
    assert starts(world, work.key) == 0
    world.mend()
    running(world, work)


def test_hosts_are_held_and_let_go_of_as_often_as_asked(world: World, work: Work) -> None:
    world.port.look([work])
    for _ in range(2):
        assert world.port.hold({work.host: work.key}) == {work.host}
    for _ in range(2):
        assert world.port.hold({}) == frozenset()
    running(world, work)


def test_hosts_of_the_lab_alone_are_held(world: World, work: Work) -> None:
    world.port.look([work])
    held = world.port.hold({"nobody": work.key})
    assert held == (frozenset({"nobody"}) if isinstance(world, LocalWorld | ApartWorld) else frozenset())


def test_ladder_is_patient_by_default() -> None:
    assert adapter._STOP_PATIENCE.total_seconds() == 60
