"""People with the right take machines and builders out, let them in again and have them checked; nobody else can."""

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from pytest_django.fixtures import Settings

from server.core.models import Transition
from server.lab.models import Attempt, Builder, Enrolment, Machine, PowerCycle, Session
from tests.builders import build_attempt, build_build, build_builder, build_machine, build_session
from tests.dashboard.conftest import Reader

pytestmark = pytest.mark.django_db
PAGE = "/machines/bench-1/"


@pytest.fixture
def machine() -> Machine:
    return build_machine("bench-1", "zen3")


@pytest.fixture
def person() -> User:
    return User.objects.create_user("ada", is_staff=True)


@pytest.fixture
def operator(person: User, client: Client) -> User:
    wanted = Permission.objects.filter(codename__in=["change_machine", "change_builder"])
    person.user_permissions.add(*wanted)
    client.force_login(person)
    return person


def health_of(host: Machine | Builder) -> str:
    host.refresh_from_db()
    return host.health


def last_change(host: Machine | Builder) -> Transition:
    subject = f"{host._meta.model_name}-health"
    return Transition.objects.filter(subject=subject, subject_id=host.pk).latest("id")


def test_stranger_sees_how_many_may_and_where_to_log_in(reader: Reader, machine: Machine, person: User) -> None:
    text = " ".join(reader.read(PAGE).split())
    assert "0 people have it at this site." in text
    assert 'href="/login/?next=/machines/bench-1/"' in text
    assert 'name="action"' not in text


def test_stranger_who_posts_is_sent_to_the_login(client: Client, machine: Machine) -> None:
    response = client.post(f"{PAGE}act/", {"action": "quarantine", "reason": "mine"})
    assert response.status_code == 302
    assert response["Location"] == "/login/?next=/machines/bench-1/"
    assert health_of(machine) == "good"


def test_person_without_the_right_is_refused(client: Client, machine: Machine, person: User) -> None:
    client.force_login(person)
    assert 'name="action"' not in client.get(PAGE).content.decode()
    assert client.post(f"{PAGE}act/", {"action": "quarantine", "reason": "mine"}).status_code == 403
    assert health_of(machine) == "good"


def test_looking_at_the_address_of_an_action_does_nothing(client: Client, machine: Machine, operator: User) -> None:
    assert client.get(f"{PAGE}act/").status_code == 405


