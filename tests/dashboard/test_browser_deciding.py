"""Moderating mails and keeping subscriptions in a real browser; what a stopped site has queued stays."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db import connections
from playwright.sync_api import Browser, Page
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from bench.dashboard.watched import WINDOWS, WatchedPage, picture, watched
from server.reports.models import Delivery, Report, Subscription
from server.reports.outbox import send_delivery
from tests.builders import build_uarch
from tests.dashboard.test_browser import chromium
from tests.dashboard.test_mails import report

pytestmark = pytest.mark.real(minutes=1)
_PASSWORD = "correct horse battery"
_BODY = "Regressed on zen3.\n\nAll data: here\n"


@pytest.fixture
def browser(transactional_db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    settings.MAIL_ENABLED = True
    # What the rows say is the composer's; here it is what was written.
    monkeypatch.setattr("server.reports.renewal.other_text", lambda _report: None)
    # The browser's own loop runs in this thread: what the site did is asked between its steps.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    User.objects.create_superuser("mo", "mo@example.org", _PASSWORD)
    with chromium() as found:
        yield found
        # While that loop runs Django connects anew for what is asked.
        connections.close_all()


@pytest.fixture
def folder() -> Path | None:
    wanted = os.environ.get("TIDEMARK_SCREENSHOTS")
    return Path(wanted) if wanted else None


class Seen:
    """One page, signed in, that is looked at in every window without being loaded anew."""

    def __init__(self, browser: Browser, site: str, folder: Path | None) -> None:
        self.site, self.folder = site, folder
        self.watched: WatchedPage = watched(browser.new_context(viewport={"width": 1400, "height": 900}), site)
        self.page: Page = self.watched.page
        self.page.goto(f"{site}/login/")
        self.page.fill("input[name=username]", "mo")
        self.page.fill("input[name=password]", _PASSWORD)
        self.page.click("main button")

    def look(self, name: str) -> None:
        """All windows for who wants the pictures, else each width and each scheme once."""
        for size, width, height, scheme in WINDOWS if self.folder else (WINDOWS[0], WINDOWS[3]):
            self.page.set_viewport_size({"width": width, "height": height})
            self.page.emulate_media(color_scheme=scheme)
            assert self.watched.look() == [], f"{name} {size} {scheme}"
            picture(self.folder, self.page, f"{name}-{size}-{scheme}")

    def open(self, path: str) -> None:
        self.page.goto(f"{self.site}{path}")

    def press(self, button: str, reason: str = "") -> None:
        if reason:
            self.page.fill("main input[name=reason]", reason)
        self.page.click(f"main button:text-is('{button}')")
        self.page.wait_for_load_state()


def test_mails_are_edited_approved_held_rejected_and_stopped(
    live_server: LiveServer, browser: Browser, folder: Path | None
) -> None:
    draft, held, unwanted = (report(f"Re: mm: {name}", body=_BODY, composed=_BODY) for name in ("One", "Two", "Three"))
    seen = Seen(browser, live_server.url, folder)
    page = seen.page
    seen.open("/mails/")
    seen.look("mails")
    seen.open(f"/mails/{draft.pk}/")
    seen.look("mail-draft")
    page.click("summary:text-is('Edit the text')")
    page.fill("textarea[name=body]", _BODY.replace("Regressed", "Slower"))
    seen.press("Keep this text", "plainer")
    assert page.locator(".went").inner_text() == "-Regressed on zen3."
    assert page.locator(".came").inner_text() == "+Slower on zen3."
    seen.look("mail-edited")
    seen.press("Approve and send")
    seen.open(f"/mails/{held.pk}/")
    seen.press("Hold", "the author is asked first")
    seen.look("mail-held")
    seen.open(f"/mails/{unwanted.pk}/")
    seen.press("Reject")
    assert "Nothing was done" in page.locator("main [role=alert]").inner_text()
    seen.press("Reject", "it was the machine")
    states = {row.pk: row.state for row in Report.objects.all()}
    assert states == {draft.pk: "approved", held.pk: "held", unwanted.pk: "rejected"}
    seen.open("/mails/")
    page.click("summary:text-is('Stop all mails and calls')")
    seen.press("Stop", "the list complains")
    seen.look("mails-stopped")
    queued = Delivery.objects.get()
    assert not send_delivery(delivery_id=queued.pk)
    assert mail.outbox == []
    seen.press("Go on", "it was another list")
    seen.look("mails-again")
    assert send_delivery(delivery_id=queued.pk)
    assert [sent.body.splitlines()[0] for sent in mail.outbox] == ["Slower on zen3."]


def test_subscriptions_are_made_changed_and_ended(
    live_server: LiveServer, browser: Browser, folder: Path | None
) -> None:
    build_uarch("zen3")
    build_uarch("zen5")
    seen = Seen(browser, live_server.url, folder)
    page = seen.page
    seen.open("/subscriptions/")
    seen.look("subscriptions-empty")
    page.select_option("form[action$='/add/'] select[name=uarch]", "zen3")
    seen.press("Subscribe")
    page.select_option("form[action$='/add/'] select[name=way]", "webhook")
    page.fill("form[action$='/add/'] input[name=url]", "https://hooks.example.org/tidemark")
    seen.press("Subscribe")
    secret = page.locator("code.secret").inner_text()
    assert secret.startswith("whsec_")
    seen.look("subscriptions-filled")
    page.reload()
    assert page.locator("code.secret").count() == 0
    seen.press("New secret")
    assert page.locator("code.secret").inner_text() != secret
    card = page.locator("article").first
    card.locator("summary:text-is('Change it')").click()
    card.locator("select[name=uarch]").select_option("zen5")
    seen.look("subscriptions-changing")
    card.locator("button:text-is('Change it')").click()
    page.wait_for_load_state()
    assert "what changed on zen5" in page.locator("article h2").first.inner_text().lower()
    page.locator("article").first.locator("button:text-is('End it')").click()
    page.wait_for_load_state()
    assert page.locator("article").count() == 1
    assert Subscription.objects.filter(ended_at=None).get().way == "webhook"
