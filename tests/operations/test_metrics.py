"""`/metrics`: who may read it, what it tells, and that dashboard and alarms ask for what is there."""

import json
import re
from pathlib import Path

import pytest
import yaml
from celery import Celery
from django.db import connection
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from pytest_django.fixtures import DjangoAssertNumQueries, Settings

from server.operations import pulse
from server.operations.standing import database_size, standing
from server.sources.models import Tree
from tests.builders import build_case, build_measurement, build_metric, build_session
from tests.house.sources import ROOT

FILES = ROOT / "docs/operations/watching"
NAME = re.compile(r"\btidemark_[a-z_]+")
# What a family's samples are called beyond its own name.
ELSEWHERE = "203.0.113.9"
MOST_QUERIES = 14


def told(client: Client) -> dict[str, float]:
    response = client.get("/metrics")
    assert response.status_code == 200
    families = text_string_to_metric_families(response.content.decode())
    return {
        f"{sample.name}{json.dumps(sample.labels, sort_keys=True)}": sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.django_db
def test_metrics_are_for_this_host_or_for_the_token(client: Client, settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n", encoding="utf-8")
    assert client.get("/metrics").status_code == 200
    # A proxy on this host asks for somebody else.
    assert client.get("/metrics", headers={"X-Forwarded-For": ELSEWHERE}).status_code == 403
    shown = {"Authorization": "Bearer s3cret"}
    assert client.get("/metrics", REMOTE_ADDR=ELSEWHERE, headers=shown).status_code == 403
    settings.METRICS_TOKEN_FILE = str(file)
    assert client.get("/metrics", REMOTE_ADDR=ELSEWHERE, headers=shown).status_code == 200
    refused = client.get("/metrics", REMOTE_ADDR=ELSEWHERE, headers={"Authorization": "Bearer s3cre"})
    assert refused.status_code == 403
    assert refused.json()["code"] == "forbidden"


@pytest.mark.django_db
def test_loopback_proves_nothing_where_a_proxy_may_be_there(client: Client, settings: Settings, tmp_path: Path) -> None:
    for name in ("Forwarded", "Via", "X-Real-IP", "X-Forwarded-Proto", "X-Forwarded-Host"):
        assert client.get("/metrics", headers={name: "x"}).status_code == 403
    # This one says nothing of whom it asks for.
    settings.SITE_URL = "https://tidemark.example"
    assert client.get("/metrics").status_code == 403
    file = tmp_path / "token"
    file.write_text("s3cret\n", encoding="utf-8")
    settings.METRICS_TOKEN_FILE = str(file)
    assert client.get("/metrics").status_code == 403
    assert client.get("/metrics", headers={"Authorization": "Bearer s3cret"}).status_code == 200


@pytest.mark.django_db
def test_sweeps_refusals_and_watchers_are_told(client: Client) -> None:
    Tree.objects.create(name="mainline", url="https://example.org/a.git")
    with pulse.noted("lab.sweep"):
        pass
    with pytest.raises(RuntimeError), pulse.noted("reports.sweep"):
        raise RuntimeError
    pulse.add_counts(pulse.REFUSED, {"disk-full": 2})
    found = told(client)
    assert found["tidemark_broker_up{}"] == 1
    assert found['tidemark_sweep_last_success_timestamp_seconds{"sweep": "lab.sweep"}'] > 0
    assert found['tidemark_sweep_seconds{"sweep": "reports.sweep"}'] >= 0
    assert found['tidemark_uploads_refused_total{"code": "disk-full"}'] >= 2
    assert found['tidemark_queue_messages{"queue": "lab"}'] >= 0
    assert found['tidemark_open_rows{"kind": "build", "state": "wanted"}'] == 0


@pytest.mark.django_db(transaction=True)
def test_rows_of_values_are_counted_as_they_come() -> None:
    before = database_size().values_stored
    build_measurement(build_session().boots.order_by("position")[0], [1.0, 2.0], build_case(), build_metric())
    with connection.cursor() as cursor:
        # The server's counters are a second late otherwise.
        cursor.execute("SELECT pg_stat_force_next_flush()")
    assert database_size().values_stored == before + 1


@pytest.mark.django_db
def test_a_broker_that_is_away_is_told_and_ends_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = Celery("dead", broker="redis://127.0.0.1:1/0", set_as_current=False)
    monkeypatch.setattr(pulse, "current_app", dead)
    with pulse.noted("lab.sweep"):
        pass
    assert told(client)["tidemark_broker_up{}"] == 0


@pytest.mark.django_db
def test_the_standing_is_asked_in_few_queries(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    for number in range(5):
        Tree.objects.create(name=f"tree-{number}", url="https://example.org/a.git")
    with django_assert_max_num_queries(MOST_QUERIES):
        standing()


@pytest.mark.django_db
def test_dashboard_and_alarms_ask_for_metrics_that_are_there(client: Client) -> None:
    Tree.objects.create(name="mainline", url="https://example.org/a.git")
    with pulse.noted("lab.sweep"):
        pass
    pulse.add_counts(pulse.REFUSED, {"disk-full": 1})
    there = {name.partition("{")[0] for name in told(client)}
    dashboard = json.loads((FILES / "grafana.json").read_text(encoding="utf-8"))
    rules = yaml.safe_load((FILES / "alarms.yaml").read_text(encoding="utf-8"))
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
        for name in NAME.findall(target["expr"])
    }
    alarms = [rule for group in rules["groups"] for rule in group["rules"]]
    asked |= {name for rule in alarms for name in NAME.findall(rule["expr"])}
    assert asked <= there
    assert {panel["title"] for panel in dashboard["panels"]} >= {"Oldest wait", "Messages in queues", "Watchers behind"}
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert all(rule["labels"]["severity"] in {"page", "look"} and rule["annotations"]["summary"] for rule in alarms)
