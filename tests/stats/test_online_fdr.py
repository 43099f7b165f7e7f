import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from server.stats.online_fdr import SHARE_SCALE, Decision, Stream, _share, decide, decide_all, from_dict


def _stream(rng: np.random.Generator, length: int, share: float) -> tuple[list[float], np.ndarray]:
    """p-values of one-sided z tests, and which of them are true changes of four standard errors."""
    real = rng.random(length) < share
    return [float(p) for p in scipy_stats.norm.sf(rng.normal(np.where(real, 4.0, 0.0)))], real


def test_first_level_is_the_first_share_of_half_of_alpha() -> None:
    assert Stream(alpha=0.1).level() == pytest.approx(0.05 * SHARE_SCALE * np.log(2))


def test_all_shares_together_spend_no_more_than_the_whole_wealth() -> None:
    # The rest of the sum is bounded by an integral: of u * exp(-sqrt(u)) over u = log j.
    count = 20_000
    root = np.sqrt(np.log(count))
    rest = SHARE_SCALE * 2 * np.exp(-root) * (root**3 + 3 * root**2 + 6 * root + 6)
    assert 0.95 < sum(_share(j) for j in range(1, count + 1)) + rest <= 1


def test_discovery_raises_the_levels_that_follow() -> None:
    quiet, _ = decide_all(Stream(), [0.9] * 10)
    lucky, _ = decide_all(Stream(), [0.9] * 9 + [1e-9])
    assert lucky.level() > 5 * quiet.level()
    assert lucky.discoveries == (10,)


def test_levels_sink_while_nothing_is_found() -> None:
    _, decisions = decide_all(Stream(), [0.9] * 50)
    levels = [d.level for d in decisions[2:]]
    assert all(later < earlier for earlier, later in pairwise(levels))


def test_it_does_not_matter_how_the_stream_is_cut_into_batches() -> None:
    p_values, _ = _stream(np.random.default_rng(3), 300, 0.1)
    whole, decisions = decide_all(Stream(), p_values)
    parts, state = [], Stream()
    for start in range(0, 300, 7):
        state, some = decide_all(state, p_values[start : start + 7])
        state = from_dict(json.loads(json.dumps(state.as_dict())))
        parts += some
    assert parts == decisions
    assert state == whole


def test_share_of_false_discoveries_stays_below_alpha_while_most_changes_are_found() -> None:
    rng = np.random.default_rng(11)
    false_share, power = [], []
    for _ in range(100):
        p_values, real = _stream(rng, 300, 0.1)
        _, decisions = decide_all(Stream(alpha=0.1), p_values)
        found = np.array([d.discovery for d in decisions])
        false_share.append((found & ~real).sum() / max(found.sum(), 1))
        power.append((found & real).sum() / max(real.sum(), 1))
    assert np.mean(false_share) < 0.1
    assert np.mean(power) > 0.6


def test_stream_without_changes_rarely_reports_one() -> None:
    rng = np.random.default_rng(12)
    alarmed = [bool(decide_all(Stream(), rng.random(200).tolist())[0].discoveries) for _ in range(400)]
    assert np.mean(alarmed) < 0.05


def test_certain_change_is_a_discovery_at_any_time() -> None:
    stream, _ = decide_all(Stream(), [1.0] * 1000)
    _, decision = decide(stream, 0.0)
    assert isinstance(decision, Decision)
    assert decision.discovery


def test_levels_after_two_discoveries_are_those_of_the_formula() -> None:
    shares = {j: SHARE_SCALE * math.log(max(j, 2)) / (j * math.exp(math.sqrt(math.log(j)))) for j in (4, 6, 10)}
    stream = Stream(alpha=0.1, seen=9, discoveries=(4, 6))
    assert stream.level() == pytest.approx(0.05 * shares[10] + 0.05 * shares[6] + 0.1 * shares[4], rel=1e-12)


def test_ten_thousand_tests_with_a_thousand_discoveries_take_no_more_than_a_moment() -> None:
    after, decisions = decide_all(Stream(), [0.0 if i % 10 == 0 else 0.9 for i in range(10_000)])
    assert (after.seen, len(after.discoveries), len(decisions)) == (10_000, 1000, 10_000)


@pytest.mark.parametrize("wrong", [float("nan"), -0.1, 1.1])
def test_what_is_no_p_value_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="p-value"):
        decide(Stream(), wrong)


@pytest.mark.parametrize("alpha", [0.0, 1.0, float("nan")])
def test_level_outside_zero_and_one_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha"):
        Stream(alpha=alpha)


@pytest.mark.parametrize("discoveries", [[2, 1], [0], [4], [1, 1]])
def test_stored_stream_that_cannot_be_is_refused(discoveries: list[int]) -> None:
    with pytest.raises(ValueError, match="discoveries"):
        from_dict({"alpha": 0.05, "seen": 3, "discoveries": discoveries})


@pytest.mark.parametrize(
    "wrong",
    [
        {"seen": 3.7},
        {"seen": "3"},
        {"seen": True},
        {"seen": -1},
        {"discoveries": [1.9]},
        {"discoveries": "12"},
        {"alpha": "0.05"},
        {"alpha": True},
        {"alpha": float("inf")},
    ],
)
def test_stored_stream_of_other_types_is_refused(wrong: dict[str, Any]) -> None:
    stored = {"alpha": 0.05, "seen": 3, "discoveries": [1]} | wrong
    with pytest.raises(ValueError, match=next(iter(wrong))):
        from_dict(stored)
