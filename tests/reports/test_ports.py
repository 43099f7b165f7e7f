"""A finding in the words of other systems, held against their published schemas."""

import re

import pytest
from django.test import Client
from kcidb_io.schema import V5_3

from server.core.errors import DomainError
from server.detection.models import Finding, Verdict
from server.reports.subscribers.ports import kcidb_report, patchwork_check, regzbot_lines, trailers
from tests.builders import because
from tests.found_scenarios import split_finding
from tests.reports.test_subscriptions import found

pytestmark = pytest.mark.django_db


def test_patchwork_check_has_what_its_api_takes() -> None:
    finding = found()
    document = patchwork_check(finding)
    assert finding.series is not None
    messages = finding.series.patches.values_list("message__message_id", flat=True)
    assert document["message_id"] in set(messages)
    check = document["check"]
    assert set(check) == {"state", "target_url", "context", "description"}
    assert check["state"] in {"pending", "success", "warning", "fail"}
    assert re.fullmatch(r"[a-z0-9-]+", check["context"])
    assert len(check["description"]) <= 255
    assert check["target_url"].endswith(f"/series/{finding.series_id}/")


@pytest.mark.parametrize(
    ("kind", "state"), [("regressed", "fail"), ("split", "warning"), ("improved", "success"), ("unchanged", "success")]
)
def test_patchwork_state_is_that_of_the_worst(kind: str, state: str) -> None:
    finding = found()
    Finding.objects.filter(pk=finding.pk).update(kind=kind)
    finding.refresh_from_db()
    assert patchwork_check(finding)["check"]["state"] == state


def test_withdrawn_finding_fails_nobody() -> None:
    finding = found()
    finding.advance(Finding.State.INVALID, because("wrong base"))
    check = patchwork_check(finding)["check"]
    assert check["state"] == "pending"
    assert check["description"] == "withdrawn: wrong base"
    with pytest.raises(DomainError):
        trailers(finding)


def test_kcidb_report_is_valid_by_its_schema() -> None:
    report = kcidb_report(split_finding())
    assert V5_3.validate_exactly(report) == report
    assert {test["status"] for test in report["tests"]} == {"FAIL", "PASS"}
    [checkout] = report["checkouts"]
    assert {build["checkout_id"] for build in report["builds"]} == {checkout["id"]}
    assert {test["build_id"] for test in report["tests"]} <= {build["id"] for build in report["builds"]}
    assert len(checkout["patchset_hash"]) == 64


def test_virtual_finding_is_told_nowhere() -> None:
    finding = found(virtual=True)
    for document in (patchwork_check, kcidb_report, regzbot_lines, trailers):
        with pytest.raises(DomainError, match="virtual"):
            document(finding)


def test_trailers_say_what_was_seen() -> None:
    finding = found()
    assert trailers(finding).startswith("Reported-by: ")
    finding.verdicts.update(verdict=Verdict.UNCHANGED, mde=0.014, comparison=None)
    finding.kind = Finding.Kind.UNCHANGED
    assert trailers(finding).rstrip().endswith("# zen3: no change (would have seen 1.4 %)")


def test_regzbot_names_the_commit_of_a_tree_regression_and_no_series() -> None:
    with pytest.raises(DomainError, match="not merged"):
        regzbot_lines(found())


def test_api_gives_each_document_or_says_why_there_is_none(client: Client) -> None:
    finding = split_finding()
    base = f"/api/v1/findings/{finding.pk}"
    assert client.get(f"{base}/patchwork/").json()["check"]["state"] == "warning"
    assert V5_3.validate_exactly(client.get(f"{base}/kcidb/").json())
    assert "Closes: " in client.get(f"{base}/trailers/").json()["text"]
    refused = client.get(f"{base}/regzbot/")
    assert (refused.status_code, refused.json()["code"]) == (404, "not-for-it")
