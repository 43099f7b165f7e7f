"""The columns of the matrix: what goes wrong while work is in each of its states."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from celery import current_app
from redis import Redis
from tidemark_agent.errors import RefusedError

from server.lab.models import Attempt
from tests.jenkins.matrix.cells import At, Cell
from tests.jenkins.matrix.lab import Lab
from tests.jenkins.matrix.speaker import Speaker

# Longer than a lease, shorter than what makes a machine count as gone.
_CUT_SECONDS = 4.0
_AGENT_BACK_SECONDS = 1.0
# Where the machine, or the builder's program, holds the work when the fault comes.
_ON_ITS_HOST = {At.ARRIVED, At.RUNNING, At.CANCELING, At.LOSING, At.UPLOADED}


@dataclass(frozen=True)
class Fault:
    """`strike` makes it happen; with `beside`, a second dispatching process works all the time, without the lock."""

    name: str
    strike: Callable[[Lab, Sequence[Cell]], None]
    beside: bool = False


def _worker_killed(lab: Lab, _cells: Sequence[Cell]) -> None:
    lab.kill_dispatcher(lab.dispatchers[0])
    lab.start_dispatcher()


def _redis_flushed(lab: Lab, _cells: Sequence[Cell]) -> None:
    """All messages that the dispatching process sent are gone. None of them ever reaches a worker here, besides."""
    with current_app.connection_for_write() as broker:
        channel: Any = broker.default_channel
        # Without the prefix that the channel's own client puts before each name.
        client = Redis(connection_pool=channel.client.connection_pool)
        for name in client.scan_iter(match=f"{lab.redis_prefix}*"):
            client.delete(name)


def _controller_stopped(lab: Lab, _cells: Sequence[Cell]) -> None:
    lab.jenkins.restart(kill=False)


def _controller_killed(lab: Lab, _cells: Sequence[Cell]) -> None:
    lab.jenkins.restart(kill=True)


def _agents_killed(lab: Lab, cells: Sequence[Cell]) -> None:
    for cell in cells:
        machine = lab.machines.get(cell.host)
        if machine is not None and cell.at in _ON_ITS_HOST:
            machine.die()
            lab.jenkins.kill_agent(cell.host)
        else:
            _kill_programs(lab, cell)
            lab.jenkins.kill_agent(cell.host, back_after=_AGENT_BACK_SECONDS)


def _kill_programs(lab: Lab, cell: Cell) -> None:
    """A builder's agent dies with what it started: the whole host lost its power."""
    for build in lab.jenkins.node(cell.host).running():
        if build.program is not None:
            build.program.destroy()


def _agents_frozen(lab: Lab, cells: Sequence[Cell]) -> None:
    for cell in cells:
        machine = lab.machines.get(cell.host)
        lab.jenkins.freeze_agent(cell.host, machine=True)
        if machine is not None and cell.at in _ON_ITS_HOST:
            machine.freeze()
    time.sleep(_CUT_SECONDS)
    for cell in cells:
        # A machine that hangs comes back by its power switch alone.
        if cell.host not in lab.machines or cell.at not in _ON_ITS_HOST:
            lab.jenkins.thaw(cell.host)


def _service_cut_off(lab: Lab, _cells: Sequence[Cell]) -> None:
    lab.jenkins.cut_network("hang")
    time.sleep(_CUT_SECONDS / 2)
    lab.jenkins.cut_network("refuse")
    time.sleep(_CUT_SECONDS / 2)
    lab.jenkins.restore_network()


def _agents_cut_off(lab: Lab, _cells: Sequence[Cell]) -> None:
    lab.wire.cut()
    time.sleep(_CUT_SECONDS)
    lab.wire.mend()


def _started_twice(lab: Lab, cells: Sequence[Cell]) -> None:
    """Every key gets a second build, and a stranger claims what is claimed."""
    for cell in cells:
        attempt = cell.attempt()
        if attempt is None:
            continue
        key = attempt.key
        if key in lab.jenkins.waiting_keys() or lab.jenkins.builds_of(key):
            lab.jenkins.start_twice(key)
        if attempt.state == Attempt.State.RUNNING:
            stranger = Speaker(folder=lab.folder, server=lab.service, host=cell.host)
            try:
                stranger.post(f"attempts/{key}/claim", version="0.1.0", host=cell.host)
            except RefusedError:
                continue
            raise AssertionError(f"{key} was claimed twice")


def _aborted_in_page(lab: Lab, cells: Sequence[Cell]) -> None:
    """A person presses stop beside whatever is being built: Jenkins ends its programs, children first."""
    for cell in cells:
        attempt = cell.attempt()
        if attempt is not None and any(build.building for build in lab.jenkins.builds_of(attempt.key)):
            lab.jenkins.stop_build(attempt.key)


def _jobs_deleted(lab: Lab, cells: Sequence[Cell]) -> None:
    """With all that ran and waited in them; jenkins_apply makes them anew a while later."""
    lab.delete_jobs([cell.host for cell in cells])
    time.sleep(_CUT_SECONDS)
    lab.define_jobs()


def _nothing(_lab: Lab, _cells: Sequence[Cell]) -> None:
    """The fault is there from the beginning."""


FAULTS = (
    Fault("worker killed", _worker_killed),
    Fault("Redis flushed", _redis_flushed),
    Fault("controller restarted", _controller_stopped),
    Fault("controller killed", _controller_killed),
    Fault("agent killed", _agents_killed),
    Fault("agent frozen", _agents_frozen),
    Fault("service cut off", _service_cut_off),
    Fault("agents cut off", _agents_cut_off),
    Fault("started twice", _started_twice),
    Fault("aborted in the page", _aborted_in_page),
    Fault("jobs deleted", _jobs_deleted),
    Fault("two dispatchers", _nothing, beside=True),
)
