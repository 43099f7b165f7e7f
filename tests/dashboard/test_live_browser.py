"""Parts of pages that renew themselves, in a real browser with the site's own content security policy."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet
from playwright.sync_api import Page, expect
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from server.core import clock
from server.lab.models import Boot, Machine, Session
from tests.builders import build_attempt, build_machine, build_series, build_session
from tests.dashboard.test_browser import chromium


def running() -> Session:
    machine = build_machine("bench-1", "zen3", state=Machine.State.WORKING)
    session = build_session(build_series(), machine, state=Session.State.RUNNING)
    build_attempt(session, agent="a" * 64, progress="boot 1: mm-basic")
    return session


def meanwhile(rows: "QuerySet[Any]", **fields: object) -> None:
    """In a thread of its own: the browser's thread runs an event loop, in which Django asks no database."""

    def change() -> None:
        rows.update(**fields)
        connection.close()

    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(change).result()


def end_boot(session: Session, position: int) -> None:
    boot = Boot.objects.filter(session=session, position=position)
    meanwhile(boot, state=Boot.State.FAILED, started_at=clock.now() - timedelta(minutes=1), ended_at=clock.now())


def watch(page: Page, part: str) -> tuple[list[str], list[str]]:
    """What the page complains about, and how often it asks for its part."""
    problems: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith(part) else None)
    return problems, asked


@pytest.mark.real(minutes=1)
def test_progress_of_a_session_is_renewed_until_it_is_over(
    transactional_db: None, live_server: LiveServer, settings: Settings
) -> None:
    settings.DISPATCHER = "jenkins"
    session = running()
    with chromium() as browser:
        page = browser.new_page()
        problems, asked = watch(page, f"/sessions/{session.pk}/progress/")
        page.clock.install()
        page.goto(f"{live_server.url}/sessions/{session.pk}/")
        expect(page.locator("main")).to_contain_text("0 of 4 boots ended")
        end_boot(session, 0)
        page.clock.run_for(6000)
        expect(page.locator("main")).to_contain_text("1 of 4 boots ended, 1 of them without a measurement")
        meanwhile(Session.objects.filter(pk=session.pk), state=Session.State.DONE, reason="all boots have a result")
        page.clock.run_for(6000)
        expect(page.locator("main")).to_contain_text("It is over: all boots have a result.")
        before = len(asked)
        page.clock.run_for(60_000)
        page.wait_for_load_state("networkidle")
        assert len(asked) == before
        assert problems == []


@pytest.mark.real(minutes=1)
def test_machines_are_renewed_and_stay_readable_without_scripts(
    transactional_db: None, live_server: LiveServer, settings: Settings
) -> None:
    settings.DISPATCHER = "jenkins"
    session = running()
    with chromium() as browser:
        page = browser.new_page()
        problems, _ = watch(page, "/live/machines/")
        page.clock.install()
        page.goto(f"{live_server.url}/machines/")
        expect(page.locator("tr.busy")).to_contain_text("0 of 4 boots")
        sick = {"health": "quarantined", "health_reason": "3 boots lost"}
        meanwhile(Machine.objects.filter(pk=session.machine_id), **sick)
        page.clock.run_for(11_000)
        expect(page.locator("tr.sick")).to_contain_text("3 boots lost")
        assert problems == []
        plain = browser.new_context(java_script_enabled=False).new_page()
        plain.goto(f"{live_server.url}/machines/")
        end_boot(session, 0)
        plain.get_by_role("link", name="reload").click()
        expect(plain.locator("tr.sick")).to_contain_text("1 of 4 boots, 1 failed")
