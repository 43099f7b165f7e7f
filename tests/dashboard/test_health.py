"""What supervisors ask: the process lives, and it can work."""

from pathlib import Path

import pytest
from celery import Celery
from django.db import connection
from django.test import Client
from pytest_django.fixtures import Settings

from server.dashboard import site


def test_healthz_answers_without_a_database(client: Client) -> None:
    # Without the django_db mark any query would fail this test.
    response = client.get("/healthz")
    assert response.status_code == 200
    assert response.json() == {"status": "ok"}
    assert "no-store" in response["Cache-Control"]


@pytest.mark.django_db
def test_readyz_is_ok_when_database_and_broker_answer(client: Client) -> None:
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json() == {"status": "ok", "checks": {"database": "ok", "broker": "ok"}}


@pytest.mark.django_db
def test_readyz_names_a_broker_that_does_not_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = Celery("dead", broker="redis://127.0.0.1:1/0", set_as_current=False)
    monkeypatch.setattr(site, "current_app", dead)
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json() == {
        "status": "unavailable",
        "code": "broker-unreachable",
        "checks": {"database": "ok", "broker": "unreachable"},
    }


@pytest.mark.django_db
def test_readyz_names_a_database_that_does_not_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = {"host": "/nonexistent", "dbname": "tidemark"}
    monkeypatch.setattr(connection, "get_connection_params", lambda: nowhere)
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["checks"] == {"database": "unreachable", "broker": "ok"}


@pytest.mark.django_db
def test_readyz_names_a_database_of_an_older_version(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "_migrations", lambda: frozenset({("reports", "9999_not_yet")}))
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["code"] == "database-not-migrated"


def test_health_is_asked_and_never_told(client: Client) -> None:
    assert client.post("/healthz").status_code == 405


def test_health_is_not_sent_to_https(client: Client, settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert client.get("/healthz").status_code == 200
    assert client.get("/series/").status_code == 301


def test_agent_is_handed_out_as_one_file(client: Client, settings: Settings, tmp_path: Path) -> None:
    settings.LOCAL_AGENT = str(tmp_path / "agent.pyz")
    missing = client.get("/tidemark-agent.pyz")
    assert missing.status_code == 404
    (tmp_path / "agent.pyz").write_bytes(b"#!/usr/bin/env python3\nPK")
    answer = client.get("/tidemark-agent.pyz")
    assert (answer.status_code, b"".join(answer)) == (200, b"#!/usr/bin/env python3\nPK")
    assert 'filename="tidemark-agent.pyz"' in answer["Content-Disposition"]
    again = client.get("/tidemark-agent.pyz", headers={"If-None-Match": answer["ETag"]})
    assert again.status_code == 304
    (tmp_path / "agent.pyz").write_bytes(b"#!/usr/bin/env python3\nPK, a later one")
    later = client.get("/tidemark-agent.pyz", headers={"If-None-Match": answer["ETag"]})
    assert later.getvalue().endswith(b"a later one")
    assert client.post("/tidemark-agent.pyz").status_code == 405
