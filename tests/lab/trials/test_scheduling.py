"""Trials among what waits: whose share they use up, and how soon they go."""

from datetime import timedelta

import pytest

from server.core import clock
from server.lab.models import Attempt, TrialState
from server.lab.scheduling.reader import read_snapshot
from server.lab.trials.question import purpose_of
from tests.builders import (
    build_attempt,
    build_build,
    build_health_session,
    build_list,
    build_machine,
    build_series,
    build_tree,
    build_trial,
    build_trial_session,
)

pytestmark = pytest.mark.django_db


def test_trial_waits_for_its_tree_and_series_or_for_itself() -> None:
    tree = build_tree("mm", priority=2)
    series = build_series(build_list(tree=tree))
    walk = build_trial_session(build_trial(purpose="patch", series=series), build_machine("m1"))
    head = build_trial(series.base, series.head, priority=-5)
    alone = build_trial_session(head, build_machine("m2"), priority=head.priority)
    check = build_health_session(build_machine("m3"))
    found = {one.id: (one.tree, one.series, one.priority) for one in read_snapshot().sessions}
    assert found == {
        walk.pk: (tree.pk, series.pk, 2),
        alone.pk: (tree.pk, -head.pk, -3),
        check.pk: (0, 0, 0),
    }


def test_machine_time_of_trials_is_charged_but_not_that_of_noise() -> None:
    for purpose, seconds in (("head", 100), ("noise", 1000)):
        session = build_trial_session(build_trial(purpose=purpose), build_machine(purpose))
        attempt = build_attempt(session, state=Attempt.State.DONE, agent="one")
        ended = clock.now()
        Attempt.objects.filter(pk=attempt.pk).update(created_at=ended - timedelta(seconds=seconds), state_since=ended)
    spent = read_snapshot().on_machines
    assert [round(seconds) for seconds in spent.trees.values()] == [100]
    assert [round(seconds) for seconds in spent.series.values()] == [100]


def test_kernel_has_the_highest_priority_of_those_who_wait_for_it() -> None:
    series = build_series()
    low = build_trial(series.base, purpose="noise", priority=-9)
    high = build_trial(low.patched, purpose="bisect", priority=4)
    build_trial(high.patched, purpose="bisect", priority=90, state=TrialState.DONE)
    builds = [build_build(revision, state="wanted") for revision in (low.base, low.patched, high.patched)]
    found = {one.id: one.priority for one in read_snapshot().builds}
    assert [found[build.pk] for build in builds] == [0, 4, 4], "a series waits for the first one"


def test_session_says_what_it_is_for() -> None:
    series = build_series(subject="mm: Clear pages twice")
    sessions = [
        build_trial_session(build_trial(purpose="series", series=series), build_machine("m1")),
        build_trial_session(build_trial(purpose="patch", series=series), build_machine("m2")),
        build_health_session(build_machine("m3")),
    ]
    assert [purpose_of(session) for session in sessions] == [
        "mm: Clear pages twice",
        "trial: what one patch of a series adds",
        "whether m3 is well",
    ]
