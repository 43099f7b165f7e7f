"""Forced health sessions: planned of a trusted kernel, judged, and never mixed with what series cost."""

from datetime import timedelta

import pytest

from server.builds.models import Build
from server.core import clock
from server.core.models import Transition
from server.lab.attempts.boots import finish_session, note_machine
from server.lab.hosts.health import judge_health, plan_health_session
from server.lab.hosts.state import change_health
from server.lab.models import Boot, Machine, Session
from server.lab.sweep import cancel_superseded, plan_checks
from server.sources.models import Branch, HeadMove, Revision
from tests.builders import because, build_build, build_machine, build_revision, build_series, build_tree, tell_boots
from tests.lab.planning import plan_series

pytestmark = pytest.mark.django_db


def a_head(name: str = "master") -> Revision:
    revision = build_revision()
    branch = Branch.objects.create(tree=build_tree(), name=name, head=revision)
    HeadMove.objects.create(branch=branch, kind="created", after=revision)
    return revision


def planned(machine: Machine) -> Session:
    session = plan_health_session(machine, "new")
    assert session is not None
    return session


def end(session: Session, *, last: str = "measured", **fields: object) -> None:
    """Give every boot its result, the last one as told."""
    boots = list(session.boots.all())
    for boot in boots:
        final = boot is boots[-1]
        result = last if final else "measured"
        Boot.objects.filter(pk=boot.pk).update(
            state=result, boot_id=f"boot-{boot.pk}", build_id="b", reason="" if result == "measured" else "panic: oops",
        )  # fmt: skip
        tell_boots([boot], facts=fields.get("facts", {}) if final else {"uarch": "haswell"})
    Session.objects.filter(pk=session.pk).update(state="running")
    session.refresh_from_db()
    finish_session(session=session)


def health(machine: Machine) -> tuple[str, str]:
    machine.refresh_from_db()
    return machine.health, machine.health_reason


def test_session_has_one_kernel_on_both_sides_and_two_boots_of_each() -> None:
    build = build_build(a_head())
    session = planned(build_machine(health="unknown"))
    assert (session.base_build, session.patched_build, session.series, session.purpose) == (
        build,
        build,
        None,
        "health",
    )
    assert list(session.boots.values_list("arm", flat=True)) == ["base", "patched", "patched", "base"]


def test_it_is_planned_once() -> None:
    build_build(a_head())
    machine = build_machine(health="unknown")
    assert planned(machine) == planned(machine)
    assert plan_checks() == 0


def test_kernel_of_the_newest_head_is_wanted_when_none_is_built() -> None:
    head = a_head()
    machine = build_machine(health="unknown")
    assert plan_health_session(machine, "new") is None
    assert plan_health_session(machine, "new") is None
    build = Build.objects.get()
    assert (build.revision, build.state) == (head, "wanted")
    Build.objects.update(state="built", build_id="ab")
    assert planned(machine).base_build == build


def test_kernel_that_a_check_waits_for_is_not_canceled_with_a_superseded_series() -> None:
    series = build_series(base=a_head(), head=build_revision())
    machine = build_machine(health="unknown")
    assert plan_health_session(machine, "new") is None
    build_build(series.head, state="wanted")
    series.advance("superseded")
    cancel_superseded()
    states = dict(Build.objects.values_list("revision", "state"))
    assert states == {series.base_id: "wanted", series.head_id: "canceled"}


def test_kernel_that_a_patch_author_had_a_hand_in_is_never_chosen() -> None:
    series = build_series()
    build_build(series.head)
    assert plan_health_session(build_machine(health="unknown"), "new") is None
    assert Build.objects.count() == 1, "and without a watched head none is wanted"


def test_operators_kernel_is_chosen_first_and_one_that_does_not_build_is_passed_over() -> None:
    chosen, newest = build_build(), build_build(a_head())
    machine = build_machine(health="unknown", health_build=chosen)
    assert planned(machine).base_build == chosen
    Build.objects.filter(pk=chosen.pk).update(state="failed", build_id="")
    chosen.refresh_from_db()
    other = build_machine("other", health="unknown", health_build=chosen)
    assert planned(other).base_build == newest


def test_machine_that_measures_every_boot_is_good_again() -> None:
    build_build(a_head())
    machine = build_machine(health="quarantined", health_reason="did not come back")
    session = planned(machine)
    end(session, facts={"uarch": "haswell"})
    assert session.state == "done"
    assert health(machine) == ("good", f"health session {session.pk} passed: 4 boots measured")


