"""Idle machines get their A/A trials."""

import pytest
from pytest_django.fixtures import Settings

from server.builds.models import Build
from server.core.errors import DomainError
from server.detection.models import Comparison, NoiseProfile, Verdict
from server.detection.noise import nights
from server.detection.noise.nights import tend_noise
from server.detection.on_trial_over import answer_trial
from server.detection.recompute.differences import noise_differences
from server.detection.trials.look import look_at_trial
from server.lab.hosts.health import health_kernel
from server.lab.hosts.state import change_health
from server.lab.models import Boot, Machine, Session, Trial
from server.lab.trials.life import plan_trial
from tests.builders import build_build, build_case, build_machine, build_revision, build_tree
from tests.detection.measured import SLOWER, STEADY, visit
from tests.detection.noise.shown import shown_trial

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nightly(settings: Settings) -> None:
    settings.NOISE_HOURS = 24.0
    settings.NOISE_BOOTS = 3


def trusted_kernel(machine: Machine) -> Build:
    kernel = build_build(build_revision(build_tree()), kernel_hash="c" * 64)
    machine.health_build = kernel
    machine.save()
    return kernel


def test_an_idle_machine_boots_the_kernel_of_its_health_sessions_on_both_sides() -> None:
    machine, case = build_machine(), build_case("copy")
    kernel = trusted_kernel(machine)
    tend_noise()
    trial = Trial.objects.get()
    assert (trial.key, trial.purpose, trial.looks) == (f"noise:{machine.pk}:1", Trial.Purpose.NOISE, [3])
    assert (trial.base, trial.patched, list(trial.machines.all())) == (kernel.revision, kernel.revision, [machine])
    assert trial.benchmarks == [str(case)]
    (session,) = plan_trial(trial_id=trial.pk)
    assert (session.state, session.base_build, session.patched_build) == (Session.State.PLANNED, kernel, kernel)
    assert session.boots.filter(arm=Boot.Arm.BASE).count() == session.boots.filter(arm=Boot.Arm.PATCHED).count() == 3
    assert session.priority < -100


def test_tending_again_asks_for_nothing_more() -> None:
    build_case("copy")
    trusted_kernel(build_machine())
    tend_noise()
    tend_noise()
    assert Trial.objects.count() == 1


def test_a_machine_without_a_kernel_waits_and_others_do_not() -> None:
    build_case("copy")
    build_machine("kernelless")
    trusted_kernel(build_machine("ready"))
    tend_noise()
    assert [machine.name for machine in Trial.objects.get().machines.all()] == ["ready"]


def test_trouble_with_one_machine_leaves_the_others_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    build_case("copy")
    trusted_kernel(build_machine("well"))
    trusted_kernel(build_machine("bad"))
    real = health_kernel

    def troubled(machine: Machine) -> Build | None:
        if machine.name == "bad":
            raise DomainError("odd", "no such luck")
        return real(machine)

    monkeypatch.setattr(nights, "health_kernel", troubled)
    tend_noise()
    assert [machine.name for machine in Trial.objects.get().machines.all()] == ["well"]


def test_what_other_sessions_showed_is_taken_up_before_the_next_trial(settings: Settings) -> None:
    settings.NOISE_HOURS = 1e-9
    build_case("copy")
    machine = build_machine()
    trusted_kernel(machine)
    shown_trial(machine, {"copy": 0.002})
    tend_noise()
    assert NoiseProfile.objects.get().comparisons == 1
    assert Trial.objects.count() == 2


def test_an_idle_machine_s_trial_ends_as_the_noise_of_its_cells(settings: Settings) -> None:
    settings.NOISE_BOOTS = 4
    machine, case = build_machine(), build_case("copy")
    trusted_kernel(machine)
    tend_noise()
    trial = Trial.objects.get()
    (session,) = plan_trial(trial_id=trial.pk)
    visit(session, {case.name: STEADY}, spread=0.004)
    assert look_at_trial(trial_id=trial.pk)
    assert answer_trial(trial_id=trial.pk)
    row = NoiseProfile.objects.get()
    assert (row.machine, row.case, row.comparisons, row.false_alarms) == (machine, case, 1, 0)
    assert row.boot_sd == pytest.approx(0.0046, abs=0.0005)
    assert list(noise_differences(machine)) == []


def test_equal_kernels_that_are_called_different_are_a_false_alarm(settings: Settings) -> None:
    settings.NOISE_BOOTS = 4
    machine, case = build_machine(), build_case("copy")
    trusted_kernel(machine)
    tend_noise()
    trial = Trial.objects.get()
    (session,) = plan_trial(trial_id=trial.pk)
    visit(session, {case.name: SLOWER}, spread=0.004)
    look_at_trial(trial_id=trial.pk)
    answer_trial(trial_id=trial.pk)
    row = NoiseProfile.objects.get()
    assert (row.comparisons, row.false_alarms, row.rejections) == (1, 1, 1)


def test_a_machine_that_is_held_in_quarantine_is_measured_and_believed(settings: Settings) -> None:
    settings.NOISE_BOOTS = 4
    machine, case = build_machine(), build_case("copy")
    trusted_kernel(machine)
    change_health(machine, Machine.Health.QUARANTINED, "it drifts", hold="lifted by two quiet nights")
    tend_noise()
    trial = Trial.objects.get()
    (session,) = plan_trial(trial_id=trial.pk)
    visit(session, {case.name: STEADY}, spread=0.004)
    assert look_at_trial(trial_id=trial.pk)
    assert answer_trial(trial_id=trial.pk)
    row = Comparison.objects.get()
    assert (row.session, row.verdict) == (session, Verdict.UNCHANGED)
    assert NoiseProfile.objects.get().comparisons == 1
