"""The noise profile of a cell."""

import pytest

from server.core.reasons import Because
from server.detection.models import NoiseProfile, Verdict
from server.detection.noise.profiles import refresh_profiles
from server.detection.recompute.differences import noise_differences
from server.detection.trials.effects import KEPT_CHANGES, REMEMBERED, Change, recent
from server.lab.models import Machine, Session
from tests.builders import EPOCH, build_build, build_comparison, build_machine, build_series, build_session
from tests.detection.noise.shown import NIGHT, equal_session, show, shown_trial

pytestmark = pytest.mark.django_db


def profile_of(machine: Machine) -> NoiseProfile:
    assert refresh_profiles(machine) == 1
    return NoiseProfile.objects.get(machine=machine)


def test_a_profile_counts_comparisons_false_alarms_and_small_p_values() -> None:
    machine = build_machine()
    shown_trial(machine, {"copy": 0.002}, night=1)
    shown_trial(machine, {"copy": -0.004}, night=2, p_value=0.03, mde=0.02)
    shown_trial(machine, {"copy": 0.03}, night=3, p_value=0.001, verdict=Verdict.REGRESSED, mde=0.016)
    row = profile_of(machine)
    assert (row.comparisons, row.false_alarms, row.rejections) == (3, 1, 2)
    assert row.changes == pytest.approx([0.002, -0.004, 0.03])
    assert row.mde == 0.016
    assert row.last_at == EPOCH + 3 * NIGHT


def test_the_deviation_between_boots_is_that_of_both_kernels() -> None:
    machine = build_machine()
    shown_trial(machine, {"copy": 0.0}, base_mean=100.0, base_sd=3.0, patched_mean=200.0, patched_sd=8.0)
    assert profile_of(machine).boot_sd == pytest.approx(((0.03**2 + 0.04**2) / 2) ** 0.5)


def test_sessions_of_one_build_count_and_not_those_whose_author_says_that_his_kernel_is_the_same() -> None:
    machine, series = build_machine(), build_series()
    base, patched = (build_build(kernel_hash="a" * 64) for _ in range(2))
    equal = build_session(series, machine, state=Session.State.DONE, base_build=base, patched_build=base)
    show(equal, {"copy": 0.02}, at=EPOCH, verdict=Verdict.INCONCLUSIVE, reason_code=Because.SAME_IMAGE)
    said = build_session(build_series(), machine, state=Session.State.DONE, base_build=base, patched_build=patched)
    build_comparison(said, Verdict.REGRESSED)
    row = profile_of(machine)
    assert (row.comparisons, row.false_alarms) == (1, 1)


def test_what_was_measured_while_the_machine_was_rebuilt_is_not_its_noise() -> None:
    machine = build_machine()
    shown_trial(machine, {"copy": 0.5}, verdict=Verdict.INCONCLUSIVE, reason_code=Because.OTHER_MACHINE)
    assert refresh_profiles(machine) == 0


def test_health_sessions_are_no_history() -> None:
    machine = build_machine()
    session = equal_session(machine, build_build(), purpose=Session.Purpose.HEALTH)
    show(session, {"copy": 0.5}, at=EPOCH)
    assert refresh_profiles(machine) == 0


def test_only_the_last_changes_of_the_last_year_tell_how_noisy_a_cell_is() -> None:
    changes = [Change(log=number, at=EPOCH + number * NIGHT / 2) for number in range(1000)]
    now = EPOCH + 500 * NIGHT
    assert recent(changes, before=now) == list(range(1000 - KEPT_CHANGES, 1000))
    assert recent(changes, before=EPOCH + 600 * NIGHT)[0] == 800
    assert recent(changes[:400], before=EPOCH + 500 * NIGHT) == list(range(270, 400))


def test_refreshing_twice_changes_nothing_and_new_trials_are_added() -> None:
    machine = build_machine()
    shown_trial(machine, {"copy": 0.002}, night=1)
    first = profile_of(machine)
    assert profile_of(machine).pk == first.pk
    shown_trial(machine, {"copy": 0.003}, night=2)
    again = profile_of(machine)
    assert (again.pk, again.comparisons) == (first.pk, 2)


def test_a_profile_that_does_not_follow_from_its_comparisons_is_told() -> None:
    machine = build_machine()
    shown_trial(machine, {"copy": 0.002}, night=1)
    profile_of(machine)
    # What came after the profile was made is no difference: it is taken up with the next trial.
    shown_trial(machine, {"copy": 0.5}, night=2)
    assert list(noise_differences(machine)) == []
    NoiseProfile.objects.update(false_alarms=7)
    assert [str(found) for found in noise_differences(machine)] == [
        "noise of vm-haswell, time of mm-basic/copy (all): false_alarms is 7, now 0"
    ]


def test_sessions_of_years_ago_are_not_read_for_a_profile() -> None:
    machine = build_machine()
    shown_trial(machine, {"copy": 0.01}, night=1)
    assert refresh_profiles(machine) == 1
    Session.objects.update(created_at=EPOCH - 3 * REMEMBERED)
    assert refresh_profiles(machine) == 0
    # What was known of the cell stays.
    assert NoiseProfile.objects.get(machine=machine).comparisons == 1
