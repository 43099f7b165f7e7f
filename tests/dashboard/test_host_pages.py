"""Pages of machines and builders in a lab with a Jenkins controller: state, health, runs, power and what waits."""

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from server.core.models import Transition
from server.lab.dispatch.jenkins.models import JenkinsRun
from server.lab.models import Attempt, Builder, Fault, Machine
from tests.builders import (
    because,
    build_attempt,
    build_build,
    build_builder,
    build_health_session,
    build_machine,
    build_revision,
    build_series,
    build_session,
    build_tree,
)
from tests.dashboard.conftest import Reader
from tests.lab_scenarios import busy_lab, busy_machine, sick_machine

pytestmark = pytest.mark.django_db


def words(text: str) -> str:
    return " ".join(text.split())


def section(text: str, name: str) -> str:
    return words(text[text.index(f'id="{name}"') :].split("</section>", maxsplit=1)[0])


def test_working_machine_tells_state_and_health_apart(reader: Reader) -> None:
    busy_machine()
    text = words(reader.read("/machines/bench-1/"))
    facts = text[text.index("<dt>state</dt>") :]
    assert 'class="state working">working</span>' in facts
    assert ": session under way" in facts
    assert 'class="state good">good</span>' in facts
    assert "cxl, 1g-pages" in facts


def test_held_machine_says_what_alone_lifts_its_quarantine(reader: Reader) -> None:
    machine = build_machine("bench-1", health="quarantined", health_reason="it drifts", health_hold="lifted by ada")
    assert ": it drifts; lifted by ada" in words(reader.read("/machines/bench-1/"))
    Machine.objects.filter(pk=machine.pk).update(health="good")
    assert "lifted by ada" not in reader.read("/machines/bench-1/")


def test_running_attempt_shows_its_jenkins_build_and_its_lease(reader: Reader) -> None:
    machine = busy_machine()
    attempt = Attempt.objects.get(machine=machine)
    running = section(reader.read("/machines/bench-1/"), "running")
    for fact in (attempt.key, "tidemark-session-bench-1 #41", "SUCCESS", "boot 3 of 8", "lease to", "arrived"):
        assert fact in running
    assert attempt.agent not in running


def test_node_that_the_service_holds_is_told_from_one_that_a_person_marked(reader: Reader, settings: Settings) -> None:
    settings.DISPATCHER = "jenkins"
    machine = busy_machine()
    sick_machine()
    held = words(reader.read("/machines/bench-1/"))
    assert f'held for <span class="figure">{Attempt.objects.get(machine=machine).key}</span>' in held
    marked = words(reader.read("/machines/bench-2/"))
    assert "marked offline by a person" in marked
    assert "not connected" in marked
    assert "Connection was broken" in marked


def test_what_waits_for_a_machine_stands_in_its_order_with_reasons(reader: Reader) -> None:
    machine = busy_machine()
    first, second = (build_session(build_series(subject=f"mm: Wait {n}"), machine) for n in (1, 2))
    build_session(build_series(subject="mm: Elsewhere"), build_machine("bench-9", "zen4"))
    waiting = section(reader.read("/machines/bench-1/"), "waiting")
    assert waiting.index(f"session {first.pk}<") < waiting.index(f"session {second.pk}<")
    assert "bench-1 works at session-" in waiting
    assert "mm: Elsewhere" not in waiting


def test_log_tells_who_when_and_why(reader: Reader) -> None:
    machine = sick_machine()
    Transition.objects.create(
        trace="0" * 16,
        subject="machine-state",
        subject_id=machine.pk,
        before="idle",
        after="offline",
        reason="unplugged",
    )
    log = section(reader.read("/machines/bench-2/"), "log")
    assert "new memory" in log
    assert "<td>ada</td>" in log
    assert "<td>the service</td>" in log
    assert log.index("did not come back") < log.index("its first health session passed")
    assert "the last 1 change of state" in log
    assert "unplugged" in log


def test_machine_lists_its_power_cycles_with_their_end(reader: Reader) -> None:
    sick_machine()
    power = section(reader.read("/machines/bench-2/"), "power")
    assert "switched off and on" in power
    assert "it did not come back from a session" in power
    assert 'id="power"' not in reader.read(f"/machines/{build_machine('bench-3', 'zen1').name}/")


def test_list_of_machines_says_why_one_gets_no_work_and_what_to_do(reader: Reader) -> None:
    sick_machine()
    row = words(reader.read("/machines/").split("bench-2</a>")[1].split("</tr>")[0])
    assert row.index("quarantined") < row.index("did not come back") < row.index("offline: not connected")
    assert "It is to be switched off and on; look at it if that does not help." in row


def test_warm_tree_is_told_by_its_last_build_alone(reader: Reader) -> None:
    builder, tree = build_builder("b1"), build_tree("linux-mm")
    builds = [build_build(build_revision(tree)) for _ in range(3)]
    for build, state in zip(builds, ("done", "done", "lost"), strict=True):
        build_attempt(build, state=state, builder=builder)
    warm = words(section(reader.read("/builders/b1/"), "warm"))
    assert warm.count("linux-mm</a>") == 1
    assert f"build {builds[1].pk}</a>" in warm


