"""Machines that measure a known kernel otherwise than before."""

from collections.abc import Mapping

import pytest

from server.builds.models import Build
from server.detection.models import MachineQuestion
from server.detection.noise.questions import base_drift
from server.lab.models import Boot, Machine, Session, Trial
from server.results.models import PackedValues
from tests.builders import (
    build_build,
    build_case,
    build_machine,
    build_metric,
    build_revision,
    build_series,
    build_trial,
    build_trial_session,
    build_version,
    packed,
)

pytestmark = pytest.mark.django_db

USUAL = {"copy": 1000.0, "clear": 2000.0, "fault": 3000.0, "fork": 4000.0}
TEXT = "b" * 64


def measured(machine: Machine, levels: Mapping[str, float], base: Build | None = None) -> Trial:
    """A trial whose session on the machine is done; its base kernel gave these values, the patched one half of them."""
    base = base or build_build(build_revision(), kernel_hash=TEXT)
    trial = build_trial(base.revision, machines=[machine])
    session = build_trial_session(trial, machine, state=Session.State.DONE, base_build=base)
    metric, core_type = build_metric(), machine.core_types.get()
    cases = [(build_case(name), level) for name, level in levels.items()]
    version = build_version(cases[0][0])
    same = {"metric": metric, "core_type": core_type, "version": version}
    PackedValues.objects.bulk_create(
        packed(case, _values(boot, level), case.warmup, boot=boot, **same)
        for boot in session.boots.all()
        for case, level in cases
    )
    return trial


def _values(boot: Boot, level: float) -> list[float]:
    """Warm-up, then two runs; half of the boots of each kernel are 0.2 % above the others."""
    of_arm = level if boot.arm == Boot.Arm.BASE else level / 2
    return [3 * of_arm, *[of_arm * (1 + 0.002 * (boot.position // 2 % 2))] * 2]


def moved(*cases: str) -> dict[str, float]:
    return {case: level * (1.1 if case in cases else 1.0) for case, level in USUAL.items()}


def test_most_cells_moved_is_a_question_and_a_failed_check() -> None:
    machine = build_machine()
    first = measured(machine, USUAL)
    trial = measured(machine, moved("copy", "clear", "fault"))
    ((found, text),) = base_drift(trial)
    assert found == machine
    assert f"than in session {first.sessions.get().pk}: 3 of 4 cells moved" in text
    assert "time of copy (10 % slower)" in text
    question = MachineQuestion.objects.get()
    assert (question.kind, question.machine, question.detail) == ("base", machine, text)
    assert base_drift(trial) == [(machine, text)]
    assert MachineQuestion.objects.count() == 1


def test_half_of_the_cells_may_have_reasons_of_their_own() -> None:
    machine = build_machine()
    measured(machine, USUAL)
    assert base_drift(measured(machine, moved("copy", "clear"))) == []
    assert not MachineQuestion.objects.exists()


def test_the_newest_time_before_is_what_counts() -> None:
    machine = build_machine()
    measured(machine, USUAL)
    measured(machine, moved(*USUAL))
    assert base_drift(measured(machine, moved(*USUAL))) == []


def test_another_kernel_is_not_compared() -> None:
    machine = build_machine()
    measured(machine, USUAL, base=build_build(kernel_hash="d" * 64))
    assert base_drift(measured(machine, moved(*USUAL))) == []


def test_kernels_without_a_text_hash_are_known_by_their_build_alone() -> None:
    machine, kernel = build_machine(), build_build()
    measured(machine, USUAL, base=build_build())
    measured(machine, USUAL, base=kernel)
    assert len(base_drift(measured(machine, moved(*USUAL), base=kernel))) == 1


def test_patch_whose_kernel_passes_for_a_known_one_moves_no_level() -> None:
    machine, known = build_machine(), build_build(build_revision(), kernel_hash=TEXT)
    posing = build_build(build_revision(foreign=True), kernel_hash=TEXT)
    measured(machine, USUAL, base=known)
    measured(machine, moved(*USUAL), base=posing)
    build_series(base=known.revision, head=posing.revision)
    assert base_drift(measured(machine, USUAL, base=known)) == []
    assert base_drift(measured(machine, moved(*USUAL), base=posing)) == []
    assert base_drift(measured(machine, USUAL, base=posing)) == [], "slow on one day and not on the other"


def test_another_machine_s_level_says_nothing() -> None:
    measured(build_machine("one"), USUAL)
    assert base_drift(measured(build_machine("two"), moved(*USUAL))) == []


def test_another_version_of_the_benchmark_is_another_program() -> None:
    machine = build_machine()
    measured(machine, USUAL)
    trial = measured(machine, moved(*USUAL))
    PackedValues.objects.filter(boot__session__trial=trial).update(version=build_version(build_case(), "2"))
    assert base_drift(trial) == []


def test_two_cells_are_too_few() -> None:
    machine = build_machine()
    measured(machine, {"copy": 1000.0, "clear": 2000.0})
    assert base_drift(measured(machine, {"copy": 1500.0, "clear": 3000.0})) == []
