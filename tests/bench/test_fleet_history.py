"""A short history of a small fleet: found where it happened, and nothing else told."""

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from bench.history.run import score
from demo.lab.history.branch import play
from demo.lab.history.truth import Kernel, Levels, Truth, make_truth

SEED = 1


def small(seed: int = SEED) -> Truth:
    return make_truth(seed, revisions=48, machines=3, changes=1, maintenance=1, benchmarks=2)


def test_same_seed_gives_the_same_history() -> None:
    assert small() == small()
    assert small() != small(SEED + 1)


def test_boot_measures_the_same_whenever_it_is_asked_and_another_one_does_not() -> None:
    levels = Levels(small(), SEED)

    def boot(position: int) -> list[list[float]]:
        values = levels.values(machine=1, kernel=Kernel(20), now=30, session="head:1", position=position)
        return [list(map(float, row)) for row in values]

    assert boot(0) == boot(0)
    assert boot(0) != boot(1)


def test_change_that_is_taken_back_leaves_the_level_of_before() -> None:
    truth = small()
    change, levels = truth.changes[0], Levels(small(), SEED)
    (uarch, case), effect = next(iter(change.effects.items()))
    machine = next(number for number in range(3) if levels.uarch(number) == uarch)

    def level(kernel: Kernel) -> float:
        values = levels.values(machine=machine, kernel=kernel, now=0, session="x", position=0)[case].mean()
        return float(values)

    moved = abs(level(Kernel(change.place)) / level(Kernel(change.place, frozenset({change.place}))) - 1)
    assert moved > 0.5 * abs(effect)


def test_revision_without_code_has_the_text_of_the_one_before() -> None:
    truth = make_truth(SEED, revisions=100, machines=3, changes=1, maintenance=0)
    place = min(truth.idle - {0})
    levels = Levels(truth, SEED)
    assert levels.text(Kernel(place)) == levels.text(Kernel(place - 1))
    assert levels.text(Kernel(place, frozenset({place}))) == levels.text(Kernel(place))


@pytest.mark.real(minutes=1)
@pytest.mark.django_db(transaction=True)
def test_change_is_found_where_it_happened_and_maintenance_is_not_told(settings: Settings, tmp_path: Path) -> None:
    settings.NOISE_HOURS = 0
    settings.STATE_DIR = tmp_path
    truth = small()
    played = play(truth, SEED, lambda _line: None)
    scored = score(truth, played.branch, played.places)
    assert played.failed == 0
    assert list(scored.found) == [truth.changes[0].place]
    assert not scored.false
