import pytest

from server.stats.changepoints.causes import belongs
from server.stats.changepoints.fleet import Nomination, cluster, first_guess, strongest_first
from server.stats.changepoints.shifts import Shift, shift_at, trace, trimmed_mean
from server.stats.changepoints.timeline import TimelineValues
from tests.stats.fleets import fleet


def _timeline(*steps: tuple[int, float], noise: float = 0.01, seed: int = 1) -> TimelineValues:
    return fleet({("m", "b"): steps}, noise=noise, seed=seed, machines=["m"], benchmarks=["b"])[0]


def test_shift_is_the_log_ratio_of_the_levels() -> None:
    shift = shift_at(trace(_timeline((60, 0.05)), [60]), 60)
    assert shift.effect == pytest.approx(0.05, abs=0.01)
    assert shift.z > 10
    assert shift.points == 18


def test_shift_of_a_level_is_within_its_error() -> None:
    assert abs(shift_at(trace(_timeline()), 60).z) < 3


def test_other_steps_do_not_leak_into_a_shift() -> None:
    traced = trace(_timeline((50, 0.5), (60, 0.05), (75, -0.5)), [50, 60, 75])
    shift = shift_at(traced, 60)
    assert shift.effect == pytest.approx(0.05, abs=0.02)
    assert shift.points == 10


def test_hiccups_do_not_move_a_level() -> None:
    timeline = _timeline()
    values = timeline.values.copy()
    values[[40, 55, 70]] *= 10
    shift = shift_at(trace(TimelineValues("t", values, timeline.revisions)), 60)
    assert shift.effect == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("revision", [-5, 0, 120, 500])
def test_place_outside_the_timeline_has_no_shift(revision: int) -> None:
    assert shift_at(trace(_timeline()), revision).points == 0


def test_trimmed_mean_ignores_the_outer_quarters() -> None:
    assert trimmed_mean([1.0, 2.0, 3.0, 1000.0]) == pytest.approx(2.5)
    assert trimmed_mean([7.0]) == pytest.approx(7)
    assert trimmed_mean([1.0, 2.0, 100.0]) == pytest.approx(2)


def test_weak_shift_belongs_to_a_change_it_agrees_with_only() -> None:
    weak = Shift(effect=0.02, error=0.01, points=25)
    assert belongs(weak, weak.effect)
    assert not belongs(weak, -weak.effect)


def test_change_below_the_least_effect_never_belongs() -> None:
    tiny = shift_at(trace(_timeline((60, 0.005), noise=0.0001), [60]), 60)
    assert not belongs(tiny, 0.005)


def _nomination(timeline: int, revision: int, score: float, since: int | None = None) -> Nomination:
    return Nomination(timeline, revision, revision if since is None else since, score)


def test_cluster_takes_the_strongest_of_each_timeline_near_the_head() -> None:
    all_of_them = strongest_first(
        [
            _nomination(0, 50, 9),
            _nomination(1, 52, 5),
            _nomination(1, 49, 3),
            _nomination(2, 60, 8),
        ]
    )
    assert [(n.timeline, n.revision) for n in cluster(all_of_them[0], all_of_them)] == [(0, 50), (1, 52)]


def test_machine_that_did_not_measure_joins_the_change_it_slept_through() -> None:
    late, early = _nomination(0, 70, 9, since=58), _nomination(1, 60, 5)
    members = cluster(late, [late, early])
    assert len(members) == 2
    assert first_guess(members) == 60
