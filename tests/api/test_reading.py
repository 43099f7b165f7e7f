"""What strangers and scripts read."""

import json
from base64 import b64encode
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from server.detection.models import Comparison, Finding, Verdict
from server.detection.models.finding import FIGURES
from server.lab.models import Boot, Session
from server.reports.writing import compose_report
from server.sources.models import Branch, Series, Tree
from tests.builders import (
    build_comparison,
    build_finding,
    build_list,
    build_machine,
    build_measurement,
    build_message,
    build_revision,
    build_series,
    build_session,
    build_tree,
    build_uarch,
    tell_boots,
)

pytestmark = pytest.mark.django_db


def read(client: Client, name: str, *args: Any, **query: Any) -> Any:
    response = client.get(reverse(name, args=args), query)
    assert response.status_code == 200
    return json.loads(response.getvalue())


def judged_series(*, virtual: bool = False, machines: int = 1) -> Series:
    series = build_series()
    for n in range(machines):
        machine = build_machine(f"box-{virtual}-{n}".lower(), f"zen{n}", virtual=virtual)
        session = build_session(series, machine, state=Session.State.DONE)
        build_comparison(session, Verdict.REGRESSED)
        for boot in session.boots.all():
            build_measurement(boot, [2000.0, 1000.0, 1001.0])
    build_finding(series, virtual=virtual)
    return series


def test_series_detail_shows_author_patches_sessions_and_stages(client: Client) -> None:
    series = judged_series()
    compose_report(finding_id=series.finding.pk)
    told = read(client, "api-series-detail", series.pk)
    assert told["author"] == {"name": "Ada Author", "address": "ada@example.org"}
    assert [patch["index"] for patch in told["patches"]] == [1, 2]
    assert [stage["name"] for stage in told["progress"]["stages"]] == [
        "mails",
        "apply",
        "builds",
        "sessions",
        "verdict",
        "report",
    ]
    assert told["progress"]["state"] == "held"
    assert series.base is not None
    assert told["base"]["sha"] == series.base.sha
    assert told["sessions"][0]["machine"] == "box-false-0"
    assert told["finding"]["kind"] == "regressed"
    assert told["report"]["state"] == "draft"


def test_series_list_leaves_addresses_of_people_out(client: Client) -> None:
    judged_series()
    response = client.get(reverse("api-series-list"))
    assert b"ada@example.org" not in response.content
    assert response.json()["results"][0]["progress"]["state"] == "running"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"state": "applied"}, True),
        ({"state": "held"}, False),
        ({"list": "linux-mm"}, True),
        ({"tree": "stable"}, True),
        ({"until": "2999-01-01T00:00:00Z"}, True),
        ({"until": "2026-01-01T00:00:00Z"}, False),
        ({"author": "ADA@example.org"}, True),
        ({"author": "bob@example.org"}, False),
        ({"finding": "regressed"}, True),
        ({"finding": "improved"}, False),
        ({"message_id": "nothing@example.org"}, False),
    ],
)
def test_series_can_be_narrowed(client: Client, query: dict[str, str], found: bool) -> None:
    judged_series()
    assert bool(read(client, "api-series-list", **query)["results"]) is found


def test_long_series_tells_its_first_patches_and_pages_have_all(client: Client) -> None:
    series = build_series(total=205)
    told = client.get(f"/api/v1/series/{series.pk}/").json()
    assert told["total"] == 205
    assert [patch["index"] for patch in told["patches"]] == list(range(1, 201))
    found: list[dict[str, object]] = []
    address = f"/api/v1/series/{series.pk}/patches/"
    sizes = []
    while address:
        page = client.get(address).json()
        found += page["patches"]
        sizes.append(len(page["patches"]))
        address = page["next"]
    assert sizes == [100, 100, 5]
    assert [patch["index"] for patch in found] == list(range(1, 206))
    assert found[:200] == told["patches"]
    assert page["previous"]
    assert client.get(page["previous"]).json()["patches"][-1]["index"] == 200


def test_patches_of_a_series_in_very_large_pages_or_from_a_made_up_place(client: Client) -> None:
    series = build_series(total=2)
    address = f"/api/v1/series/{series.pk}/patches/"
    refused = client.get(f"{address}?page_size=1000000")
    assert refused.status_code == 400
    assert refused.json()["errors"] == {"page_size": ["Write a whole number from 1 to 200."]}
    cursor = b64encode(b"p=" + b"9" * 30).decode()
    assert client.get(address, {"cursor": cursor}).json()["patches"] == []
    assert client.get("/api/v1/series/999999/patches/").status_code == 404


def test_series_is_found_by_its_first_mail_and_by_each_of_its_patches(client: Client) -> None:
    series = build_series()
    build_series(build_list())
    patch = series.patches.get(index=2).message.message_id
    for message_id in (series.root_message_id, f"<{patch}>"):
        results = read(client, "api-series-list", message_id=message_id)["results"]
        assert [one["id"] for one in results] == [series.pk]


