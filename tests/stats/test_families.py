import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from server.stats import Arm, CellComparison, StatisticalVerdict, benjamini_hochberg, judge_family


def _comparison(p_value: float | None, verdict: StatisticalVerdict = StatisticalVerdict.REGRESSED) -> CellComparison:
    return CellComparison(verdict=verdict, reason="", flags=(), base=Arm(4), patched=Arm(4), p_value=p_value)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_adjusted_values_are_those_of_scipy(p_values: list[float]) -> None:
    expected = scipy_stats.false_discovery_control(p_values)
    assert benjamini_hochberg(p_values).tolist() == pytest.approx(expected.tolist())


def test_empty_family_has_no_adjusted_values() -> None:
    assert benjamini_hochberg([]).tolist() == []


@pytest.mark.parametrize("wrong", [math.nan, -0.1, 1.1])
def test_what_is_no_p_value_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        benjamini_hochberg([0.5, wrong])


def test_change_that_does_not_survive_its_family_is_inconclusive_and_says_so() -> None:
    judged = judge_family([_comparison(0.04), *[_comparison(0.5, StatisticalVerdict.INCONCLUSIVE) for _ in range(19)]])
    assert judged[0].verdict == StatisticalVerdict.INCONCLUSIVE
    assert "regressed on its own" in judged[0].reason
    assert "20 cells" in judged[0].reason
    assert judged[0].family_size == 20


def test_strong_change_survives_its_family() -> None:
    judged = judge_family([_comparison(1e-6), *[_comparison(0.5, StatisticalVerdict.INCONCLUSIVE) for _ in range(19)]])
    assert judged[0].verdict == StatisticalVerdict.REGRESSED
    assert judged[0].p_adjusted == pytest.approx(2e-5)


def test_cell_that_could_not_be_tested_does_not_make_the_family_larger() -> None:
    judged = judge_family([_comparison(0.04), _comparison(None, StatisticalVerdict.INCONCLUSIVE)])
    assert [c.family_size for c in judged] == [1, 1]
    assert (judged[0].verdict, judged[1].p_adjusted) == (StatisticalVerdict.REGRESSED, None)


def test_unchanged_cell_keeps_its_verdict_whatever_its_p_value() -> None:
    assert judge_family([_comparison(0.9, StatisticalVerdict.UNCHANGED)])[0].verdict == StatisticalVerdict.UNCHANGED


def test_of_several_families_each_has_its_share_of_false_discoveries() -> None:
    alone = judge_family([_comparison(0.02), _comparison(0.5, StatisticalVerdict.INCONCLUSIVE)])
    one_of_three = judge_family([_comparison(0.02), _comparison(0.5, StatisticalVerdict.INCONCLUSIVE)], families=3)
    assert [c.p_adjusted for c in alone] == pytest.approx([0.04, 0.5])
    assert [c.p_adjusted for c in one_of_three] == pytest.approx([0.12, 1.0])
    assert [c.verdict for c in (alone[0], one_of_three[0])] == [
        StatisticalVerdict.REGRESSED,
        StatisticalVerdict.INCONCLUSIVE,
    ]
    assert one_of_three[0].family_size == 6
    assert "among 6 cells" in one_of_three[0].reason


def test_there_is_no_family_of_none() -> None:
    with pytest.raises(ValueError, match="at least one"):
        judge_family([], families=0)
