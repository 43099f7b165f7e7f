"""The keys of the list of findings, in a real browser; and the same acts without scripts."""

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page
from pytest_django.live_server_helper import LiveServer

from server.detection.models import Finding
from tests.dashboard.test_browser import chromium, look
from tests.dashboard.test_triage import found

PASSWORD = "correct horse battery"


def _sign_in(page: Page, site: str, back: str) -> list[str]:
    problems = look(page, f"{site}/login/?next={back}", "sign-in")
    page.fill("input[name=username]", "ada")
    page.fill("input[name=password]", PASSWORD)
    page.click("main button")
    page.wait_for_url(f"{site}{back}")
    return problems


@pytest.mark.real(minutes=1)
def test_finding_is_assigned_and_withdrawn_by_keys_alone(transactional_db: None, live_server: LiveServer) -> None:
    User.objects.create_superuser("ada", password=PASSWORD)
    older = found("regressed", {"zen3": "regressed"}, subject="mm: Older")
    newer = found("regressed", {"zen5": "regressed"}, subject="mm: Newer")
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        assert _sign_in(page, live_server.url, "/findings/") == []
        page.keyboard.press("?")
        assert page.locator("#keys").is_visible()
        page.keyboard.press("Escape")
        page.locator("#keys").wait_for(state="hidden")
        page.keyboard.press("j")
        page.keyboard.press("j")
        assert page.locator("tr.here").get_attribute("id") == f"f{older.pk}"
        page.keyboard.press("k")
        page.keyboard.press("x")
        assert page.locator(f"#f{newer.pk} input").is_checked()
        page.keyboard.press("a")
        page.wait_for_selector("p.note")
        assert "Assignee: ada" in " ".join((page.locator(f"#f{newer.pk}").text_content() or "").split())
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("i")
        page.keyboard.type("noise")
        page.locator("form[method=post] input[name=until]").focus()
        page.locator("input[name=reason]").focus()
        page.keyboard.press("Enter")
        page.locator(f"#f{older.pk} th a").first.focus()
        page.keyboard.press("i")
        page.keyboard.type("noise")
        page.locator("input[name=reason]").focus()
        page.keyboard.type("a night with an update")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "search"
    older.refresh_from_db()
    assert (older.state, older.reason) == (Finding.State.INVALID, "noise: a night with an update")


@pytest.mark.real(minutes=1)
def test_the_same_is_done_without_scripts(transactional_db: None, live_server: LiveServer) -> None:
    User.objects.create_superuser("ada", password=PASSWORD)
    finding = found("regressed", {"zen3": "regressed"}, subject="mm: Older")
    with chromium() as browser:
        page = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 844}).new_page()
        page.goto(f"{live_server.url}/login/?next=/findings/")
        page.fill("input[name=username]", "ada")
        page.fill("input[name=password]", PASSWORD)
        page.click("main button")
        page.check(f"#f{finding.pk} input")
        # Enter in a field presses no button: none of them is meant.
        page.fill("input[name=reason]", "known")
        page.press("input[name=reason]", "Enter")
        assert page.url == f"{live_server.url}/findings/"
        page.select_option("select[name=why]", "layout")
        page.click("button[value=invalid]")
        assert page.locator("p.note").inner_text().endswith("withdrawn.")
    finding.refresh_from_db()
    assert finding.state == Finding.State.INVALID