def test_pages_follow_each_other_without_gap(client: Client) -> None:
    ids = [build_series().pk for _ in range(5)]
    seen: list[int] = []
    page = read(client, "api-series-list", page_size=2)
    seen += [one["id"] for one in page["results"]]
    while page["next"]:
        page = client.get(page["next"]).json()
        seen += [one["id"] for one in page["results"]]
    assert seen == sorted(ids, reverse=True)


@pytest.mark.parametrize("cursor", ["cD14", "bm9uc2Vuc2U", "%00", "cD0xJnI9MQ==x", "cD0lMDA="])
def test_made_up_cursor_is_no_server_error(client: Client, cursor: str) -> None:
    build_series()
    response = client.get(f"{reverse('api-series-list')}?cursor={cursor}")
    assert response.status_code in {200, 404}


def test_history_tells_every_step(client: Client) -> None:
    series = judged_series()
    steps = read(client, "api-series-history", series.pk)["steps"]
    assert steps[0]["label"] == "series"
    assert {"series", "build", "session", "boot", "finding"} <= {step["subject"] for step in steps}


def test_session_shows_its_boots_in_order_with_their_proof(client: Client) -> None:
    session = build_session(state=Session.State.DONE)
    boots = read(client, "api-session-detail", session.pk)["boots"]
    assert [boot["arm"] for boot in boots] == ["base", "patched", "patched", "base"]
    assert [boot["position"] for boot in boots] == [0, 1, 2, 3]
    assert boots[0]["build_id"] == session.base_build.build_id
    assert all(boot["boot_id"] for boot in boots)


def test_samples_are_columns_with_one_entry_for_each_boot(client: Client) -> None:
    session = build_session(state=Session.State.DONE)
    for boot in session.boots.exclude(position=2):
        build_measurement(boot, [9.0, 1.0 + boot.position])
    told = read(client, "api-session-samples", session.pk)
    (column,) = told["columns"]
    assert (column["benchmark"], column["case"], column["metric"], column["unit"]) == (
        "mm-basic",
        "fault-4k",
        "time",
        "ns",
    )
    assert column["boots"] == [0, 1, 3]
    assert column["arms"] == ["base", "patched", "base"]
    assert column["judged"] == [True, True, True]
    assert column["values"] == [[9.0, 1.0], [9.0, 2.0], [9.0, 4.0]]
    assert column["warmup"] == [1, 1, 1]


def test_every_answer_about_virtual_machines_says_so(client: Client) -> None:
    series = judged_series(virtual=True)
    session = series.sessions.get()
    told = read(client, "api-series-detail", series.pk)
    answers = [
        told["finding"],
        told["sessions"][0],
        read(client, "api-series-list")["results"][0]["finding"],
        read(client, "api-session-detail", session.pk),
        read(client, "api-session-samples", session.pk),
        read(client, "api-session-cells", session.pk),
        read(client, "api-machine-list")["results"][0],
        read(client, "api-machine-detail", session.machine.name),
        read(client, "api-finding-list")["results"][0],
        read(client, "api-finding-detail", series.finding.pk),
    ]
    assert [(answer["virtual"], answer["evidence"]) for answer in answers] == [(True, False)] * len(answers)


def test_probe_that_saw_a_hypervisor_outweighs_what_a_machine_is_said_to_be(client: Client) -> None:
    series = judged_series(virtual=False)
    session = series.sessions.get()
    assert read(client, "api-session-detail", session.pk)["evidence"] is True
    tell_boots(Boot.objects.filter(session=session, position=1), facts={"virtual": True})
    for answer in (
        read(client, "api-session-detail", session.pk),
        read(client, "api-session-samples", session.pk),
        read(client, "api-finding-detail", series.finding.pk),
    ):
        assert (answer["virtual"], answer["evidence"]) == (True, False)


def test_finding_detail_is_a_vector_with_its_cells(client: Client) -> None:
    series = judged_series(machines=2)
    told = read(client, "api-finding-detail", series.finding.pk)
    assert [component["uarch"] for component in told["vector"]] == ["zen0", "zen1"]
    assert [cell["ratio"] for cell in told["comparisons"]] == [1.71, 1.71]
    assert told["vector"][0]["comparison_id"] == told["comparisons"][0]["comparison_id"]
    stored = Comparison.objects.get(pk=told["comparisons"][0]["comparison_id"])
    assert list(told["comparisons"][0].items())[-len(FIGURES) :] == [(name, getattr(stored, name)) for name in FIGURES]
    assert read(client, "api-finding-list", uarch="zen1")["results"]
    build_uarch("zen7")
    assert not read(client, "api-finding-list", uarch="zen7")["results"]


