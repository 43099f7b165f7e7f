from hypothesis import given
from hypothesis import strategies as st

from server.detection.bisection.search import choose
from server.detection.bisection.walk import NOTHING, agree, joined, link


def test_the_middle_is_chosen_and_a_kernel_that_is_made_where_it_is_about_as_near() -> None:
    inside = range(1, 16)
    assert choose(0, 16, inside, made=()) == 8
    assert choose(0, 16, inside, made={10}) == 10
    assert choose(0, 16, inside, made={12}) == 8
    assert choose(0, 16, [index for index in inside if index not in {7, 8, 9}], made=()) == 6
    assert choose(0, 1, [], made={0}) is None


@given(st.integers(2, 400), st.sets(st.integers(1, 400)), st.sets(st.integers(1, 400)), st.integers(1, 400))
def test_a_search_ends_at_the_change_in_few_steps(size: int, made: set[int], skipped: set[int], change: int) -> None:
    """Whatever is made or skipped: between the last good and the first bad one only skipped ones are left."""
    low, high, steps = 0, size, 0
    change = min(change, size)
    while True:
        inside = [index for index in range(low + 1, high) if index not in skipped]
        index = choose(low, high, inside, made=made)
        if index is None:
            break
        steps += 1
        low, high = (low, index) if index >= change else (index, high)
    assert low < change <= high
    assert all(index in skipped for index in range(low + 1, high))
    if not skipped:
        # Off the middle by an eighth of the interval at most: five eighths are left.
        assert steps <= 1.5 * size.bit_length() + 1


def test_ratios_multiply_and_their_errors_add() -> None:
    one, other = link(2.0, 1.9, 2.105), link(0.5, 0.45, 0.5556)
    both = joined(one, other)
    assert one is not None
    assert other is not None
    assert both is not None
    assert abs(both.ratio - 1) < 1e-9
    assert both.variance == one.variance + other.variance
    assert both.interval[0] < 0.95
    assert both.interval[1] > 1.05
    assert joined(both, None) is None
    assert link(1.0, None, None) is None
    assert link(0.0, 0.0, 1.0) is None


def test_two_ratios_agree_within_their_errors_or_the_smallest_change_that_counts() -> None:
    one, near, far = link(1.30, 1.28, 1.32), link(1.31, 1.29, 1.33), link(1.40, 1.38, 1.42)
    assert one is not None
    assert near is not None
    assert far is not None
    assert agree(one, near, cells=1, slack=0.0)
    assert not agree(one, far, cells=10, slack=0.01)
    exact = link(1.005, 1.005, 1.005)
    assert exact is not None
    assert agree(NOTHING, exact, cells=1, slack=0.01)
    assert not agree(NOTHING, exact, cells=1, slack=0.001)
