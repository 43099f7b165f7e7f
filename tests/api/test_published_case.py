"""The document of a published case."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from tidemark_agent.reproduce.document import read_document

from server.detection.models import Comparison, Verdict
from server.lab.models import Boot, Session
from server.results.models import Benchmark
from server.sources.models import Series
from tests.builders import (
    build_boot,
    build_case,
    build_comparison,
    build_machine,
    build_measurement,
    build_series,
    build_session,
    build_version,
    tell_boots,
)

pytestmark = pytest.mark.django_db
CELL = ("mm-basic", "fault-4k")


def judged() -> Series:
    series = build_series()
    for name, verdict in (("zen5", Verdict.IMPROVED), ("haswell", Verdict.REGRESSED)):
        session = build_session(series, build_machine(f"box-{name}", name), state=Session.State.DONE)
        build_comparison(session, verdict)
        build_comparison(session, verdict, case=build_case("copy"))
    return series


def read(client: Client, series: Series, *cell: str) -> Any:
    response = client.get(reverse("api-series-case", args=(series.pk, *(cell or CELL))))
    assert response.status_code == 200, response.content
    return response.json()


def test_document_holds_the_case_the_kernels_and_one_cell_for_each_machine(client: Client) -> None:
    series = judged()
    told = read(client, series)
    assert (told["format"], told["version"]) == ("tidemark-case", 1)
    assert told["case"] == {
        "benchmark": "mm-basic",
        "version": "1",
        "name": "fault-4k",
        "title": "fault-4k",
        "parameters": {},
        "runs": 6,
        "warmup": 1,
        "timeout_seconds": 60,
    }
    assert [(cell["uarch"], cell["verdict"]) for cell in told["cells"]] == [
        ("haswell", "regressed"),
        ("zen5", "improved"),
    ]
    assert [machine["name"] for machine in told["machines"]] == ["box-haswell", "box-zen5"]
    assert [metric["unit"] for metric in told["metrics"]] == ["ns"]
    session = Session.objects.get(pk=told["machines"][0]["session"])
    assert told["machines"][0]["patched"]["build_id"] == session.patched_build.build_id
    assert series.head is not None
    assert told["patched"]["sha"] == series.head.sha


def test_facts_are_those_of_the_first_boot_and_never_more_than_a_document_can_bear(client: Client) -> None:
    series = judged()
    boots = Boot.objects.filter(session__series=series, session__machine__name="box-zen5")
    tell_boots(boots, facts={"cmdline": "late"})
    facts = {"cmdline": "x" * 9000, "model_name": 7, "flags": ["erms", 5], "virtual": True}
    tell_boots(boots.filter(position=0), facts=facts)
    machine = read(client, series)["machines"][1]
    assert (machine["cmdline"], machine["model_name"], machine["flags"]) == ("x" * 4000, "", ["erms", "5"])
    assert (machine["virtual"], machine["evidence"]) == (True, False)


def test_case_that_was_not_judged_in_this_series_is_not_found(client: Client) -> None:
    series = judged()
    Comparison.objects.filter(case__name="copy").delete()
    for cell in (("mm-basic", "copy"), ("mm-basic", "none"), ("none", "fault-4k")):
        response = client.get(reverse("api-series-case", args=(series.pk, *cell)))
        assert (response.status_code, response.json()["code"]) == (404, "not-found")


def test_agent_reads_what_the_service_gives(client: Client) -> None:
    series = judged()
    Benchmark.objects.update(version="ab" * 32)
    tell_boots(Boot.objects.all(), facts={"flags": ["erms"], "cmdline": "quiet"})
    response = client.get(reverse("api-series-case", args=(series.pk, *CELL)))
    published = read_document(response.content)
    assert (published.case, published.version, published.runs) == ("fault-4k", "ab" * 32, 6)
    assert [(cell.uarch, cell.verdict, cell.ratio) for cell in published.cells] == [
        ("haswell", "regressed", 1.71),
        ("zen5", "improved", 0.8),
    ]
    assert published.machines[0].flags == {"erms"}


def test_document_names_the_version_that_measured_not_today_s(client: Client) -> None:
    series = judged()
    boot = build_boot(series.sessions.get(machine__uarch__name="haswell"), 40, "base", measured=True)
    build_measurement(boot, [1.0, 2.0])
    boot.packed.update(version=build_version(build_case(), "cd" * 32))
    Benchmark.objects.update(version="ab" * 32)
    response = client.get(reverse("api-series-case", args=(series.pk, *CELL)))
    assert response.json()["case"]["version"] == "cd" * 32


def test_page_of_the_series_links_to_the_document(client: Client) -> None:
    series = judged()
    page = client.get(reverse("series-part", args=(series.pk, "figures"))).content.decode()
    assert f'href="{reverse("api-series-case", args=(series.pk, *CELL))}"' in page


def test_many_machines_cost_no_more_questions(client: Client, django_assert_max_num_queries: Any) -> None:
    series = judged()
    with django_assert_max_num_queries(9):
        read(client, series)