def test_build_shows_its_artifacts(client: Client) -> None:
    session = build_session()
    told = read(client, "api-build-detail", session.base_build_id)
    assert told["build_id"] == session.base_build.build_id
    assert told["artifacts"][0]["kind"] == "image"
    assert told["revision"]["sha"] == session.base_build.revision.sha


def test_trees_show_branches(client: Client) -> None:
    tree = build_tree(url="https://git.example.org/linux.git")
    Branch.objects.create(tree=tree, name="master", head=build_revision(tree))
    Branch.objects.create(tree=tree, name="next")
    told = read(client, "api-tree-list")["results"][0]
    assert told["url"] == "https://git.example.org/linux.git"
    assert [(branch["name"], branch["head"] is None) for branch in told["branches"]] == [
        ("master", False),
        ("next", True),
    ]


def test_lists_are_listed(client: Client) -> None:
    build_message()
    assert read(client, "api-list-list")["results"][0]["address"] == "linux-mm@example.org"


@pytest.mark.parametrize("path", ["series/999/", "nothing/", "series", "sessions/x/", "agent/nothing", "", "builds/0/"])
def test_unknown_address_is_a_problem_that_programs_can_read(client: Client, path: str) -> None:
    response = client.get(f"/api/v1/{path}")
    assert response.status_code == 404
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.json()["code"] == "not-found"
    assert response.json()["status"] == 404


def test_wrong_filter_is_a_problem_that_names_the_parameter(client: Client) -> None:
    response = client.get(reverse("api-series-list"), {"state": "nonsense"})
    assert response.status_code == 400
    assert list(response.json()["errors"]) == ["state"]


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("api-series-list", {"base_certain": "ture"}),
        ("api-message-list", {"explained": "2"}),
        ("api-branch-list", {"deleted": "none"}),
        ("api-machine-list", {"virtual": "no, never"}),
        ("api-message-list", {"thread": "1.5"}),
        ("api-finding-list", {"series": "1e3"}),
    ],
)
def test_misspelt_filter_does_not_answer_with_all_rows(client: Client, name: str, query: dict[str, str]) -> None:
    response = client.get(reverse(name), query)
    assert response.status_code == 400
    assert response.headers["Content-Type"] == "application/problem+json"
    assert list(response.json()["errors"]) == list(query)


@pytest.mark.parametrize("word", ["true", "True", "1", "false", "0"])
def test_filter_takes_the_usual_words_for_yes_and_no(client: Client, word: str) -> None:
    assert client.get(reverse("api-series-list"), {"base_certain": word}).status_code == 200


def test_reading_changes_nothing(client: Client) -> None:
    assert client.post(reverse("api-finding-list"), {}).status_code == 405


def test_stale_token_does_not_keep_anyone_from_reading(client: Client) -> None:
    response = client.get(reverse("api-series-list"), headers={"Authorization": "Bearer tm_old_old"})
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("api-series-list", 13),
        ("api-finding-list", 2),
        ("api-machine-list", 1),
        ("api-tree-list", 2),
        ("api-message-list", 1),
    ],
)
def test_lists_ask_the_database_as_often_for_many_rows_as_for_few(
    client: Client, django_assert_max_num_queries: Any, name: str, most: int
) -> None:
    for _ in range(4):
        judged_series(machines=2)
        Tree.objects.create(name=f"tree-{Tree.objects.count()}", url="x")
    with django_assert_max_num_queries(most):
        assert len(read(client, name)["results"]) >= 2


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("api-series-detail", 16),
        ("api-series-history", 7),
        ("api-session-detail", 2),
        ("api-session-samples", 3),
        ("api-session-cells", 2),
        ("api-finding-detail", 11),
        ("api-build-detail", 2),
    ],
)
def test_details_ask_the_database_a_few_times(
    client: Client, django_assert_max_num_queries: Any, name: str, most: int
) -> None:
    series = judged_series(machines=3)
    session = series.sessions.first()
    assert session is not None
    ids = {"series": series.pk, "session": session.pk, "finding": series.finding.pk, "build": session.base_build_id}
    with django_assert_max_num_queries(most):
        read(client, name, ids[name.split("-")[1]])


def test_docs_page_runs_no_foreign_script(client: Client, settings: Settings) -> None:
    settings.STORAGES = {
        "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    }
    response = client.get(reverse("api-docs"))
    page = response.content.decode()
    assert "/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js" in page
    assert "https://" not in page
    assert "<script>" not in page
    assert "style-src 'self' 'unsafe-inline'" in response.headers["Content-Security-Policy"]


def test_finding_without_a_series_of_its_own_is_not_shown_twice(client: Client) -> None:
    judged_series(machines=3)
    assert len(read(client, "api-finding-list", kind=Finding.Kind.REGRESSED)["results"]) == 1
