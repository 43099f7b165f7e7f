"""A machine that is not what it was in the boot before says so, once."""

import pytest

from server.core.models import Transition
from server.lab.attempts.boots import note_machine
from server.lab.hosts.probes import HardwareChange, latest_changes
from server.lab.models import Machine
from tests.builders import build_machine

pytestmark = pytest.mark.django_db

FACTS: dict[str, object] = {
    "uarch": "haswell",
    "microcode": "0x27",
    "memory_kb": 16_000_000,
    "firmware": {"vendor": "Dell Inc.", "version": "2.4.4"},
    "fingerprint": "1-aaaa",
    "fingerprint_parts": {"cpu": "1", "memory": "2", "firmware": "3", "board": "4"},
}
UPDATED: dict[str, object] = {
    **FACTS,
    "microcode": "0x28",
    "firmware": {"vendor": "Dell Inc.", "version": "2.5.0"},
    "fingerprint": "1-bbbb",
    "fingerprint_parts": {"cpu": "1", "memory": "2", "firmware": "5", "board": "4"},
}


def told_changes(machine: Machine, *, limit: int) -> tuple[HardwareChange, ...]:
    return tuple(HardwareChange(*row) for row in latest_changes(machine, limit=limit))


def seen_by_boots(*boots: object) -> Machine:
    machine = build_machine()
    for facts in boots:
        assert isinstance(facts, dict)
        note_machine(machine=machine, facts=facts, trace="b1946ac92492d234")
    return machine


def test_new_firmware_is_noted_with_what_is_new() -> None:
    machine = seen_by_boots(FACTS, UPDATED, UPDATED)
    (change,) = told_changes(machine, limit=5)
    assert change.reason == "firmware: microcode 0x27 -> 0x28, version 2.4.4 -> 2.5.0"
    row = Transition.objects.get(subject="machine", subject_id=machine.pk)
    assert (row.before, row.after, row.trace) == ("1-aaaa", "1-bbbb", "b1946ac92492d234")
    assert Machine.objects.get().health == Machine.Health.GOOD


def test_changes_are_told_newest_first() -> None:
    machine = seen_by_boots(FACTS, UPDATED, FACTS)
    assert [change.reason for change in told_changes(machine, limit=1)] == [
        "firmware: microcode 0x28 -> 0x27, version 2.5.0 -> 2.4.4"
    ]
    assert len(told_changes(machine, limit=5)) == 2


def test_a_part_whose_facts_tell_nothing_is_named() -> None:
    moved = {**FACTS, "fingerprint": "1-cccc", "fingerprint_parts": {"cpu": "9", "memory": "2"}}
    (change,) = told_changes(seen_by_boots(FACTS, moved), limit=5)
    assert change.reason == "cpu; firmware; board"


@pytest.mark.parametrize(
    "other",
    [
        {},
        {**FACTS, "memory_kb": 15_999_000, "kernel_release": "7.3.4"},
        {**FACTS, "fingerprint": "2-bbbb"},
        {**FACTS, "fingerprint": ""},
        {**FACTS, "fingerprint": ["1-bbbb"]},
        {"uarch": "haswell"},
    ],
)
def test_boots_that_cannot_be_compared_or_are_alike_note_nothing(other: dict[str, object]) -> None:
    assert told_changes(seen_by_boots(FACTS, other), limit=5) == ()
    assert told_changes(build_machine("bench-2"), limit=5) == ()


def test_facts_of_any_shape_are_noted_without_harm() -> None:
    odd = {**UPDATED, "firmware": "x" * 10_000, "microcode": {"a": [1]}, "fingerprint": "1-" + "f" * 1000}
    (change,) = told_changes(seen_by_boots(FACTS, odd), limit=5)
    assert change.reason.startswith("firmware: ")
    assert len(change.reason) < 1000
