"""Power cycles: wanted once at a time, and what their end means."""

import pytest
from pytest_django.fixtures import Settings

from server.core.errors import DomainError
from server.core.models import Transition
from server.lab.hosts.trouble import end_power_cycle, power_trouble, want_power_cycle
from server.lab.models import PowerCycle, PowerCycleState
from tests.builders import because, build_machine, build_session
from tests.lab.test_hosts import an_attempt, state_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _controller(settings: Settings) -> None:
    settings.DISPATCHER = "jenkins"
    settings.LAB_CONTROL = "lab-control"


def test_machine_has_one_open_power_cycle_with_its_reason_and_who_wants_it() -> None:
    machine = build_machine(boot_driver="kexec")
    cycle = want_power_cycle(machine, because("hangs"), actor="ada")
    assert want_power_cycle(machine, because("still hangs")) == cycle
    assert (cycle.state, cycle.reason) == ("wanted", "hangs")
    assert Transition.objects.get(subject="powercycle").actor == "ada"
    assert state_of(machine) == "power-cycling"


def test_machine_that_is_held_by_an_attempt_is_switched_after_it() -> None:
    machine = build_machine(boot_driver="kexec")
    an_attempt(build_session(machine=machine), "running", agent="a")
    want_power_cycle(machine, because("hangs"))
    assert state_of(machine) == "working"


@pytest.mark.parametrize(("dispatcher", "control"), [("local", "lab-control"), ("jenkins", "")])
def test_site_without_a_control_host_says_so(settings: Settings, dispatcher: str, control: str) -> None:
    settings.DISPATCHER, settings.LAB_CONTROL = dispatcher, control
    assert "control host" in power_trouble()
    with pytest.raises(DomainError, match="vm-haswell cannot be switched off and on"):
        want_power_cycle(build_machine(), because("hangs"))
    assert not PowerCycle.objects.exists()


def test_done_power_cycle_waits_for_its_machine() -> None:
    machine = build_machine(boot_driver="kexec")
    cycle = want_power_cycle(machine, because("hangs"))
    assert end_power_cycle(cycle, True, because(""))
    assert not end_power_cycle(cycle, False, because("late")), "it is over"
    assert (cycle.state, state_of(machine), machine.health) == (PowerCycleState.DONE, "power-cycling", "good")


def test_failed_power_cycle_is_a_quarantine() -> None:
    machine = build_machine(boot_driver="kexec")
    assert end_power_cycle(want_power_cycle(machine, because("hangs")), False, because("the socket does not answer"))
    assert (state_of(machine), machine.health) == ("offline", "quarantined")
    assert machine.health_reason == "could not be switched off and on: the socket does not answer"
