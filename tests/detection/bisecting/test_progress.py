"""What pages say of a bisection under way."""

from pathlib import Path

import pytest

from server.detection.bisection.conclusion import ask_to_bisect, cancel_by_hand
from server.detection.bisection.step import bisections_of
from server.detection.models import BisectionState
from server.detection.sweep import tend_bisections
from tests.detection.bisecting.world import judged, make_world, zen3

pytestmark = pytest.mark.django_db


def test_a_bisection_shows_its_steps_its_cost_and_what_remains(tmp_path: Path) -> None:
    world = make_world(tmp_path, 8)
    machine = zen3()
    world.costs[machine.name] = {"p7": 1.7}
    finding = judged(world, machine)
    tend_bisections()
    (before,) = bisections_of(finding)
    assert (before.machine, before.uarch, before.cell) == ("zen3-a", "zen3", "time of mm-basic/fault-4k")
    # The ends are known from the finding's boots; three halvings and two checks are left, and nothing is spent.
    assert (before.state, before.left, before.steps_left) == ("searching", 8, 5)
    assert (before.sessions, before.seconds, before.seconds_left) == (0, 0.0, None)
    assert [(step.kind, step.answer, step.sha) for step in before.steps] == [
        ("ends", "bad", world.shas[8]),
        ("middle", "", world.shas[4]),
    ]
    while not finding.bisections.get().steps.filter(kind="middle", answer="good").exists():
        world.work()
    tend_bisections()
    (after,) = bisections_of(finding)
    assert (after.left, after.steps_left, after.first_sha) == (4, 4, world.shas[5])
    assert (after.sessions, after.boots) == (1, 8)
    # Two steps were asked, and one is measured: that one tells how long they take.
    assert after.seconds == 480.0
    assert after.seconds_left == 4 * 480.0


def test_nobody_is_named_before_the_culprit_is_found(tmp_path: Path) -> None:
    world = make_world(tmp_path, 4)
    machine = zen3()
    world.costs[machine.name] = {"p3": 1.7}
    finding = judged(world, machine)
    tend_bisections()
    while finding.bisections.get().state != BisectionState.CHECKING:
        world.work()
        tend_bisections()
    (checking,) = bisections_of(finding)
    assert (checking.culprit_sha, checking.culprit_subject) == ("", "")
    cancel_by_hand(finding, "ada", "enough")
    assert finding.bisections.get().culprit is None
    ask_to_bisect(finding, "ada")
    world.run()
    (found,) = bisections_of(finding)
    assert (found.culprit_sha, found.culprit_subject) == (world.shas[3], "mm: Change 3")
