"""The simulated branch from its first head to its last: each head is measured, and all that follows from it is done."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bench.fleet_history_hosts import Hosts
from bench.fleet_history_levels import Levels
from bench.fleet_history_play import Player, set_time
from bench.fleet_history_site import make_site
from bench.fleet_history_truth import Truth, wanted_places
from server.core import clock
from server.lab.hosts import change_health
from server.lab.models import Machine
from server.sources.models import Branch, Revision, WantedRevision

HEAD_EVERY = timedelta(hours=6)
_SAID_EVERY = 20


@dataclass(frozen=True)
class Played:
    """`places` are those of the branch's commits, `seconds` what each head took with all that followed from it.

    `failed` counts tasks that ended with an error.
    """

    branch: Branch
    places: Mapping[str, int]
    seconds: Sequence[float]
    failed: int


def play(truth: Truth, seed: int, say: Callable[[str], None]) -> Played:
    """On the empty database that Django is set up on; replaces where messages are sent to."""
    levels = Levels(truth, seed)
    with set_time() as move:
        branch, revisions, machines = make_site(truth, levels)
        hosts = Hosts(truth, levels, machines)
        player = Player(hosts)
        begun, seconds = time.monotonic(), list[float]()
        for number, place in enumerate(wanted_places(truth)):
            started = time.monotonic()
            move(HEAD_EVERY * (place - hosts.now))
            hosts.now = place
            _come_and_go(truth, machines, place)
            _new_head(branch, revisions[place])
            player.run()
            seconds.append(time.monotonic() - started)
            if number % _SAID_EVERY == 0:
                say(f"{time.monotonic() - begun:6.0f} s: place {place}, {seconds[-1]:.2f} s")
    return Played(
        branch, {revision.sha: place for place, revision in enumerate(revisions)}, seconds, player.failed.total()
    )


def _new_head(branch: Branch, revision: Revision) -> None:
    branch.head, branch.head_at = revision, clock.now()
    branch.save()
    WantedRevision.objects.create(tree=branch.tree, revision=revision, why="head", detail=branch.name)


def _come_and_go(truth: Truth, machines: Sequence[Machine], place: int) -> None:
    for number, machine in enumerate(machines):
        machine.refresh_from_db()
        away = any(which == number and first <= place <= last for which, first, last in truth.away)
        if away and machine.health == Machine.Health.GOOD:
            change_health(machine, Machine.Health.MAINTENANCE, "its rack is moved", actor="operator")
        elif not away and machine.health == Machine.Health.MAINTENANCE:
            change_health(machine, Machine.Health.GOOD, "back in its rack", actor="operator")
