"""Findings by what people ask: where something regressed, in which case, by how much, by whose patches."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from server.core import clock
from server.detection.models import Finding, FindingVerdict
from server.sources.models import ChangedPath
from tests.builders import (
    build_case,
    build_comparison,
    build_finding,
    build_machine,
    build_metric,
    build_revision,
    build_series,
    build_session,
    build_uarch,
)

pytestmark = pytest.mark.django_db
_FAULT = {"size": "4k", "cache": "hot"}


def found(client: Client, query: str) -> list[int]:
    answer = client.get(f"/api/v1/findings/?{query}")
    assert answer.status_code == 200, answer.content
    return sorted(row["id"] for row in answer.json()["results"])


def split_finding(**fields: Any) -> Finding:
    """Regressed on zen3 in fault-4k (1.71), improved on haswell in copy-4k (0.8)."""
    series = build_series()
    on_zen3 = build_session(series, build_machine("m-zen3", "zen3"))
    on_haswell = build_session(series, build_machine("m-haswell", "haswell"))
    build_comparison(on_zen3, "regressed", case=build_case("fault-4k", parameters=_FAULT))
    build_comparison(on_haswell, "improved", case=build_case("copy-4k", parameters={"size": "4k", "cache": "cold"}))
    return build_finding(series, Finding.Kind.SPLIT, **fields)


def calm_finding() -> Finding:
    """Unchanged on zen3, in fault-4k."""
    series = build_series(author_address="bob@example.org")
    case = build_case("fault-4k", parameters=_FAULT)
    build_comparison(build_session(series, build_machine("m-zen3", "zen3")), "unchanged", case=case)
    return build_finding(series, Finding.Kind.UNCHANGED)


@pytest.mark.parametrize(
    ("query", "is_there"),
    [
        ("regressed_on=zen3", True),
        ("regressed_on=haswell", False),
        ("improved_on=haswell", True),
        ("improved_on=zen3", False),
        ("regressed_on=zen3&improved_on=haswell", True),
        ("regressed_on=zen3&regressed_on=haswell", False),
        ("regressed_on=idle", False),
        ("machine=m-zen3", True),
        ("machine=m-idle", False),
        ("benchmark=mm-basic", True),
        ("benchmark=other", False),
        ("case=fault-4k", True),
        ("case=fault-4k&machine=m-zen3", True),
        # Each is true of some cell, both of none.
        ("case=fault-4k&machine=m-haswell", False),
        ("case=fault-4k&regressed_on=zen3", True),
        ("case=copy-4k&regressed_on=zen3", False),
        ("metric=time", True),
        ("parameter=size:4k", True),
        ("parameter=size:4k&parameter=cache:hot", True),
        ("parameter=cache:cold&case=fault-4k", False),
        ("effect=0.7", True),
        ("effect=0.72", False),
        ("effect=0.19", True),
        ("effect=0.5&improved_on=haswell", False),
        ("effect=0.19&improved_on=haswell", True),
        ("effect=0.5&case=copy-4k", False),
        ("effect=0.19&case=copy-4k", True),
        ("tree=stable", True),
        ("author=ADA@example.org", True),
        ("author=bob@example.org", False),
        ("path=mm/", True),
        ("path=mm/huge", True),
        ("path=memory.c", False),
        ("path=net/", False),
        ("path=mm%25", False),
        ("since=2026-01-01T00:00:00Z", True),
        ("since=2026-01-01", True),
        ("since=2999-01-01T00:00:00Z", False),
        ("until=2999-01-01T00:00:00Z", True),
        ("until=2026-01-01T00:00:00Z", False),
    ],
)
def test_split_is_found_by_what_holds_of_it(client: Client, query: str, is_there: bool) -> None:
    build_machine("m-idle", "idle")
    build_case("any", "other")
    calm_finding()
    finding = split_finding()
    assert finding.series is not None
    message = finding.series.patches.get(index=2).message
    for path in ("Documentation/a", "mm/huge_memory.c"):
        ChangedPath.objects.create(message=message, beginning=path)
    assert (finding.pk in found(client, query)) is is_there


def test_what_did_not_change_is_no_answer_to_where_something_changed(client: Client) -> None:
    calm_finding()
    assert found(client, "case=fault-4k") == []
    assert found(client, "effect=0") == []
    assert len(found(client, "uarch=zen3")) == 1


def test_cell_that_a_check_took_away_is_no_claim(client: Client) -> None:
    finding = split_finding()
    FindingVerdict.objects.filter(finding=finding, uarch__name="zen3").update(verdict="inconclusive")
    assert found(client, "case=fault-4k") == []
    assert found(client, "case=copy-4k") == [finding.pk]


@pytest.mark.parametrize(
    ("query", "is_there"),
    [
        ("regressed_on=zen3&effect=0.7", True),
        ("regressed_on=zen3&effect=0.72", False),
        ("improved_on=zen3&effect=0.5", False),
        ("improved_on=zen3&effect=0.19", True),
        ("regressed_on=zen3&improved_on=zen3&effect=0.19", True),
        ("effect=0.7", True),
    ],
)
def test_effect_on_a_split_uarch_is_that_of_the_cell_that_moved_so(client: Client, query: str, is_there: bool) -> None:
    series = build_series()
    session = build_session(series, build_machine("m-zen3", "zen3"))
    build_comparison(session, "regressed", case=build_case("fault-4k"))
    build_comparison(session, "improved", case=build_case("copy-4k"))
    finding = build_finding(series, Finding.Kind.SPLIT)
    FindingVerdict.objects.filter(finding=finding).update(verdict="split")
    assert found(client, query) == ([finding.pk] if is_there else [])


def test_uarch_that_is_split_between_cases_regressed_and_improved(client: Client) -> None:
    finding = split_finding()
    FindingVerdict.objects.filter(finding=finding, uarch__name="zen3").update(verdict="split")
    assert found(client, "regressed_on=zen3") == found(client, "improved_on=zen3") == [finding.pk]
    assert found(client, "improved_on=zen3&case=fault-4k") == []


def test_findings_of_a_commit_are_found_by_its_first_digits(client: Client) -> None:
    culprit, fix = build_revision(sha="abcdef01" + "0" * 32), build_revision(sha="abcdef02" + "0" * 32)
    finding, other = split_finding(culprit=culprit), calm_finding()
    Finding.objects.filter(pk=other.pk).update(fix=fix)
    assert found(client, "commit=abcdef01") == [finding.pk]
    assert found(client, "commit=ABCDEF0") == [finding.pk, other.pk]
    assert found(client, "commit=1234567") == []


def test_findings_of_a_branch_are_found_by_tree_branch_and_ends(client: Client) -> None:
    finding = split_finding()
    branch = build_series().mailing_list.tree.branches.create(name="master")  # type: ignore[union-attr]
    before, after = build_revision(), build_revision(sha="fedcba9" + "0" * 33)
    Finding.objects.update(series=None, branch=branch, before=before, after=after)
    for query in ("branch=master", f"tree={branch.tree.name}", "commit=fedcba9"):
        assert found(client, query) == [finding.pk]


def test_finding_is_found_by_any_mail_of_its_series(client: Client) -> None:
    finding = split_finding()
    calm_finding()
    assert finding.series is not None
    patch = finding.series.patches.get(index=2).message.message_id
    assert found(client, f"message_id={patch}") == [finding.pk]


def test_span_holds_its_first_moment_and_not_its_last(client: Client) -> None:
    finding = split_finding()
    moment = clock.now().replace(microsecond=0)
    Finding.objects.update(created_at=moment)
    said, later = (f"{one:%Y-%m-%dT%H:%M:%SZ}" for one in (moment, moment + timedelta(seconds=1)))
    assert found(client, f"since={said}&until={later}") == [finding.pk]
    assert found(client, f"until={said}") == []


def test_rows_carry_the_vector_with_its_figures(client: Client) -> None:
    split_finding()
    (row,) = client.get("/api/v1/findings/?regressed_on=zen3").json()["results"]
    haswell, zen3 = row["vector"]
    assert (haswell["uarch"], haswell["verdict"], haswell["ratio"]) == ("haswell", "improved", 0.8)
    assert {name: zen3[name] for name in ("uarch", "verdict", "machine", "benchmark", "case", "metric", "mde")} == {
        "uarch": "zen3",
        "verdict": "regressed",
        "machine": "m-zen3",
        "benchmark": "mm-basic",
        "case": "fault-4k",
        "metric": "time",
        "mde": 0.012,
    }
    assert zen3["low"] < zen3["ratio"] == 1.71 < zen3["high"]


def test_uarch_without_a_measurement_has_no_figures(client: Client) -> None:
    finding = split_finding()
    FindingVerdict.objects.create(
        finding=finding, uarch=build_uarch("alder"), verdict="inconclusive", reason="not measured: no machine"
    )
    (row,) = client.get("/api/v1/findings/").json()["results"]
    alder = row["vector"][0]
    assert (alder["uarch"], alder["ratio"], alder["machine"], alder["case"]) == ("alder", None, None, None)


def test_row_has_the_vector_that_the_finding_itself_tells(client: Client) -> None:
    finding = split_finding()
    FindingVerdict.objects.create(finding=finding, uarch=build_uarch("alder"), verdict="inconclusive")
    row = client.get("/api/v1/findings/").json()["results"][0]
    told = client.get(f"/api/v1/findings/{finding.pk}/").json()
    assert row["vector"] == told["vector"]
    assert len(row["vector"]) == 3


def test_list_asks_the_database_as_often_for_many_vectors_as_for_one(
    client: Client, django_assert_max_num_queries: Any
) -> None:
    for _ in range(5):
        split_finding()
    build_metric("space")
    with django_assert_max_num_queries(2):
        assert len(found(client, "")) == 5
    with django_assert_max_num_queries(8):
        assert len(found(client, "regressed_on=zen3&case=fault-4k&metric=time&parameter=size:4k&effect=0.1")) == 5
