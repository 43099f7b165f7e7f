"""The arithmetic of the validation: counts, intervals, sources left out, constants replaced wherever they are."""

import numpy as np
import pytest

from bench.statistics.validation import Scores, changed, f1, interval, validated
from server.stats.changepoints import fleet, nominations, steps


def scores(*real: float) -> Scores:
    return Scores(
        np.array([[8.0, 1.0, 3.0]]), np.array([[2.0, 1000.0]]), np.array([[one, one] for one in real]), np.ones((1, 2))
    )


def test_f1_is_that_of_all_counts_together() -> None:
    assert f1(np.array([8.0, 1.0, 3.0])) == pytest.approx(0.8)
    assert scores(1.0).strict == pytest.approx(0.8)
    assert scores(1.0).alarms == pytest.approx(2.0)


def strict() -> list[float]:
    return [getattr(module, "STRICT") for module in (steps, nominations, fleet)]  # noqa: B009 (two of them import it)


def test_constants_are_replaced_wherever_they_were_imported_and_put_back() -> None:
    before = strict()
    with changed({"steps.STRICT": 9.0, "fleet.Resolution._book_events": lambda *_: False}):
        assert strict() == [9.0, 9.0, 9.0]
        assert fleet.Resolution._book_events(None) is False  # type: ignore[call-arg, arg-type]
    assert strict() == before
    assert fleet.Resolution._book_events.__name__ == "_book_events"


def test_interval_holds_the_mean_and_is_wider_for_fewer() -> None:
    values = np.random.default_rng(1).normal(0.5, 0.1, 400)

    def width(some: np.ndarray) -> float:
        low, high = interval(some, lambda drawn: float(drawn.mean())).split(" to ")
        assert float(low) < 0.5 < float(high)
        return float(high) - float(low)

    assert width(values[:20]) > 2 * width(values)


def test_each_source_is_scored_by_what_is_best_on_the_others() -> None:
    rows = [{"source": "a"}, {"source": "a"}, {"source": "b"}]
    own, other = scores(0.9, 0.9, 0.5), scores(0.2, 0.2, 0.8)
    found = validated(own, [other], rows)
    # On b alone the other is better, on a alone ours: each is scored by the wrong one.
    assert found[:, 0].tolist() == [0.2, 0.2, 0.5]
