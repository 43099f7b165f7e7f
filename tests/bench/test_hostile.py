from bench.mail import hostile
from bench.mail.hostile import CASES, cost


def test_every_case_is_made_in_the_size_that_is_asked_for() -> None:
    for case in CASES:
        small, large = (
            sum(map(len, case.mails(size))) for size in (max(case.size // 4000, 2), max(case.size // 2000, 4))
        )
        assert small <= large, case.name
        assert small > 0, case.name


def test_a_cost_says_what_was_made_of_the_mails() -> None:
    number = [case.name for case in CASES].index("2000-patch series")
    found = cost(CASES[number], 20)
    assert str(found["made"]).startswith("1 cover; 20 patch; 1 series")
    assert float(found["mb"]) > 0


def test_time_that_grows_with_the_square_fails() -> None:
    assert hostile.verdict(4.0, 2.0) == "pass"
    assert hostile.verdict(4.0, 1.0) == "FAIL"
    assert hostile.verdict(6.0, 5.0) == "FAIL"
    assert hostile.verdict(0.1, 0.01) == "pass"
