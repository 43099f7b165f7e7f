"""CPU lists and masks, as the kernel writes them and as nobody should."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_agent.prepare import common_cpus, cpu_list, cpu_set, without_cpus
from tidemark_agent.prepare.model import cpu_mask, mask_set

CPUS = st.frozensets(st.integers(0, 300))


@given(cpus=CPUS)
def test_list_and_mask_mean_the_same_cpus(cpus: frozenset[int]) -> None:
    assert cpu_set(cpu_list(cpus)) == cpus
    assert mask_set(cpu_mask(cpus)) == cpus


@pytest.mark.parametrize(
    ("text", "cpus"), [("", set()), ("0\n", {0}), ("0-2,5", {0, 1, 2, 5}), (" 3 , 3-4 ", {3, 4}), ("7,1", {1, 7})]
)
def test_list_is_read(text: str, cpus: set[int]) -> None:
    assert cpu_set(text) == cpus


@pytest.mark.parametrize(
    ("text", "cpus"), [("1", {0}), ("ff,00000001", {0, *range(32, 40)}), ("00000000,00000003", {0, 1}), ("0", set())]
)
def test_mask_is_read(text: str, cpus: set[int]) -> None:
    assert mask_set(text) == cpus


@pytest.mark.parametrize("text", ["x", "1-", "-1", "5-3", "0,,1", "0-999999999", "99999", "1.5", "0x3"])
def test_what_is_no_list_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no list of CPUs"):
        cpu_set(text)


@pytest.mark.parametrize("text", ["", "x", "123456789", "1,,2", "f," * 9000 + "f"])
def test_what_is_no_mask_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no mask of CPUs"):
        mask_set(text)


def test_lists_are_cut_and_joined() -> None:
    assert common_cpus("0-3,8", "2-9") == "2-3,8"
    assert without_cpus("0-7", "0,4") == "1-3,5-7"
