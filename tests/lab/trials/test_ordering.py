import pytest

from server.lab.work import balanced_order, boot_order

_LETTER = {"base": "A", "patched": "B"}


def letters(order: list[str]) -> str:
    return "".join(_LETTER[arm] for arm in order)


@pytest.mark.parametrize(
    ("base", "patched", "start", "order"),
    [
        (4, 4, 0, "ABBAABBA"),
        (2, 2, 8, "ABBA"),
        (1, 1, 6, "BA"),
        (1, 2, 8, "ABB"),
        (0, 3, 8, "BBB"),
        (2, 6, 8, "ABBBABBB"),
        (4, 3, 0, "ABABABA"),
    ],
)
def test_more_boots_go_on_balanced(base: int, patched: int, start: int, order: str) -> None:
    found = letters(balanced_order(base, patched, start))
    assert (found.count("A"), found.count("B")) == (base, patched)
    assert found == order


def test_visits_of_equal_numbers_make_the_order_of_one() -> None:
    assert boot_order(4) + balanced_order(4, 4, 8) == boot_order(8)
