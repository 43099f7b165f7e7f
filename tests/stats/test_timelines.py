import numpy as np
import pytest

from server.stats.changepoints.timeline import TimelineValues


def test_values_and_revisions_of_unequal_length_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"timeline kbuild/zen4: 3 values for 2 revisions"):
        TimelineValues("kbuild/zen4", np.array([1.0, 2.0, 3.0]), np.array([1, 2]))


@pytest.mark.parametrize("revisions", [[3, 1, 2], [1, 1, 2]], ids=["unsorted", "repeated"])
def test_revisions_that_do_not_increase_are_refused_by_name(revisions: list[int]) -> None:
    with pytest.raises(ValueError, match=r"timeline kbuild: revisions are not strictly increasing"):
        TimelineValues("kbuild", np.array([1.0, 2.0, 3.0]), np.array(revisions))


def test_nested_values_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"timeline kbuild: values and revisions must be flat"):
        TimelineValues("kbuild", np.ones((2, 2)), np.array([1, 2]))


def test_an_unknown_direction_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"timeline kbuild: better is 'faster'"):
        TimelineValues("kbuild", np.ones(1), np.array([1]), better="faster")  # type: ignore[arg-type]


def test_until_gives_the_timeline_as_it_stood_then() -> None:
    timeline = TimelineValues("kbuild", np.array([1.0, 2.0, 3.0]), np.array([4, 7, 9]), machine="zen4", better="lower")
    then = timeline.until(2)
    assert (then.values.tolist(), then.revisions.tolist()) == ([1.0, 2.0], [4, 7])
    assert (then.name, then.machine, then.better) == ("kbuild", "zen4", "lower")


def test_a_timeline_without_points_is_one() -> None:
    assert len(TimelineValues("new", np.empty(0), np.empty(0, dtype=np.int64)).values) == 0


@pytest.mark.parametrize("revisions", [[1.0, 2.5], [1.0, float("nan")], [1, 2**70]], ids=["broken", "nan", "huge"])
def test_revisions_that_are_no_whole_numbers_are_refused_by_name(revisions: list[float]) -> None:
    with pytest.raises(ValueError, match="timeline kbuild: revisions must be whole numbers"):
        TimelineValues("kbuild", np.ones(2), np.array(revisions))


def test_values_that_are_no_numbers_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"timeline kbuild: .*fast"):
        TimelineValues("kbuild", np.array(["fast"]), np.array([1]))