@pytest.mark.parametrize(
    ("last", "facts", "reason"),
    [
        ("failed", {}, "boot 3 gave no measurement: panic: oops"),
        ("measured", {"uarch": "zen3"}, "registered as haswell, but its CPU is zen3"),
    ],
)
def test_one_bad_boot_is_a_quarantine(last: str, facts: dict[str, str], reason: str) -> None:
    build_build(a_head())
    machine = build_machine(health="unknown")
    session = planned(machine)
    end(session, last=last, facts=facts)
    said = health(machine)
    assert said[0] == "quarantined"
    assert said[1].startswith(f"health session {session.pk}: ")
    assert reason.partition(": panic")[0] in said[1] or "too few measured boots" in said[1]


def test_canceled_session_says_nothing_and_a_person_is_never_overruled() -> None:
    build_build(a_head())
    machine = build_machine(health="unknown")
    session = planned(machine)
    session.advance("canceled", because("not wanted"))
    judge_health(session)
    assert health(machine)[0] == "unknown"
    Session.objects.filter(pk=session.pk).update(state="planned")
    session.refresh_from_db()
    change_health(machine, "maintenance", "new disk", actor="ada")
    end(session)
    assert health(machine) == ("maintenance", "new disk")


def test_wrong_cpu_is_a_quarantine_with_a_line_in_the_audit_log() -> None:
    machine = build_machine()
    note_machine(machine=machine, facts={"uarch": "zen3"}, trace="b1946ac92492d234")
    assert health(machine)[0] == "quarantined"
    assert Transition.objects.get(subject="machine-health").after == "quarantined"


# --- when a check is due --------------------------------------------------------------


def quarantined(actor: str = "", *, seen_after: bool = True) -> Machine:
    machine = build_machine()
    change_health(machine, "quarantined", "did not come back", actor=actor)
    seen = machine.health_since + timedelta(minutes=5 if seen_after else -5)
    Machine.objects.filter(pk=machine.pk).update(last_seen_at=seen)
    return machine


def test_unknown_machines_and_quarantined_ones_that_are_seen_again_are_checked_once() -> None:
    build_build(a_head())
    build_machine("new", health="unknown")
    machine = quarantined()
    assert plan_checks() == 2
    session = Session.objects.get(machine=machine)
    Session.objects.filter(pk=session.pk).update(created_at=machine.health_since + timedelta(seconds=1))
    session.advance("failed", because("panic"))
    judge_health(session)
    assert plan_checks() == 0, "once in each quarantine"


def test_quarantined_machine_that_was_not_seen_since_is_not_checked() -> None:
    build_build(a_head())
    quarantined(seen_after=False)
    assert plan_checks() == 0


def test_person_who_quarantined_a_machine_has_it_checked_himself() -> None:
    build_build(a_head())
    quarantined(actor="ada")
    assert plan_checks() == 0


def test_person_who_confirms_a_quarantine_has_taken_it_over() -> None:
    build_build(a_head())
    machine = quarantined()
    change_health(machine, "quarantined", "leave it: the disk is being copied", actor="ada")
    assert plan_checks() == 0
    assert not change_health(machine, "good", "health session 7 passed"), "the service does not undo it"
    assert not change_health(machine, "quarantined", "did not come back again"), "nor take the reason away"
    assert change_health(machine, "unknown", "copied", actor="ada")
    assert change_health(machine, "good", "health session 8 passed"), "who has it checked wants the answer"


def test_check_that_ends_well_does_not_release_a_machine_that_a_person_quarantined_meanwhile() -> None:
    build_build(a_head())
    machine = build_machine(health="unknown")
    session = planned(machine)
    change_health(machine, "quarantined", "smells of smoke", actor="ada")
    end(session, facts={"uarch": "haswell"})
    assert (session.state, health(machine)) == ("done", ("quarantined", "smells of smoke"))


def test_series_are_planned_on_good_machines_only_and_health_sessions_are_nobodys_result() -> None:
    build_build(a_head())
    series = build_series()
    machine = build_machine(health="unknown")
    planned(machine)
    build_machine("fine")
    plan_series(series_id=series.pk)
    Build.objects.update(state="built", build_id="ab", state_since=clock.now())
    assert [session.machine.name for session in plan_series(series_id=series.pk)] == ["fine"]
    assert series.sessions.filter(purpose="health").count() == 0
