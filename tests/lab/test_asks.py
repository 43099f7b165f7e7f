"""Hosts that ask for work: what they are given, what is refused, and what pages and rounds see of them."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from pytest_django.fixtures import Settings

from server.builds.models import BuildState
from server.core import clock
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.core.reasons import Because
from server.lab import care
from server.lab.attempts.asks import HostAsk, Offer, answer_ask, awaited
from server.lab.attempts.ends import lose_attempt
from server.lab.attempts.life import claim_attempt
from server.lab.dispatch.pull import PullDispatcher
from server.lab.hosts.trouble import want_power_cycle
from server.lab.models import Asker, Attempt, AttemptState, Builder, Machine, PowerCycle, Session
from server.lab.port import DispatchError
from server.lab.rounds import run_round
from server.lab.work import work_of
from tests.builders import build_build, build_builder, build_machine, build_series, build_session

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _pull(settings: Settings) -> None:
    settings.DISPATCHER = "pull"
    settings.LAB_CONTROL = "switch"


def asks(name: str, scope: ApiToken.Scope = ApiToken.Scope.MACHINE, host: str = "", **said: Any) -> Offer:
    token = ApiToken(scope=scope, subject=name)
    return answer_ask(token=token, ask=HostAsk(host or f"host-of-{name}", "0.2", **said))


def planned(machine: Machine) -> Session:
    return build_session(build_series(), machine)


def silent(name: str, minutes: float) -> None:
    assert Asker.objects.filter(subject=name).update(asked_at=clock.now() - timedelta(minutes=minutes)) == 1


def test_host_that_asks_is_given_its_session_until_it_is_claimed() -> None:
    planned(build_machine("desk-1", boot_driver="kexec"))
    assert asks("desk-1", safe=True) == Offer(reason="nothing waits for it")
    run_round()
    attempt = Attempt.objects.get()
    assert (attempt.state, attempt.posts, attempt.reason) == ("queued", 1, "accepted by the pull dispatcher")
    assert awaited() == {("machine", "desk-1", attempt.key)}
    offer = Offer(attempt.key, inside=True)
    assert [asks("desk-1"), asks("desk-1")] == [offer, offer]
    claim_attempt(attempt, "agent-0001", host="host-of-desk-1")
    assert (asks("desk-1").key, awaited()) == ("", set())


def test_no_work_goes_to_a_host_that_does_not_ask() -> None:
    machine = build_machine("desk-1")
    session = planned(machine)
    run_round()
    machine.refresh_from_db()
    assert (machine.state, machine.state_reason) == ("offline", "it has never asked for work")
    asks("desk-1")
    silent("desk-1", 4)
    run_round()
    assert not Attempt.objects.exists()
    asks("desk-1")
    run_round()
    assert session.attempts.get().state == "queued"


def test_host_that_fell_silent_before_it_took_its_work_loses_it_to_nobodys_harm() -> None:
    machine = build_machine("desk-1")
    planned(machine)
    asks("desk-1")
    run_round()
    Attempt.objects.update(state_since=clock.now() - timedelta(minutes=5))
    silent("desk-1", 5)
    run_round()
    attempt = Attempt.objects.get()
    assert (attempt.state, "has not asked for work since" in attempt.reason) == ("lost", True)
    machine.refresh_from_db()
    assert machine.health == Machine.Health.GOOD
    alarm = PullDispatcher().alarms(clock.now())[0]
    assert alarm.what == "do not ask for work: desk-1"


def test_lease_decides_where_the_host_works_at_it_no_more() -> None:
    planned(build_machine("desk-1"))
    asks("desk-1")
    run_round()
    attempt = Attempt.objects.get()
    claim_attempt(attempt, "agent-0001", host="host-of-desk-1")
    asks("desk-1")
    run_round()
    assert Attempt.objects.get().state == "running"
    Attempt.objects.update(lease_until=clock.now() - timedelta(seconds=1))
    run_round()
    attempt = Attempt.objects.get(pk=attempt.pk)
    assert (attempt.state, attempt.reason) == ("lost", "its agent is gone (its host works at it no more)")


def test_builder_is_given_as_many_builds_as_it_has_room_for_each_once() -> None:
    build_builder("forge", capacity=2)
    builder = ApiToken.Scope.BUILDER
    asks("forge", builder)
    for _ in range(3):
        build_build(state=BuildState.WANTED)
    run_round()
    keys = sorted(Attempt.objects.values_list("key", flat=True))
    assert len(keys) == 2
    first = asks("forge", builder)
    second = asks("forge", builder, keys=(first.key,))
    assert (sorted([first.key, second.key]), first.inside) == (keys, False)
    assert asks("forge", builder, keys=tuple(keys)).key == ""


def test_second_host_with_the_same_token_is_refused_and_both_are_named() -> None:
    planned(build_machine("desk-1"))
    asks("desk-1", host="desk-1")
    with pytest.raises(DomainError, match="and copy-of-it shows the same") as refused:
        asks("desk-1", host="copy-of-it")
    assert refused.value.code == "two-agents"
    run_round()
    attempt = Attempt.objects.get()
    claim_attempt(attempt, "agent-0001", host="desk-1")
    # A machine that measures asks for nothing, however long.
    silent("desk-1", 30)
    with pytest.raises(DomainError, match=f"desk-1 works at {attempt.key}"):
        asks("desk-1", host="copy-of-it")
    with pytest.raises(DomainError, match="is running"):
        claim_attempt(attempt, "agent-0002", host="copy-of-it")
    assert Attempt.objects.get().agent == "agent-0001"


def booted(name: str, boot: str, scope: ApiToken.Scope = ApiToken.Scope.MACHINE) -> str:
    """The code with which a host in this boot is refused; empty where it is answered. Its copy has the same name."""
    try:
        asks(name, scope, boot_id=boot)
    except DomainError as error:
        return error.code
    return ""


def later(minutes: float) -> None:
    Asker.objects.update(boot_since=F("boot_since") - timedelta(minutes=minutes))


def test_reboots_prove_no_second_host_however_many() -> None:
    machine = build_machine("desk-1")
    for number in range(20):
        assert [booted("desk-1", f"boot-{number}"), booted("desk-1", f"boot-{number}"), booted("desk-1", "")] == [
            ""
        ] * 3
        later(5)
    machine.refresh_from_db()
    assert machine.health == Machine.Health.GOOD


def test_late_request_of_a_system_that_has_ended_is_refused_and_proves_nothing() -> None:
    machine = build_machine("desk-1")
    assert [booted("desk-1", "first"), booted("desk-1", "second"), booted("desk-1", "first")] == ["", "", "two-agents"]
    later(5)
    assert booted("desk-1", "second") == ""
    machine.refresh_from_db()
    assert (machine.health, Asker.objects.get().boot_id) == ("good", "second")


@pytest.mark.parametrize("others", [1, 2])
def test_boot_that_comes_back_proves_a_copied_disk_and_the_machine_is_held(others: int) -> None:
    machine = build_machine("desk-1")
    planned(machine)
    assert [booted("desk-1", f"boot-{number}") for number in range(others + 1)] == [""] * (others + 1)
    later(5)
    with pytest.raises(DomainError, match="is one disk a copy of the other") as refused:
        asks("desk-1", boot_id="boot-0")
    assert refused.value.code == "copied-disk"
    machine.refresh_from_db()
    assert machine.health == Machine.Health.MAINTENANCE
    assert machine.health_reason.startswith("two hosts show the token of machine desk-1: boot boot-0 asks again")
    run_round()
    assert not Attempt.objects.exists()


def test_copies_that_both_go_on_are_found_again_after_a_release_and_one_alone_is_not() -> None:
    machine = build_machine("desk-1")
    booted("desk-1", "one")
    booted("desk-1", "two")
    later(5)
    assert booted("desk-1", "one") == "copied-disk"
    booted("desk-1", "two")
    later(5)
    machine.refresh_from_db()
    care.release(machine, "one is switched off", actor="ada")
    # Whichever of the two it was.
    assert [booted("desk-1", "one"), booted("desk-1", "one")] == ["", ""]
    later(5)
    assert booted("desk-1", "two") == "copied-disk"
    machine.refresh_from_db()
    assert machine.health == Machine.Health.MAINTENANCE


def test_trouble_that_a_copied_machine_had_before_is_still_told() -> None:
    machine = build_machine("desk-1", health="quarantined", health_reason="no boot")
    builder = build_builder("forge")
    for name, scope in (("desk-1", ApiToken.Scope.MACHINE), ("forge", ApiToken.Scope.BUILDER)):
        booted(name, "one", scope)
        booted(name, "two", scope)
        later(5)
        assert booted(name, "one", scope) == "copied-disk"
    machine.refresh_from_db()
    builder.refresh_from_db()
    assert machine.health_reason.endswith("(before: quarantined, no boot)")
    assert (machine.health, builder.health) == ("maintenance", "maintenance")


def test_host_that_was_given_another_name_is_taken_after_a_while() -> None:
    build_machine("desk-1")
    asks("desk-1", host="old-name")
    silent("desk-1", 5)
    assert asks("desk-1", host="new-name").reason == "nothing waits for it"


@pytest.mark.parametrize("adapter", ["jenkins", "local"])
def test_machine_of_another_dispatcher_is_told_so(settings: Settings, adapter: str) -> None:
    build_machine("desk-1")
    settings.DISPATCHER = adapter
    with pytest.raises(DomainError, match="hosts of this site do not ask for work") as refused:
        asks("desk-1")
    assert refused.value.code == "other-dispatcher"
    assert not Asker.objects.exists()


def test_work_that_another_dispatcher_was_given_is_never_offered() -> None:
    machine = build_machine("desk-1")
    session = planned(machine)
    Attempt.objects.create(
        key="session-1-1", number=1, session=session, machine=machine, adapter="jenkins", slots=1, posts=1,
        state=AttemptState.QUEUED,
    )  # fmt: skip
    assert asks("desk-1").key == ""


def test_host_out_of_service_is_told_why_at_once_and_when_to_ask_again() -> None:
    machine = build_machine("desk-1")
    care.maintain(machine, "a new fan", actor="ada")
    assert asks("desk-1") == Offer(reason="desk-1 is in maintenance: a new fan", again_in=60.0)
    care.release(machine, "done", actor="ada")
    Machine.objects.update(enabled=False)
    assert asks("desk-1").reason == "desk-1 is disabled"
    Machine.objects.update(enabled=True, health="quarantined", health_reason="no boot")
    assert asks("desk-1") == Offer(reason="desk-1 is quarantined: no boot")


def test_machine_that_asks_is_back_from_its_session() -> None:
    machine = build_machine("desk-1", boot_driver="kexec", state="returning")
    asks("desk-1", safe=False)
    machine.refresh_from_db()
    assert (machine.state, machine.safe) == ("returning", False)
    asks("desk-1", safe=True, boot_id="b")
    machine.refresh_from_db()
    assert (machine.state, machine.safe, machine.boot_id) == ("idle", True, "b")


def test_page_of_a_machine_shows_when_it_asked_last() -> None:
    machine = build_machine("desk-1")
    asks("desk-1")
    node = PullDispatcher().node("desk-1")
    assert node is not None
    assert (node.asks, node.connected, node.seen_at) == (True, True, Asker.objects.get().asked_at)
    silent("desk-1", 10)
    node = PullDispatcher().node(machine.node_name)
    assert node is not None
    assert (node.connected, "has not asked for work since" in node.offline_reason) == (False, True)
    assert PullDispatcher().node("nobody") is None


def test_power_cycles_go_to_the_control_host_that_asks() -> None:
    machine = build_machine("desk-1", boot_driver="kexec")
    care.power_cycle(machine, "it hangs", actor="ada")
    run_round()
    assert Attempt.objects.get().reason.endswith("it has never asked for work")
    asks("switch", ApiToken.Scope.CONTROL)
    run_round()
    assert asks("switch", ApiToken.Scope.CONTROL).key == Attempt.objects.get().key
    assert awaited() == {("control", "switch", Attempt.objects.get().key)}


def test_machine_that_comes_back_before_anybody_switches_it_is_not_switched() -> None:
    machine = build_machine("desk-1", boot_driver="kexec")
    want_power_cycle(machine, Because.LOST("not back"))
    run_round()
    asks("desk-1", safe=False)
    assert PowerCycle.objects.get().state == "dispatched", "a kernel under test is not back"
    asks("desk-1", safe=True)
    run_round()
    cycle, attempt = PowerCycle.objects.get(), Attempt.objects.get()
    assert (cycle.state, cycle.reason, attempt.state) == ("canceled", "desk-1 is back by itself", "canceled")
    machine.refresh_from_db()
    assert machine.state == "idle"
    planned(machine)
    run_round()
    assert asks("desk-1", safe=True).key == Attempt.objects.latest("pk").key


@pytest.mark.parametrize("by", ["person", "person too", "switch", "switch that fell silent"])
def test_machine_that_is_back_is_switched_where_a_person_wants_it_or_it_has_begun(by: str) -> None:
    machine = build_machine("desk-1", boot_driver="kexec")
    asks("switch", ApiToken.Scope.CONTROL)
    if by != "person":
        want_power_cycle(machine, Because.LOST("not back"))
        run_round()
    if by.startswith("person"):
        care.power_cycle(machine, "it hangs", actor="ada")
        run_round()
    else:
        claim_attempt(Attempt.objects.get(), "agent-0001", host="host-of-switch")
    if by == "switch that fell silent":
        assert lose_attempt(Attempt.objects.get(), Because.LOST("not heard"))
    asks("desk-1", safe=True)
    machine.refresh_from_db()
    assert PowerCycle.objects.get().state in PowerCycle.OPEN
    assert machine.state == "power-cycling"


def test_work_is_not_laid_ready_for_a_host_that_has_gone() -> None:
    machine = build_machine("desk-1")
    attempt = Attempt.objects.create(
        key="session-1-1", number=1, session=planned(machine), machine=machine, adapter="pull", slots=1,
        state=AttemptState.SUBMITTING,
    )  # fmt: skip
    with pytest.raises(DispatchError, match="never asked"):
        PullDispatcher().submit(work_of(attempt))
    asks("desk-1")
    PullDispatcher().submit(work_of(attempt))
    assert PullDispatcher().cancel(work_of(attempt))
    assert asks("desk-1").key == ""


def test_token_of_a_host_that_is_gone_opens_nothing() -> None:
    with pytest.raises(DomainError, match="no machine nobody"):
        asks("nobody")
    with pytest.raises(DomainError, match="no builder nobody"):
        asks("nobody", ApiToken.Scope.BUILDER)
    assert not Builder.objects.exists()
