"""Looks at what a trial measured: more boots, or the comparisons of one family."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import DjangoCaptureOnCommitCallbacks, Settings

from server.core.errors import DomainError
from server.core.reasons import Because
from server.detection.models import Comparison
from server.detection.trials.look import look_at_trial
from server.lab.models import Boot, Machine, Session, Trial
from server.results.models import Measurement
from tests.builders import EPOCH, build_boot, build_series, build_trial, build_trial_session, forget
from tests.detection.measured import SLOWER, STEADY, measure, measured_trial, physical, play, scatter, virtual, visit

pytestmark = pytest.mark.django_db

# No look decides whether this changed by 1 %, and none can in sight of the last one.
UNCLEAR = (2168.0, 2190.0)


def boots_of(session: Session) -> dict[str, int]:
    session.refresh_from_db()
    return {arm: session.boots.filter(arm=arm).count() for arm in Boot.Arm.values}


def test_decided_cells_end_the_trial_at_the_first_look() -> None:
    machines = {physical("h1", "haswell"): {"copy": SLOWER}, physical("z1", "zen1"): {"copy": STEADY}}
    trial = measured_trial(build_series(), machines)
    assert look_at_trial(trial_id=trial.pk)
    trial.refresh_from_db()
    assert (trial.state, trial.reason) == ("done", "2 cells judged")
    assert {row.session.machine.name: row.verdict for row in Comparison.objects.all()} == {
        "h1": "regressed",
        "z1": "unchanged",
    }
    assert {row.family_size for row in Comparison.objects.all()} == {2}
    assert all(session.concluded_at and not session.cut_short for session in trial.sessions.all())


def test_a_machine_that_claims_everything_changes_nothing_on_another() -> None:
    """Among changes that it makes up, noise of an honest machine would pass for one of many discoveries."""
    honest, liar = physical("h1", "haswell"), physical("z1", "zen1")
    noise = {f"case-{number}": (2168.0, 2168.0) for number in range(40)}
    noise["case-0"] = (2168.0, 2230.0)
    answers = []
    for lies in (STEADY, SLOWER):
        machines = {honest: noise, liar: dict.fromkeys(noise, lies)}
        trial = measured_trial(None, {honest: {}, liar: {}}, looks=(4,), purpose="head")
        for session in trial.sessions.all():
            for boot in session.boots.all():
                if session.machine == honest:
                    scatter(boot, machines[honest], sd=0.016)
                else:
                    measure(boot, machines[liar])
        assert look_at_trial(trial_id=trial.pk)
        rows = Comparison.objects.filter(session__trial=trial, session__machine=honest).order_by("case__name")
        answers.append([(row.case.name, row.verdict, row.p_adjusted, row.family_size) for row in rows])
    assert answers[0] == answers[1]
    found = Comparison.objects.filter(session__machine=honest, case__name="case-0").latest("pk")
    assert found.p_value is not None
    # It would be the 41st of 80.
    assert found.p_value < 0.05 * 41 / 80
    assert found.reason.startswith("regressed on its own, but among 80 cells chance may do this")


def test_an_open_cell_gets_boots_up_to_its_next_look_on_its_own_machine_only() -> None:
    h1, z1 = physical("h1", "haswell"), physical("z1", "zen1")
    trial = measured_trial(
        build_series(), {h1: {"copy": (2168.0, 2230.0)}, z1: {"copy": STEADY}}, spread=0.01, looks=(4, 6)
    )
    forget(Measurement.objects.filter(boot__session__machine=z1))
    for boot in Boot.objects.filter(session__machine=z1):
        measure(boot, {"copy": STEADY})
    assert not look_at_trial(trial_id=trial.pk)
    one, other = trial.sessions.get(machine=h1), trial.sessions.get(machine=z1)
    assert (one.state, boots_of(one), one.concluded_at) == ("planned", {"base": 6, "patched": 6}, None)
    assert (other.state, boots_of(other)) == ("done", {"base": 4, "patched": 4})
    assert other.concluded_at is not None
    assert not Comparison.objects.exists()


def test_a_trial_is_looked_at_until_its_cells_are_decided_and_each_shows_the_boots_of_its_look() -> None:
    machine = physical("h1", "haswell")
    cases = {"copy": SLOWER, "mmap": (2168.0, 2300.0)}
    trial = play(measured_trial(None, {machine: cases}, spread=0.017, purpose="head"), {machine: cases}, spread=0.017)
    rows = {row.case.name: row for row in Comparison.objects.all()}
    assert (trial.state, {row.verdict for row in rows.values()}) == ("done", {"regressed"})
    assert 4 < rows["mmap"].base_boots == rows["mmap"].patched_boots <= 16
    assert boots_of(trial.sessions.get()) == {"base": rows["mmap"].base_boots, "patched": rows["mmap"].base_boots}
    assert {row.family_size for row in rows.values()} == {2}


def test_a_change_that_later_boots_do_not_show_is_not_claimed() -> None:
    """Of two modes the first boots of each kernel took one by chance."""
    trial = build_trial(state=Trial.State.MEASURING, looks=[4, 6])
    session = build_trial_session(trial, physical("h1", "haswell"), state=Session.State.DONE)
    for position, arm in enumerate(["base", "patched", "patched", "base"], 8):
        build_boot(session, position, arm, measured=True)
    for boot in session.boots.all():
        slow = (boot.arm == Boot.Arm.PATCHED) == (boot.position < 8)
        level = (1050.0 if slow else 1000.0) + boot.position / 10
        measure(boot, {"copy": (level, level)})
    assert look_at_trial(trial_id=trial.pk)
    row = Comparison.objects.get()
    assert (row.verdict, row.base_boots) == ("inconclusive", 6)
    assert row.reason.startswith("regressed at 4 boots a side, no longer at 6: the interval ")


def test_a_fixed_number_of_boots_is_never_extended() -> None:
    trial = measured_trial(
        None, {physical("h1", "haswell"): {"copy": UNCLEAR}}, spread=0.05, looks=(3,), purpose="head"
    )
    assert look_at_trial(trial_id=trial.pk)
    session = trial.sessions.get()
    row = Comparison.objects.get()
    assert (boots_of(session), session.cut_short) == ({"base": 3, "patched": 3}, False)
    assert (row.verdict, row.base_boots) == ("inconclusive", 3)


def test_a_spent_budget_cuts_sessions_short_and_takes_a_last_look() -> None:
    cases = {physical("h1", "haswell"): {"copy": (2168.0, 2300.0)}}
    trial = measured_trial(None, cases, spread=0.017, looks=(4, 6, 8), purpose="head", budget_seconds=200.0)
    # Eight boots of half a minute each were spent.
    assert look_at_trial(trial_id=trial.pk)
    session, row = trial.sessions.get(), Comparison.objects.get()
    assert (session.cut_short, boots_of(session)) == (True, {"base": 4, "patched": 4})
    # Four boots a side are judged at 5 %, as no other look follows.
    assert row.verdict == "regressed"


def test_a_machine_spends_no_more_than_its_share_of_the_budget_of_others() -> None:
    honest, liar = physical("h1", "haswell"), physical("z1", "zen1")
    cases = {honest: {"copy": (2168.0, 2230.0)}, liar: {"copy": STEADY}}
    trial = measured_trial(None, cases, spread=0.02, looks=(4, 6), purpose="head", budget_seconds=80_000.0)
    lies = Boot.objects.filter(session__machine=liar, position=0)
    lies.update(started_at=EPOCH - timedelta(days=1), ended_at=EPOCH)
    assert not look_at_trial(trial_id=trial.pk)
    assert boots_of(trial.sessions.get(machine=honest)) == {"base": 6, "patched": 6}


def test_a_machine_that_takes_no_more_boots_cuts_its_session_short() -> None:
    machine = physical("h1", "haswell")
    trial = measured_trial(None, {machine: {"copy": (2168.0, 2230.0)}}, spread=0.02, purpose="head")
    Machine.objects.update(health=Machine.Health.QUARANTINED)
    assert look_at_trial(trial_id=trial.pk)
    assert trial.sessions.get().cut_short


def test_a_case_without_values_keeps_no_session_going() -> None:
    machine = physical("h1", "haswell")
    trial = measured_trial(None, {machine: {"copy": STEADY, "crash": STEADY}}, purpose="head")
    forget(Measurement.objects.filter(case__name="crash", boot__arm="patched"))
    assert look_at_trial(trial_id=trial.pk)
    row = Comparison.objects.get(case__name="crash")
    assert (row.verdict, row.reason, row.p_value) == ("inconclusive", "patched kernel: no values", None)
    assert not trial.sessions.get().cut_short
    assert Comparison.objects.get(case__name="copy").family_size == 1


def test_boots_that_lost_a_value_are_run_again_but_not_for_ever() -> None:
    machine = physical("h1", "haswell")
    cases = {"copy": STEADY, "shaky": STEADY}
    trial = measured_trial(None, {machine: cases}, looks=(4, 6), purpose="head")
    session = trial.sessions.get()
    for _ in range(12):
        # The patched kernel gives values of the case in its first two boots only.
        late = session.boots.filter(arm="patched").order_by("position")[2:]
        forget(Measurement.objects.filter(case__name="shaky", boot__in=[boot.pk for boot in late]))
        if look_at_trial(trial_id=trial.pk):
            break
        visit(session, cases)
    trial.refresh_from_db()
    assert trial.state == "done"
    assert boots_of(session)["patched"] <= 12
    assert Comparison.objects.get(case__name="shaky").verdict == "inconclusive"
    assert Comparison.objects.get(case__name="copy").verdict == "unchanged"


def test_a_session_that_fails_after_its_first_look_is_judged_by_what_it_measured() -> None:
    h1, z1 = physical("h1", "haswell"), physical("z1", "zen1")
    trial = measured_trial(None, {h1: {"copy": SLOWER}, z1: {"copy": SLOWER}}, purpose="confirm")
    Session.objects.filter(trial=trial).update(state="failed", reason="patched kernel does not boot: panic")
    # That of zen1 never had its first look.
    trial.sessions.get(machine=z1).boots.filter(position__gte=3).update(state="failed")
    assert look_at_trial(trial_id=trial.pk)
    trial.refresh_from_db()
    assert trial.state == "done"
    assert [(row.session.machine, row.verdict) for row in Comparison.objects.all()] == [(h1, "regressed")]
    assert trial.sessions.get(machine=h1).cut_short


def test_a_session_that_failed_with_its_machine_in_quarantine_tells_nothing() -> None:
    trial = measured_trial(None, {physical("h1", "haswell"): {"copy": SLOWER}}, purpose="confirm")
    Session.objects.update(state="failed", reason_code=Because.QUARANTINED)
    Machine.objects.update(health=Machine.Health.QUARANTINED)
    assert look_at_trial(trial_id=trial.pk)
    trial.refresh_from_db()
    assert (trial.state, Comparison.objects.count()) == ("failed", 0)


def test_a_machine_that_is_well_again_does_not_bring_back_what_it_measured_before_its_quarantine() -> None:
    """Another session of the trial may go on for days meanwhile."""
    trial = measured_trial(
        None, {physical("h1", "haswell"): {"copy": SLOWER}, physical("z1", "zen1"): {"copy": STEADY}}, purpose="confirm"
    )
    trial.sessions.filter(machine__name="h1").update(state="failed", reason_code=Because.QUARANTINED)
    assert look_at_trial(trial_id=trial.pk)
    assert [row.session.machine.name for row in Comparison.objects.all()] == ["z1"]


def test_a_machine_that_breaks_later_does_not_take_back_what_a_session_of_it_had_measured() -> None:
    trial = measured_trial(None, {physical("h1", "haswell"): {"copy": SLOWER}}, purpose="confirm")
    Session.objects.update(state="failed", reason="patched kernel gave no measurement in 2 boots")
    Machine.objects.update(health=Machine.Health.QUARANTINED)
    assert look_at_trial(trial_id=trial.pk)
    assert Comparison.objects.get().verdict == "regressed"


def test_cases_that_came_or_went_between_visits_keep_no_session_going() -> None:
    """A new version of a benchmark was installed: its old case is measured no more, its new one only from there on."""
    unclear = (2168.0, 2230.0)
    machine = physical("h1", "haswell")
    trial = measured_trial(None, {machine: {"old": unclear}}, spread=0.02, looks=(4, 6, 8, 12, 16), purpose="confirm")
    visits = 0
    while not look_at_trial(trial_id=trial.pk):
        visits += 1
        visit(trial.sessions.get(), {"new": unclear}, spread=0.02)
    assert (visits, boots_of(trial.sessions.get())) == (2, {"base": 8, "patched": 8})


def test_a_session_that_ends_after_its_trial_was_canceled_is_concluded() -> None:
    trial = measured_trial(None, {physical("h1", "haswell"): {"copy": STEADY}}, purpose="confirm")
    Trial.objects.update(state="canceled")
    assert look_at_trial(trial_id=trial.pk)
    session = trial.sessions.get()
    assert (session.concluded_at is not None, session.cut_short) == (True, True)
    assert not Comparison.objects.exists()


def test_a_trial_without_a_measured_session_fails_with_the_reasons() -> None:
    trial = build_trial(state=Trial.State.MEASURING)
    build_trial_session(trial, physical("h1", "haswell"), state=Session.State.FAILED, reason="panic")
    assert look_at_trial(trial_id=trial.pk)
    trial.refresh_from_db()
    assert (trial.state, trial.reason) == ("failed", "h1: panic")


def test_sessions_of_the_same_code_have_nothing_to_compare() -> None:
    trial = build_trial(state=Trial.State.MEASURING)
    session = build_trial_session(
        trial, physical("h1", "haswell"), state=Session.State.FAILED, reason_code=Because.SAME_CODE
    )
    session.boots.all().delete()
    Session.objects.filter(pk=session.pk).update(state="done", concluded_at=EPOCH)
    assert look_at_trial(trial_id=trial.pk)
    trial.refresh_from_db()
    assert (trial.state, Comparison.objects.count()) == ("done", 0)


def test_virtual_machines_beside_physical_ones_get_no_second_look_and_no_comparison(settings: Settings) -> None:
    settings.VIRTUAL_VERDICTS = True
    cases = {"copy": (2168.0, 2230.0)}
    trial = measured_trial(
        None, {virtual("vm", "zen3"): cases, physical("h1", "haswell"): {"copy": STEADY}}, purpose="head"
    )
    for boot in Boot.objects.filter(session__machine__name="vm"):
        boot.packed.all().delete()
        measure(boot, cases, spread=0.02)
    assert look_at_trial(trial_id=trial.pk)
    assert [row.session.machine.name for row in Comparison.objects.all()] == ["h1"]


def test_order_in_which_results_came_in_does_not_matter() -> None:
    cases = {"copy": (2168.0, 2300.0), "mmap": SLOWER}
    found = []
    for backwards in (False, True):
        trial = measured_trial(None, {physical("h1", "haswell"): {}}, looks=(4,), purpose="head")
        boots = list(trial.sessions.get().boots.order_by("position"))
        for boot in reversed(boots) if backwards else boots:
            measure(boot, cases, spread=0.013)
        look_at_trial(trial_id=trial.pk)
        rows = Comparison.objects.filter(session__trial=trial).order_by("case__name")
        found.append([(row.case.name, row.verdict, row.ratio, row.p_value, row.ratio_low) for row in rows])
    assert found[0] == found[1]


def test_the_end_wakes_who_asked_and_looking_again_does_nothing(
    sent_tasks: list[Any], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    trial = measured_trial(None, {physical("h1", "haswell"): {"copy": STEADY}}, purpose="head")
    with django_capture_on_commit_callbacks(execute=True):
        look_at_trial(trial_id=trial.pk)
    assert sent_tasks == [("detection.answer", (trial.pk,))]
    sent_tasks.clear()
    with django_capture_on_commit_callbacks(execute=True):
        assert look_at_trial(trial_id=trial.pk)
    assert (sent_tasks, Comparison.objects.count()) == ([], 1)


def test_a_trial_that_still_waits_for_kernels_and_an_unknown_one() -> None:
    assert not look_at_trial(trial_id=build_trial().pk)
    with pytest.raises(DomainError) as caught:
        look_at_trial(trial_id=987654)
    assert (caught.value.code, caught.value.permanent) == ("trial-unknown", True)


def test_queries_do_not_grow_with_cells(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    few = measured_trial(None, {physical("h1", "haswell"): {"copy": STEADY}}, purpose="head")
    many = measured_trial(None, {physical("h2", "haswell"): {f"c{n}": STEADY for n in range(9)}}, purpose="head")
    with CaptureQueriesContext(connection) as first:
        look_at_trial(trial_id=few.pk)
    with django_assert_num_queries(len(first)):
        look_at_trial(trial_id=many.pk)


@pytest.mark.django_db(transaction=True)
def test_looks_at_once_from_many_processes_store_each_comparison_once() -> None:
    trial = measured_trial(None, {physical("h1", "haswell"): {"copy": SLOWER}}, purpose="head")
    start = Barrier(4)

    def look(_: int) -> bool:
        start.wait()
        try:
            return look_at_trial(trial_id=trial.pk)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(look, range(4))) == [True] * 4
    assert Comparison.objects.count() == 1