def test_builder_shows_what_it_builds_and_what_it_built(reader: Reader) -> None:
    busy_lab()
    text = words(reader.read("/builders/builder-1/"))
    for fact in (
        "2 of 2 builds at a time",
        "x86_64, arm64",
        "compiling",
        "stuck",
        "Waiting for next available",
        "612 s",
    ):
        assert fact in text
    assert "triggered 2 times" in text
    assert "taking it out of the queue: asked" in text
    assert "Linux 7.3-rc1" in section(text, "built")
    assert "stable</a> lab-x86-64 x86_64" in section(text, "warm")


def test_only_the_last_build_of_a_tree_and_configuration_is_its_warm_one(reader: Reader) -> None:
    builder = build_builder()
    builds = [build_build(build_revision()) for _ in range(3)]
    for build in builds:
        build_attempt(build, state=Attempt.State.DONE, builder=builder)
    build_attempt(build_build(state="failed"), state=Attempt.State.DONE, builder=builder)
    warm = section(reader.read("/builders/builder-1/"), "warm")
    assert warm.count("<li>") == 1
    assert f"build {builds[-1].pk}<" in warm


def test_builder_that_is_lost_keeps_the_builds_it_did_not_end(reader: Reader) -> None:
    builder = build_builder(health=Builder.Health.QUARANTINED, health_reason="3 builds lost in a row")
    build_attempt(build_build(state="wanted"), state=Attempt.State.LOST, reason="no heartbeat", builder=builder)
    text = reader.read("/builders/builder-1/")
    assert "3 builds lost in a row" in text
    assert "no heartbeat" in section(text, "built")
    assert 'id="warm"' not in text


def test_list_of_builders_counts_what_each_has_now(reader: Reader) -> None:
    assert "No builder is registered yet." in reader.read("/builders/")
    busy_lab()
    text = reader.read("/builders/")
    assert "2 of 2" in words(text.split("builder-1</a>")[1].split("</tr>")[0])
    assert text.index("builder-1</a>") < text.index("builder-2</a>")


@pytest.mark.parametrize("path", ["/builders/nobody/", "/machines/nobody/"])
def test_unknown_hosts_are_not_found(reader: Reader, path: str) -> None:
    assert "404" in reader.read(path, status=404)


def test_health_session_has_a_title_a_purpose_and_a_history_of_its_own(reader: Reader) -> None:
    machine = build_machine("bench-1", "zen3")
    session = build_health_session(machine, state="done", reason="all boots measured")
    build_attempt(session, state=Attempt.State.DONE)
    text = reader.read(f"/sessions/{session.pk}/")
    assert f"<h1>Health session {session.pk} on bench-1</h1>" in text
    assert "one kernel on both sides" in text
    assert text.count("✓ as planned") == 4
    history = section(text, "history")
    assert "session on bench-1" in history
    assert f"attempt session-{session.pk}-1" in history
    assert "boot 3 (base) on bench-1" in history
    assert "whether the machine is well" in reader.read("/machines/bench-1/")


def test_session_links_the_kernels_that_it_boots(reader: Reader) -> None:
    session = build_session()
    text = reader.read(f"/sessions/{session.pk}/")
    assert f'href="/builds/{session.base_build_id}/"' in text
    assert f'href="/builds/{session.patched_build_id}/"' in text


def test_history_names_the_person_behind_a_step(reader: Reader) -> None:
    session = build_session()
    session.advance("canceled", because("not needed"), actor="ada")
    assert "by ada" in section(reader.read(f"/sessions/{session.pk}/"), "history")


def test_duplicate_triggers_and_steps_of_stopping_are_shown(reader: Reader) -> None:
    busy_machine()
    run = JenkinsRun.objects.get()
    for step in ("cancel_asked_at", "stop_asked_at", "disconnect_asked_at"):
        setattr(run, step, run.seen_at)
    run.absent_since = run.seen_at
    run.save()
    running = section(reader.read("/machines/bench-1/"), "running")
    for fact in ("stopping its build: asked", "disconnecting its node: asked", "not seen there since"):
        assert fact in running


def test_console_of_work_that_failed_before_the_agent_came_stands_on_its_hosts_page_for_staff(
    reader: Reader, admin_client: Client
) -> None:
    builder, machine = build_builder("b-1"), build_machine("bench-1")
    lost = Attempt.State.LOST
    unclaimed = {"state": lost, "adapter": "jenkins", "fault": Fault.HOST}
    built = build_attempt(build_build(), builder=builder, **unclaimed)
    measured = build_attempt(build_session(machine=machine), **unclaimed)
    for path, attempt in (("/builders/b-1/", built), ("/machines/bench-1/", measured)):
        told = f"authentication-failed on {attempt.key}"
        JenkinsRun.objects.create(attempt=attempt, job="job", console=told)
        assert told in Reader(admin_client).read(path)
        assert told not in reader.read(path)


def test_pages_of_hosts_change_nothing(client: Client) -> None:
    machine = busy_machine()
    before = Transition.objects.count()
    for path in ("/machines/", "/machines/bench-1/", "/builders/", "/queue/", "/status/"):
        assert client.post(path).status_code == 405
        assert client.get(path).status_code == 200
    assert Transition.objects.count() == before
    assert Machine.objects.get(pk=machine.pk).state == machine.state
