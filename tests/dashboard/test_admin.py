"""The admin: everything can be looked at, and what services write cannot be changed by hand."""

import pytest
from django.apps import apps
from django.contrib import admin
from django.test import Client

from server.core.access.tokens import issue_token
from server.core.models import ApiToken, Transition
from server.lab.models import Builder, Machine
from server.reports.models import Report
from server.sources.models import Series
from tests.builders import build_builder, build_machine, build_series, build_tree
from tests.lab_scenarios import busy_lab
from tests.scenarios import busy_site

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("virtual_verdicts")]
ROOMS = ("core", "sources", "builds", "lab", "results", "detection", "reports")
# Shown with the row they belong to.
PARTS = {"Branch", "CoreType", "ChangedPath", "Measurement"}


def test_every_model_can_be_looked_at(admin_client: Client) -> None:
    busy_site()
    busy_lab()
    # The pages are found when the first address is asked for.
    assert admin_client.get("/admin/").status_code == 200
    for room in ROOMS:
        for model in apps.get_app_config(room).get_models():
            if model.__name__ in PARTS:
                continue
            assert admin.site.is_registered(model), model
            address = f"/admin/{room}/{model._meta.model_name}/"
            assert admin_client.get(f"{address}?q=x").status_code == 200
            assert admin_client.get(address).status_code == 200
            row = model._default_manager.first()
            if row is not None:
                assert admin_client.get(f"{address}{row.pk}/change/").status_code == 200, address


def test_rows_that_services_write_are_read_only(admin_client: Client) -> None:
    series = build_series(state=Series.State.HELD)
    page = f"/admin/sources/series/{series.pk}/change/"
    assert 'name="_save"' not in admin_client.get(page).content.decode()
    assert admin_client.post(page, {"state": "ready"}).status_code == 403
    assert admin_client.post(f"/admin/sources/series/{series.pk}/delete/", {"post": "yes"}).status_code == 403
    series.refresh_from_db()
    assert series.state == Series.State.HELD


def test_series_is_approved_where_its_mails_are_shown_only(admin_client: Client) -> None:
    series = build_series(state=Series.State.HELD)
    act(admin_client, "/admin/sources/series/", "approve", series.pk)
    series.refresh_from_db()
    assert series.state == Series.State.HELD
    page = admin_client.get(f"/admin/sources/series/{series.pk}/change/").content.decode()
    assert f'href="/series/{series.pk}/"' in page


def test_sent_report_cannot_be_rejected(admin_client: Client) -> None:
    busy_site()
    report = Report.objects.get()
    assert "0 done" in act(admin_client, "/admin/reports/report/", "reject", report.pk)
    report.refresh_from_db()
    assert report.state == Report.State.SENT


def test_admin_takes_no_address_that_opens_something(admin_client: Client) -> None:
    tree = build_tree("mm", url="https://git.example.org/mm.git")
    for url in ("https://bob:hunter2@git.example.org/mm.git", "https://git.example.org/mm.git?token=hunter2"):
        form = {"name": "mm", "url": url, "poll_seconds": 300, "priority": 0, "branches-TOTAL_FORMS": 0}
        text = admin_client.post(
            f"/admin/sources/tree/{tree.pk}/change/", {**form, "branches-INITIAL_FORMS": 0}
        ).content.decode()
        assert "TIDEMARK_GIT_CREDENTIALS" in text
    tree.refresh_from_db()
    assert tree.url == "https://git.example.org/mm.git"


def test_token_is_revoked_and_its_digest_never_shown(admin_client: Client) -> None:
    issue_token(name="bench-1", scope=ApiToken.Scope.MACHINE, subject="bench-1")
    token = ApiToken.objects.get()
    page = admin_client.get(f"/admin/core/apitoken/{token.pk}/change/").content.decode()
    assert token.prefix in page
    assert token.digest not in page
    act(admin_client, "/admin/core/apitoken/", "revoke", token.pk)
    token.refresh_from_db()
    assert token.revoked_at is not None


@pytest.mark.parametrize(
    ("kind", "action", "health"),
    [
        ("machine", "quarantine", "quarantined"),
        ("machine", "maintain", "maintenance"),
        ("machine", "have_checked", "unknown"),
        ("builder", "quarantine", "quarantined"),
    ],
)
def test_person_decides_about_a_host_with_a_reason(admin_client: Client, kind: str, action: str, health: str) -> None:
    host: Machine | Builder = build_machine("bench-1", "zen3") if kind == "machine" else build_builder()
    address = f"/admin/lab/{kind}/"
    refused = act(admin_client, address, action, host.pk, reason=" ")
    assert "0 done" in refused
    assert "1 done" in act(admin_client, address, action, host.pk, reason="it drifts")
    host.refresh_from_db()
    assert host.health == health
    change = Transition.objects.filter(subject=f"{kind}-health", subject_id=host.pk).latest("id")
    assert change.actor == "admin"
    assert change.reason == "it drifts"


def test_health_and_state_of_a_machine_cannot_be_typed_in(admin_client: Client) -> None:
    machine = build_machine("bench-1", "zen3")
    page = admin_client.get(f"/admin/lab/machine/{machine.pk}/change/").content.decode()
    for field in ("state", "health", "health_reason", "last_seen_at", "boot_id"):
        assert f'name="{field}"' not in page
    assert 'name="capabilities"' in page
    assert 'name="node"' in page


def act(client: Client, address: str, action: str, pk: int, **fields: str) -> str:
    response = client.post(address, {"action": action, "_selected_action": [pk], **fields}, follow=True)
    assert response.status_code == 200
    return response.content.decode()
