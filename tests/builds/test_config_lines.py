import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.builds.models import MOST_CHARACTERS, Part, as_line, merged, overruled, read_lines

SYMBOLS = st.sampled_from(["CONFIG_A", "CONFIG_B", "CONFIG_NR_CPUS"])
VALUES = st.sampled_from(["y", "m", "n", "64", '"-x"'])
TEXTS = st.dictionaries(SYMBOLS, VALUES).map(
    lambda values: "".join(f"{as_line(symbol, value)}\n" for symbol, value in values.items())
)


def test_lines_comments_and_unset_symbols_are_read() -> None:
    text = '# words\n\nCONFIG_A=y\n# CONFIG_B is not set\n  CONFIG_C="a b"\nCONFIG_D=n\n'
    assert read_lines(text) == {"CONFIG_A": "y", "CONFIG_B": "n", "CONFIG_C": '"a b"', "CONFIG_D": "n"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CONFIG_A=y\nA=y\n", "line 2 is no CONFIG_ line: A=y"),
        ("CONFIG_A=\n", "line 1"),
        ("CONFIG_A-B=y", "line 1"),
        ("#" * (MOST_CHARACTERS + 1), "characters"),
    ],
)
def test_line_that_says_nothing_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_lines(text)


def test_later_part_counts_and_is_told() -> None:
    parts = [Part("lab", "CONFIG_A=y\nCONFIG_B=y\n"), Part("own", "# CONFIG_A is not set\n")]
    assert merged(parts) == "CONFIG_B=y\n# CONFIG_A is not set\n"
    assert [str(found) for found in overruled(parts)] == ["CONFIG_A: lab sets it to y, own sets it to n, which counts"]


def test_symbol_that_one_text_sets_twice_has_its_later_value_and_is_told() -> None:
    text = "CONFIG_A=y\nCONFIG_A=y\n# CONFIG_A is not set\n"
    assert read_lines(text) == {"CONFIG_A": "n"}
    assert [str(found) for found in overruled([Part("own", text)])] == [
        "CONFIG_A: own sets it to y, own sets it to n, which counts"
    ]


def test_single_part_stays_as_it_is_written() -> None:
    text = "# why\nCONFIG_A=y\n\n"
    assert merged([Part("own", text)]) == text


@given(st.lists(TEXTS, min_size=2, max_size=4))
def test_merged_text_says_what_the_last_part_that_speaks_says(texts: list[str]) -> None:
    parts = [Part(str(number), text) for number, text in enumerate(texts)]
    expected: dict[str, str] = {}
    for text in texts:
        expected |= read_lines(text)
    assert read_lines(merged(parts)) == expected
    changed = {found.symbol for found in overruled(parts)}
    assert changed == {s for s in expected if len({read_lines(t)[s] for t in texts if s in read_lines(t)}) > 1}
