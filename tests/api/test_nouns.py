"""Small lists that scripts start from: kinds of CPUs, benchmarks, cases, metrics, mails, accepted trade-offs."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from server.core import clock
from server.detection.models import Acceptance, ChangePoint, Finding, MeasuredHead, Timeline, TimelinePoint
from server.reports.models import Delivery, Report
from server.results.benchmarks import expand, load_benchmark
from server.results.models import Case
from server.sources.models import ChangedPath
from tests.builders import (
    EPOCH,
    build_case,
    build_comparison,
    build_finding,
    build_machine,
    build_measurement,
    build_metric,
    build_revision,
    build_series,
    build_session,
    build_trial,
    build_uarch,
)

pytestmark = pytest.mark.django_db
_BENCHMARKS = Path(__file__).resolve().parents[2] / "agents" / "benchmarks"


def rows(client: Client, path: str) -> list[dict[str, Any]]:
    answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 200, answer.content
    told: list[dict[str, Any]] = answer.json()["results"]
    return told


def regressed(uarch: str = "zen3") -> Finding:
    series = build_series()
    build_comparison(build_session(series, build_machine(f"m-{uarch}", uarch)), "regressed")
    return build_finding(series)


def report(finding: Finding, *, delivery: str | None = None) -> Report:
    made = Report.objects.create(
        finding=finding,
        first_of=finding,
        state="draft",
        subject="Re: mm",
        body="text",
        in_reply_to="m@x",
        to=["ada@example.org"],
    )
    if delivery:
        sent_at = EPOCH if delivery == "sent" else None
        Delivery.objects.create(report=made, message_id=f"r{made.pk}@x", state=delivery, sent_at=sent_at)
    return made


def test_kinds_of_cpus_say_how_many_machines_are_of_them(client: Client) -> None:
    build_machine("a", "zen3")
    build_machine("b", "zen3")
    build_uarch("haswell")
    told = {row["name"]: row["machines"] for row in rows(client, "uarchs/")}
    assert told == {"zen3": 2, "haswell": 0}
    assert len(rows(client, "uarchs/?arch=x86_64")) == 2


def test_cases_have_their_parameters_as_fields(client: Client) -> None:
    build_case("fault-4k", parameters={"size": "4k"})
    build_case("fault-2m", parameters={"size": "2m"}, enabled=False)
    build_case("send", "net", parameters={})
    assert [row["benchmark"] for row in rows(client, "benchmarks/") if "benchmark" in row] == []
    assert {row["name"] for row in rows(client, "benchmarks/")} == {"mm-basic", "net"}
    (row,) = rows(client, "cases/?parameter=size:4k")
    assert (row["name"], row["parameters"], row["enabled"]) == ("fault-4k", {"size": "4k"}, True)
    assert [row["name"] for row in rows(client, "cases/?benchmark=net")] == ["send"]
    assert [row["name"] for row in rows(client, "cases/?enabled=false")] == ["fault-2m"]


def test_parameters_of_a_case_are_those_of_its_matrix_and_its_command() -> None:
    entry = {
        "name": "copy-{size}",
        "title": "Copy",
        "matrix": {"size": ["4k", "2m"]},
        "command": ["{program}", "--format=simple", "function=copy_page", "bytes={size}"],
    }
    assert [case["parameters"] for case in expand(entry)] == [
        {"function": "copy_page", "size": "4k"},
        {"function": "copy_page", "size": "2m"},
    ]


def test_benchmarks_of_this_site_bring_their_parameters(client: Client) -> None:
    for folder in sorted(_BENCHMARKS.iterdir()):
        if (folder / "benchmark.toml").exists():
            load_benchmark(folder)
    assert Case.objects.exclude(parameters={}).count() > 20
    assert {row["parameters"]["size"] for row in rows(client, "cases/?parameter=size:64k&page_size=500")} == {"64k"}


def test_metrics_say_unit_and_direction(client: Client) -> None:
    build_metric("time")
    build_metric("speed", better="higher", unit="MB/s")
    (row,) = rows(client, "metrics/?better=higher")
    assert (row["benchmark"], row["name"], row["unit"]) == ("mm-basic", "speed", "MB/s")


def test_catalogue_has_all_names_at_once(client: Client, django_assert_num_queries: Any) -> None:
    build_uarch("zen3")
    build_case("fault-4k", parameters={"size": "4k"})
    build_case("copy", "net-basic")
    build_metric("time")
    with django_assert_num_queries(4):
        told = client.get("/api/v1/catalogue/").json()
    assert [one["name"] for one in told["uarchs"]] == ["zen3"]
    first, second = told["benchmarks"]
    assert (first["name"], second["name"]) == ("mm-basic", "net-basic")
    assert [(one["name"], one["parameters"]) for one in first["cases"]] == [("fault-4k", {"size": "4k"})]
    assert ([one["name"] for one in first["metrics"]], second["metrics"]) == (["time"], [])
    assert list(client.get("/api/v1/catalogue/?fields=uarchs").json()) == ["uarchs"]


def test_measurements_of_a_session_are_rows(client: Client) -> None:
    session = build_session(state="done")
    for boot in session.boots.all():
        build_measurement(boot, [9.0, 1.0 + boot.position])
    build_measurement(build_session(state="done").boots.first(), [5.0, 6.0])  # type: ignore[arg-type]
    told = rows(client, f"measurements/?session={session.pk}&arm=base&case=fault-4k")
    assert sorted((row["position"], row["values"], row["warmup"]) for row in told) == [
        (0, [9.0, 1.0], 1),
        (3, [9.0, 4.0], 1),
    ]
    refused = client.get("/api/v1/measurements/")
    assert refused.status_code == 400
    assert list(refused.json()["errors"]) == ["session"]


def test_mails_that_wait_and_mails_that_were_sent(client: Client) -> None:
    waiting, sent = report(regressed(), delivery="queued"), report(regressed(), delivery="sent")
    draft = report(regressed())
    assert [row["report"] for row in rows(client, "deliveries/?waiting=true")] == [waiting.pk]
    (row,) = rows(client, "deliveries/?state=sent")
    assert sent.series is not None
    assert (row["report"], row["finding"], row["series"]) == (sent.pk, sent.finding_id, sent.series.pk)
    assert [row["id"] for row in rows(client, f"reports/?finding={draft.finding_id}")] == [draft.pk]
    told = {row["id"]: row["delivery_state"] for row in rows(client, "reports/?state=draft")}
    assert told == {waiting.pk: "queued", sent.pk: "sent", draft.pk: None}


@pytest.mark.parametrize("path", ["reports/", "deliveries/"])
def test_no_list_of_mails_says_to_whom_they_go(client: Client, path: str) -> None:
    report(regressed(), delivery="queued")
    assert b"ada@example.org" not in client.get(f"/api/v1/{path}").content


def test_accepted_trade_offs_by_where_and_whether_they_hold(client: Client) -> None:
    finding = regressed()
    lines: dict[str, dict[str, Any]] = {
        "named": {"uarchs": ["zen3"], "metric": build_metric()},
        "all": {},
        "other": {"uarchs": ["haswell"]},
        "over": {"expires_at": clock.now() - timedelta(days=1)},
        "withdrawn": {"withdrawn_at": clock.now()},
    }
    for name, more in lines.items():
        Acceptance.objects.create(finding=finding, reason=name, person="ada", **more)
    build_uarch("haswell")
    build_metric("space")

    def reasons(query: str) -> set[str]:
        return {row["reason"] for row in rows(client, f"acceptances/?{query}")}

    assert reasons("active=true") == {"named", "all", "other"}
    assert reasons("active=false") == {"over", "withdrawn"}
    assert reasons("uarch=zen3&active=true") == {"named", "all"}
    assert reasons("uarch=haswell") == {"other"}
    assert reasons("metric=space&active=true") == {"all", "other"}
    assert reasons(f"finding={finding.pk + 1}") == set()


def test_level_changes_of_a_timeline_say_their_commits(client: Client) -> None:
    machine = build_machine("z3", "zen3")
    base = build_revision()
    branch = base.tree.branches.create(name="master")
    cell = {"machine": machine, "case": build_case(), "metric": build_metric(), "core_type": machine.core_types.get()}
    timeline = Timeline.objects.create(branch=branch, reference=base, **cell)
    shas = {}
    for place in (4, 7):
        revision = build_revision(base.tree)
        shas[place] = revision.sha
        trial = build_trial(base, revision)
        head = MeasuredHead.objects.create(branch=branch, revision=revision, reference=base, place=place, trial=trial)
        comparison = build_comparison(build_session(machine=machine))
        TimelinePoint.objects.create(timeline=timeline, head=head, comparison=comparison, place=place, ratio=1.0)
    ChangePoint.objects.create(
        timeline=timeline, first_place=7, place=7, before_place=4, effect=0.1, score=6.0, state="settled"
    )
    (step,) = client.get(f"/api/v1/timelines/{timeline.pk}/").json()["change_points"]
    assert (step["before_sha"], step["sha"]) == (shas[4], shas[7])


@pytest.mark.parametrize("path", ["path=mm/mem", "tree=stable"])
def test_series_are_found_by_what_they_touch_and_where(client: Client, path: str) -> None:
    series = build_series()
    build_series()
    ChangedPath.objects.create(message=series.patches.get(index=1).message, beginning="mm/memory.c")
    assert series.pk in [row["id"] for row in rows(client, f"series/?{path}")]
    assert [row["id"] for row in rows(client, "series/?path=mm/memory.c")] == [series.pk]
    assert rows(client, "series/?path=net/") == rows(client, "series/?path=mm/%25") == []


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("uarchs/", 1), ("benchmarks/", 1), ("cases/", 1), ("metrics/", 1), ("reports/", 1), ("deliveries/", 1),
        ("acceptances/", 1), ("timelines/", 1),
    ],
)  # fmt: skip
def test_lists_ask_as_often_for_many_rows_as_for_one(
    client: Client, django_assert_max_num_queries: Any, path: str, most: int
) -> None:
    for number in range(3):
        finding = regressed(f"u{number}")
        report(finding, delivery="queued")
        Acceptance.objects.create(finding=finding, reason="so", person="ada", metric=build_metric(f"t{number}"))
        build_case(f"case-{number}", f"bench-{number}")
    with django_assert_max_num_queries(most):
        rows(client, path)
