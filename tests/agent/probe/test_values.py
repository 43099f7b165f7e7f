"""CPU lists, numbers and texts as the kernel writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_agent.probe.facts import rounded_kb
from tidemark_agent.probe.tree import as_cpus, as_number, clean, cpu_list


@pytest.mark.parametrize(
    ("told", "cpus"),
    [
        ("0-3,8", {0, 1, 2, 3, 8}),
        ("5", {5}),
        ("\n", set()),
        ("3-1", set()),
        ("0-1,x", set()),
        ("-1", set()),
        ("9000", set()),
        ("²", set()),
    ],
)
def test_cpu_lists_are_read_or_refused_whole(told: str, cpus: set[int]) -> None:
    assert as_cpus(told) == cpus


@given(st.sets(st.integers(0, 8191), max_size=50))
def test_cpu_lists_are_written_as_they_are_read(cpus: set[int]) -> None:
    assert as_cpus(cpu_list(cpus)) == cpus


def test_endless_ranges_end_at_the_last_cpu_that_a_kernel_knows() -> None:
    assert len(as_cpus("0-999999")) == 8192


@pytest.mark.parametrize("told", ["", "-1", "1.5", "0x10", "٣", "9" * 21])
def test_what_is_no_number_is_none(told: str) -> None:
    assert as_number(told) is None


def test_texts_have_one_line_without_control_characters() -> None:
    assert clean(" a\0b\x1b[31m\r\nc \n") == "a b [31m c"
    assert len(clean("x" * 100_000)) == 4096


@pytest.mark.parametrize(
    ("told", "rounded"),
    [(503_904, 524_288), (32_803_264, 33_554_432), (263_700_000, 268_435_456), (791_000_000, 805_306_368), (0, 0)],
)
def test_what_a_kernel_leaves_of_its_memory_is_rounded_to_what_the_dimms_have(told: int, rounded: int) -> None:
    assert rounded_kb(told) == rounded
