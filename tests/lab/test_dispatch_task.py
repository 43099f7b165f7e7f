"""The task that makes rounds: one at a time, and as many as there is something left for, within bounds."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from workers import lab

pytestmark = pytest.mark.django_db


class Rounds:
    def __init__(self, left_over: list[bool]) -> None:
        self.made, self.left_over = 0, left_over

    def run(self) -> bool:
        self.made += 1
        return self.left_over.pop(0)


def dispatch(monkeypatch: pytest.MonkeyPatch, left_over: list[bool]) -> tuple[Rounds, list[str]]:
    rounds = Rounds(left_over)
    sent: list[str] = []
    monkeypatch.setattr(lab, "run_round", rounds.run)
    monkeypatch.setattr(lab, "enqueue", sent.append)
    monkeypatch.setattr(lab, "_BETWEEN_ROUNDS_SECONDS", 0.0)
    lab.dispatch()
    return rounds, sent


def test_rounds_go_on_until_nothing_is_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, sent = dispatch(monkeypatch, [True, True, False, True])
    assert (rounds.made, sent) == (3, [])


def test_task_ends_after_a_few_rounds_and_asks_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, sent = dispatch(monkeypatch, [True] * 9)
    assert (rounds.made, sent) == (5, ["lab.dispatch"])


def test_second_dispatcher_makes_no_round_beside_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def taken(_name: str) -> Iterator[bool]:
        yield False

    monkeypatch.setattr(lab, "advisory_lock", taken)
    rounds, sent = dispatch(monkeypatch, [])
    assert (rounds.made, sent) == (0, [])
