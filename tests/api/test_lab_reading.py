"""What scripts read about kernels, hosts and how work gets to them."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.lab.models import Attempt, Machine
from tests.builders import (
    because,
    build_attempt,
    build_build,
    build_builder,
    build_health_session,
    build_machine,
    build_power_cycle,
    build_session,
    build_tree,
)
from tests.lab_scenarios import CONTROLLER, busy_lab, made_build

pytestmark = pytest.mark.django_db


def read(client: Client, name: str, *args: Any, **query: Any) -> Any:
    response = client.get(reverse(name, args=args), query)
    assert response.status_code == 200, response.content
    return response.json()


def test_build_tells_its_error_its_text_and_where_its_files_are(client: Client) -> None:
    build = made_build()
    told = read(client, "api-build-detail", build.pk)
    assert told["text_hash"] == "7" * 64
    assert told["config"]["fragments"] == ["lab", "gone"]
    files = {file["kind"]: file for file in told["artifacts"]}
    assert files["config"]["path"] == f"/builds/{build.pk}/files/config/"
    assert files["system-map"]["path"] is None
    assert files["system-map"]["removal"] == "not used for 30 days"
    failed = build_build(state="failed", first_error="mm/memory.c:7: error: no")
    assert read(client, "api-build-detail", failed.pk)["first_error"] == "mm/memory.c:7: error: no"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"state": "built"}, 2),
        ({"state": "failed"}, 1),
        ({"text_hash": "7" * 64}, 2),
        ({"config": "lab-x86-64"}, 2),
        ({"tree": "stable"}, 3),
        ({"arch": "x86_64"}, 3),
        ({"until": "2999-01-01T00:00:00Z"}, 3),
        ({"until": "2026-01-01T00:00:00Z"}, 0),
        ({"since": "2999-01-01T00:00:00Z"}, 0),
    ],
)
def test_builds_can_be_narrowed(client: Client, query: dict[str, str], found: int) -> None:
    made_build()
    build_build(state="failed")
    assert len(read(client, "api-build-list", **query)["results"]) == found


def test_machine_keeps_state_and_health_apart_and_tells_who_changed_it(client: Client) -> None:
    busy_lab()
    told = read(client, "api-machine-detail", "bench-2")
    assert (told["state"], told["state_reason"]) == ("offline", "not connected")
    assert told["health"] == "quarantined"
    assert [(line["after"], line["actor"]) for line in told["health_log"]][:3] == [
        ("quarantined", ""),
        ("good", ""),
        ("unknown", "ada"),
    ]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"health": "quarantined"}, ["bench-2"]),
        ({"state": "working"}, ["bench-1"]),
        ({"capability": "cxl"}, ["bench-1"]),
        ({"uarch": "zen3"}, ["bench-2"]),
    ],
)
def test_machines_can_be_narrowed(client: Client, query: dict[str, str], names: list[str]) -> None:
    busy_lab()
    assert [row["name"] for row in read(client, "api-machine-list", **query)["results"]] == names


def test_builders_are_listed_with_what_they_build(client: Client) -> None:
    busy_lab()
    assert [row["name"] for row in read(client, "api-builder-list", arch="arm64")["results"]] == ["builder-1"]
    told = read(client, "api-builder-detail", "builder-1")
    assert (told["arches"], told["capacity"], told["health_log"]) == (["x86_64", "arm64"], 2, [])


def test_attempt_has_its_run_at_the_controller(client: Client) -> None:
    machine = busy_lab()
    attempt = Attempt.objects.get(machine=machine)
    told = read(client, "api-attempt-detail", attempt.key)
    assert told["machine"] == "bench-1"
    assert told["session"] == attempt.session_id
    assert told["run"]["job"] == "tidemark-session-bench-1"
    assert told["run"]["number"] == 41
    assert not told.keys() & {"log", "host"}
    local = build_attempt(build_session(), state="done")
    assert read(client, "api-attempt-detail", local.key)["run"] is None


def test_attempts_can_be_narrowed(client: Client) -> None:
    busy_lab()
    lost = build_attempt(build_build(state="wanted"), state="lost", builder=build_builder())
    keys = [row["key"] for row in read(client, "api-attempt-list", state="lost")["results"]]
    assert keys == [lost.key]
    over = read(client, "api-attempt-list", active="false", builder="builder-1")["results"]
    assert {row["state"] for row in over} == {"done", "lost"}
    assert [row["machine"] for row in read(client, "api-attempt-list", machine="bench-1")["results"]] == ["bench-1"]
    assert client.get(reverse("api-attempt-list"), {"active": "perhaps"}).status_code == 400


def test_no_answer_has_a_secret(client: Client) -> None:
    busy_lab()
    secret = issue_token(name="bench-1", scope=ApiToken.Scope.MACHINE, subject="bench-1")
    names = ["attempt-list", "builder-list", "machine-list", "power-cycle-list", "session-list", "build-list", "queue"]
    everything = "".join(client.get(reverse(f"api-{name}")).content.decode() for name in names)
    Attempt.objects.exclude(agent="").update(host="zx7.lab.internal", log="in /srv/lab-secret")
    told = Attempt.objects.exclude(agent="").values_list("agent", "key")
    everything += "".join(client.get(reverse("api-attempt-detail", args=[key])).content.decode() for _, key in told)
    for hidden in (secret, ApiToken.objects.get().prefix, told[0][0], CONTROLLER, "zx7.lab", "lab-secret"):
        assert hidden not in everything


def test_power_cycles_can_be_narrowed(client: Client) -> None:
    busy_lab()
    states = [row["state"] for row in read(client, "api-power-cycle-list", machine="bench-2")["results"]]
    assert states == ["wanted", "done"]
    assert len(read(client, "api-power-cycle-list", state="wanted")["results"]) == 1


def test_health_sessions_have_a_purpose_and_no_series(client: Client) -> None:
    health = build_health_session(build_machine("bench-1", "zen3"))
    session = build_session()
    told = read(client, "api-session-detail", health.pk)
    assert (told["purpose"], told["series"]) == ("health", None)
    assert told["base_build"] == told["patched_build"]
    assert [row["id"] for row in read(client, "api-session-list", purpose="health")["results"]] == [health.pk]
    assert [row["id"] for row in read(client, "api-session-list", series=session.series_id)["results"]] == [session.pk]


def test_queue_is_the_one_of_the_pages(client: Client) -> None:
    machine = build_machine("bench-1", "zen3", health="quarantined", health_reason="3 boots lost")
    session = build_session(machine=machine)
    build_power_cycle(machine)
    told = read(client, "api-queue")
    assert told["total"] == 2
    row = told["rows"][1]
    assert (row["kind"], row["id"], row["machine"], row["place"]) == ("session", session.pk, "bench-1", 1)
    assert row["why"] == "bench-1: quarantined: 3 boots lost"
    assert row["series"] == session.series_id
    build_tree("mm")
    assert read(client, "api-queue", tree="mm") == {"total": 0, "rows": []}
    assert client.get(reverse("api-queue"), {"tree": "no-such-tree"}).status_code == 400


def test_queue_of_one_machine_has_the_places_of_the_whole(client: Client) -> None:
    machine = build_machine("bench-1", "zen3")
    session = build_session(machine=machine)
    build_session(machine=build_machine("bench-2", "zen3"))
    build_build(state="wanted")
    told = read(client, "api-queue", machine="bench-1")
    assert (told["total"], [row["id"] for row in told["rows"]]) == (1, [session.pk])
    assert "bench-1, bench-2" in client.get(reverse("api-queue"), {"machine": "bench-9"}).content.decode()


def test_sessions_are_found_by_any_mail_of_their_series(client: Client) -> None:
    session = build_session()
    build_session()
    assert session.series is not None
    mail = session.series.patches.get(index=2).message.message_id
    assert [row["id"] for row in read(client, "api-session-list", message_id=mail)["results"]] == [session.pk]
    assert read(client, "api-session-list", message_id="none@example.org")["results"] == []


def test_machine_says_what_alone_lifts_its_quarantine(client: Client) -> None:
    build_machine("bench-1", health="quarantined", health_reason="it drifts", health_hold="lifted by ada")
    told = read(client, "api-machine-detail", "bench-1")
    assert (told["health_reason"], told["health_hold"]) == ("it drifts", "lifted by ada")


def test_history_of_a_series_names_the_person(client: Client) -> None:
    session = build_session()
    session.advance("canceled", because("not needed"), actor="ada")
    steps = read(client, "api-series-history", session.series_id)["steps"]
    assert {step["actor"] for step in steps} == {"", "ada"}


def test_lists_of_the_lab_need_one_query_each_or_two_with_runs(
    client: Client, django_assert_max_num_queries: Any
) -> None:
    busy_lab()
    for number in range(5):
        build_attempt(build_session(machine=build_machine(f"bench-{number}9", "zen1")), state="done")
    for name in ("machine-list", "attempt-list", "build-list", "session-list", "builder-list", "power-cycle-list"):
        with django_assert_max_num_queries(2 if name == "attempt-list" else 1):
            read(client, f"api-{name}")
    assert Machine.objects.count() == 7