def test_form_of_another_site_is_refused(machine: Machine, operator: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(operator)
    assert client.post(f"{PAGE}act/", {"action": "quarantine", "reason": "forged"}).status_code == 403
    assert health_of(machine) == "good"


def test_quarantine_stops_the_work_and_stays_in_the_log_with_the_name(
    client: Client, machine: Machine, operator: User
) -> None:
    attempt = build_attempt(build_session(machine=machine, state=Session.State.RUNNING))
    response = client.post(f"{PAGE}act/", {"action": "quarantine", "reason": "it drifts"}, follow=True)
    assert response.redirect_chain == [(PAGE, 302)]
    assert health_of(machine) == "quarantined"
    attempt.refresh_from_db()
    assert (attempt.state, attempt.losing) == (Attempt.State.CANCELING, True)
    change = last_change(machine)
    assert (change.reason, change.actor) == ("it drifts", "ada")
    log = response.content.decode().split('id="log"')[1]
    assert "it drifts" in log
    assert "ada" in log


def test_release_makes_it_good_again(client: Client, machine: Machine, operator: User) -> None:
    Machine.objects.update(health="quarantined", health_reason="3 boots lost")
    client.post(f"{PAGE}act/", {"action": "release", "reason": "new cable"})
    assert health_of(machine) == "good"
    assert last_change(machine).actor == "ada"


def test_check_puts_a_health_session_first(client: Client, machine: Machine, operator: User) -> None:
    machine.health_build = build_build(config=machine.config, toolchain=machine.toolchain)
    machine.save(update_fields=["health_build"])
    response = client.post(f"{PAGE}act/", {"action": "check", "reason": "after the move"}, follow=True)
    session = Session.objects.get(purpose=Session.Purpose.HEALTH)
    assert session.machine == machine
    assert health_of(machine) == "unknown"
    assert "whether bench-1 is well" in response.content.decode()


def test_power_cycle_is_wanted_where_a_control_host_can_do_it(
    client: Client, machine: Machine, operator: User, settings: Settings
) -> None:
    assert 'value="power-cycle"' not in client.get(PAGE).content.decode()
    response = client.post(f"{PAGE}act/", {"action": "power-cycle", "reason": "it hangs"})
    assert response.status_code == 409
    assert "no control host" in response.content.decode()
    settings.DISPATCHER, settings.LAB_CONTROL = "jenkins", "lab-control"
    assert 'value="power-cycle"' in client.get(PAGE).content.decode()
    client.post(f"{PAGE}act/", {"action": "power-cycle", "reason": "it hangs"})
    assert "it hangs" in PowerCycle.objects.get(machine=machine).reason


@pytest.mark.parametrize(
    ("action", "reason"),
    [("quarantine", " "), ("quarantine", "x" * 501), ("burn", "why not"), ("", "r"), ("check", "a\0")],
)
def test_action_without_a_proper_reason_changes_nothing(
    client: Client, machine: Machine, operator: User, action: str, reason: str
) -> None:
    response = client.post(f"{PAGE}act/", {"action": action, "reason": reason})
    assert response.status_code == 400
    assert b'role="alert"' in response.content
    assert health_of(machine) == "good"


def test_builder_is_quarantined_and_released_but_never_booted(client: Client, operator: User) -> None:
    builder, page = build_builder("builder-1"), "/builders/builder-1/"
    text = client.get(page).content.decode()
    assert 'value="quarantine"' in text
    assert 'value="check"' not in text
    client.post(f"{page}act/", {"action": "quarantine", "reason": "its disk is full"})
    assert health_of(builder) == "quarantined"
    client.post(f"{page}act/", {"action": "release", "reason": "cleaned"})
    assert health_of(builder) == "good"
    assert client.post(f"{page}act/", {"action": "check", "reason": "why not"}).status_code == 409


def test_code_is_shown_once_to_staff_alone_and_stays_in_no_log(
    client: Client, machine: Machine, operator: User, settings: Settings
) -> None:
    builder = build_builder("builder-1")
    for host, page in ((machine, PAGE), (builder, "/builders/builder-1/")):
        assert 'value="enrol"' not in client.get(page).content.decode()
        settings.DISPATCHER = "pull"
        assert 'value="enrol"' in client.get(page).content.decode()
        answer = client.post(f"{page}act/", {"action": "enrol", "reason": "a new disk"})
        code = re.findall(r"tidemark-agent enrol \S+ ([A-Z2-9-]{19})<", answer.content.decode())[0]
        assert (answer.status_code, "no-store" in answer.headers["Cache-Control"]) == (200, True)
        again = client.get(page).content.decode()
        assert code not in again
        assert "a new disk" in again.split('id="log"')[1]
        assert Enrolment.objects.get(subject=host.name).made_by == "ada"
        settings.DISPATCHER = "local"
    settings.DISPATCHER = "pull"
    User.objects.update(is_staff=False)
    assert 'value="enrol"' not in client.get(PAGE).content.decode()
    assert client.post(f"{PAGE}act/", {"action": "enrol", "reason": "mine"}).status_code == 403
    assert Enrolment.objects.count() == 2


def test_retired_host_offers_nothing_but_to_come_back(client: Client, machine: Machine, operator: User) -> None:
    builder = build_builder("builder-1")
    for host, page in ((machine, PAGE), (builder, "/builders/builder-1/")):
        client.post(f"{page}act/", {"action": "retire", "reason": "sold"})
        assert health_of(host) == "retired"
        assert last_change(host).actor == "ada"
        assert re.findall(r'name="action" value="([a-z-]+)"', client.get(page).content.decode()) == ["release"]
        client.post(f"{page}act/", {"action": "release", "reason": "bought back"})
        assert health_of(host) == "good"


def test_action_on_a_machine_that_is_not_there_is_not_found(client: Client, operator: User) -> None:
    assert client.post("/machines/nobody/act/", {"action": "release", "reason": "x"}).status_code == 404
