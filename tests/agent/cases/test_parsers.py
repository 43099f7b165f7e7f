"""Parsers give a value that was printed whole, or none."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.cases.outputs import KNOWN, PERF, USEMEM, WILL_IT_SCALE, recorded

PRINTK = "[    1.433686] tsc: Refined TSC clocksource calibration: 2300.000 MHz"
NAMES = st.sampled_from(sorted(KNOWN))


def parsed(name: str, text: str) -> list[tuple[str, float]] | None:
    """What the parser gives; None where it refuses."""
    parse, case, _, _ = KNOWN[name]
    try:
        return list(parse(text, case))
    except ValueError:
        return None


@pytest.mark.parametrize("name", KNOWN)
def test_whole_output_gives_its_values(name: str) -> None:
    _, _, text, values = KNOWN[name]
    assert parsed(name, text) == values


@pytest.mark.parametrize("name", KNOWN)
def test_output_cut_at_any_byte_gives_nothing_or_all(name: str) -> None:
    _, _, text, values = KNOWN[name]
    given_at = [cut for cut in range(len(text)) if parsed(name, text[:cut]) is not None]
    assert all(parsed(name, text[:cut]) == values for cut in given_at)
    # Only usemem goes on after the last value: a line about freeing, which is not judged, but must be whole.
    assert name == "usemem" or given_at == []


@pytest.mark.parametrize("name", KNOWN)
def test_kernel_message_at_any_place_gives_nothing_or_all(name: str) -> None:
    _, _, text, values = KNOWN[name]
    for at in range(len(text) + 1):
        for message in (PRINTK, f"{PRINTK}\n", f"\n{PRINTK}\n"):
            assert parsed(name, text[:at] + message + text[at:]) in (None, values)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("text", ["", "\n", "nan\n", "0\n", "Segmentation fault\n", "{}\n" * 1000, "9" * 100_000])
def test_anything_else_gives_nothing(name: str, text: str) -> None:
    assert parsed(name, text) is None


@pytest.mark.parametrize("name", KNOWN)
def test_decimal_commas_thousands_and_other_digits_are_not_read(name: str) -> None:
    _, _, text, _ = KNOWN[name]
    assert (
        parsed(name, text.replace(".944778", ",944778").replace(":301", ":3,01").replace("1549135", "1.549.135"))
        is None
    )
    arabic = re.sub(r"\d(?=\D*$)", "\u0663", text)
    assert parsed(name, arabic) is None


@pytest.mark.parametrize("value", ["nan", "inf", "-2780101246.944778", "1e10", "2780101246", "9" * 400 + ".000000"])
def test_rate_that_perf_does_not_print_so_is_refused(value: str) -> None:
    assert parsed("perf", PERF.replace("2780101246.944778", value)) is None


def test_rate_of_another_function_is_refused() -> None:
    parse = KNOWN["perf"][0]
    with pytest.raises(ValueError, match="demand is not that of populate-4k"):
        parse(PERF, "populate-4k")
    with pytest.raises(ValueError, match="not that of memcpy-x86-64-movsq-4k"):
        parse("# function 'default' (Default)\n1.000000\n", "memcpy-x86-64-movsq-4k")


def test_two_functions_in_one_output_are_refused() -> None:
    assert parsed("perf", PERF * 2) is None


def test_average_that_is_not_that_of_its_seconds_is_refused() -> None:
    assert parsed("will-it-scale", WILL_IT_SCALE.replace("average:301", "average:30")) is None
    assert parsed("will-it-scale", WILL_IT_SCALE.replace("total:303", "total:3030")) is None
    assert parsed("will-it-scale", WILL_IT_SCALE.replace("measurement\n", "")) is None


def test_task_that_printed_nothing_or_a_wrong_rate_is_noticed() -> None:
    assert parsed("usemem", USEMEM.replace("tasks: 2", "tasks: 3")) is None
    assert parsed("usemem", USEMEM.replace("1532169", "153216")) is None
    assert parsed("usemem", USEMEM.replace("47593 usecs", "0 usecs")) is None


@given(NAMES, st.data())
def test_damaged_output_never_yields_a_value_that_was_not_printed(name: str, data: st.DataObject) -> None:
    _, _, text, values = KNOWN[name]
    at = data.draw(st.integers(0, len(text)))
    # A digit put beside another makes a number that nobody could tell from a printed one.
    other = data.draw(st.text(alphabet=st.characters(blacklist_categories=["Nd"]), max_size=30))
    assert parsed(name, text[:at] + other + text[at:]) in (None, values)
    assert parsed(name, text[:at] + other) in (None, values)


@pytest.mark.parametrize("path", recorded("perf*-simple.txt"), ids=lambda path: path.name)
def test_recorded_output_of_perf_is_read(path: Path) -> None:
    text = path.read_text()
    parse = KNOWN["perf"][0]
    blocks = re.findall(r"# function '([\w-]+)'[^\n]*\n([\d.]+)\n", text)
    assert blocks
    for function, rate in blocks:
        block = next(part for part in re.split(r"(?=# function)", text) if f"'{function}'" in part)
        assert parse(block, f"memcpy-{function}-64m") == [("rate", float(rate) / 2**20)]


@pytest.mark.parametrize("path", recorded("will-it-scale-*s.txt"), ids=lambda path: path.name)
def test_recorded_output_of_will_it_scale_is_read(path: Path) -> None:
    text = path.read_text()
    [(metric, value)] = KNOWN["will-it-scale"][0](text, "any")
    assert (metric, f"average:{value:.0f}") == ("operations", text.strip().rpartition("\n")[2])


@pytest.mark.parametrize("path", recorded("vm-scalability-*.txt"), ids=lambda path: path.name)
def test_recorded_output_of_usemem_is_read(path: Path) -> None:
    text = path.read_text()
    for block in re.split(r"^\$.*\n", text, flags=re.MULTILINE):
        rates = [int(rate) for rate in re.findall(r"= (\d+) KB/s", block)]
        if rates:
            assert KNOWN["usemem"][0](f"tasks: {len(rates)}\n{block}", "any") == [("rate", float(sum(rates)))]


@pytest.mark.parametrize("path", recorded("*.txt"), ids=lambda path: path.name)
def test_no_other_recorded_output_is_taken_for_a_value(path: Path) -> None:
    text = path.read_text(errors="replace")
    for name in KNOWN:
        if not path.name.startswith("will-it-scale-"):
            assert parsed(name, text) is None
