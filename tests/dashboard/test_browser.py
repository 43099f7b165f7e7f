"""The pages in a real browser: wide and narrow, light and dark, with the scripts running."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from bench.dashboard.watched import watched
from server.builds.models import Build
from server.dashboard.verdicts.finding_parts import FINDING_PARTS
from server.dashboard.verdicts.series_parts import PARTS
from server.lab.models import Session
from server.sources.models import Series
from tests.found_scenarios import moved_timeline, split_finding
from tests.lab_scenarios import CONTROLLER, busy_lab
from tests.scenarios import busy_site, erms_regression

_CHROMIUM = "/usr/bin/chromium"
_WIDTHS = {"wide": 1400, "narrow": 390}
Scheme = Literal["light", "dark"]
_SCHEMES: tuple[Scheme, ...] = ("light", "dark")
# Every width and every scheme once: width decides what fits, the scheme which colors charts take, and neither asks for
# the other. Who wants the pictures gets all pairs.
_PAIRS: tuple[tuple[str, Scheme], ...] = (("wide", "light"), ("narrow", "dark"))
_ALL_PAIRS: tuple[tuple[str, Scheme], ...] = tuple((size, scheme) for size in _WIDTHS for scheme in _SCHEMES)
_LEAST_SIZE = 20
# Pages that are opened before the first of them is looked at: each is waited for until it asks for nothing more.
_AT_ONCE = 6
_NARROWEST = 360


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def paths(series: Series) -> dict[str, str]:
    sessions = {session.machine.name: session.pk for session in series.sessions.select_related("machine")}
    running = Series.objects.get(subject="mm: Batch the zeroing of folios")
    broken = Series.objects.get(subject="mm: Use a helper that is not there")
    failed_boot = running.sessions.get(machine__name="vm-haswell").pk
    return {
        "home": "/",
        "series-list": "/series/",
        "series": f"/series/{series.pk}/",
        **{f"series-{part}": f"/series/{series.pk}/{part}/" for part in PARTS},
        "compare": "/compare/",
        "series-running": f"/series/{running.pk}/",
        "series-broken": f"/series/{broken.pk}/",
        "session": f"/sessions/{sessions['vm-haswell']}/",
        "session-values": f"/sessions/{sessions['vm-haswell']}/values/",
        "session-wall": f"/sessions/{sessions['vm-haswell-wall']}/",
        "session-panic": f"/sessions/{failed_boot}/",
        "machines": "/machines/",
        "machine": "/machines/vm-zen3/",
        "machine-working": "/machines/bench-1/",
        "machine-sick": "/machines/bench-2/",
        "builders": "/builders/",
        "builder": "/builders/builder-1/",
        "build": f"/builds/{Build.objects.get(revision__subject='Linux 7.3-rc1').pk}/",
        "build-failed": f"/builds/{Build.objects.get(state=Build.State.FAILED).pk}/",
        "queue": "/queue/",
        "health-check": f"/sessions/{Session.objects.get(purpose=Session.Purpose.HEALTH).pk}/",
        "status": "/status/",
        "tree": "/trees/mm/",
        "message": f"/messages/{series.cover_id}/",
        "series-held": f"/series/{Series.objects.get(state=Series.State.HELD).pk}/",
        "missing": "/series/999999/",
    }


def found_paths() -> dict[str, str]:
    """Those of findings and timelines; who wants the pictures gets what else looks different with them."""
    finding, timeline = split_finding(), moved_timeline()
    found = {
        "findings": "/findings/",
        "finding": f"/findings/{finding.pk}/",
        **{f"finding-{part}": f"/findings/{finding.pk}/{part}/" for part in FINDING_PARTS},
        "timeline": f"/timelines/{timeline.pk}/",
    }
    more = {
        "series-split": f"/series/{finding.series_id}/",
        "branch": f"/trees/{timeline.branch.tree.name}/branches/{timeline.branch.name}/",
        "machine-noise": f"/machines/{timeline.machine.name}/",
    }
    return found | more if "TIDEMARK_SCREENSHOTS" in os.environ else found


@pytest.mark.real(minutes=2)
@pytest.mark.usefixtures("virtual_verdicts")
def test_pages_draw_and_fit_in_every_width_and_scheme(
    transactional_db: None, live_server: LiveServer, tmp_path: Path, settings: Settings
) -> None:
    settings.DISPATCHER, settings.JENKINS_URL = "jenkins", CONTROLLER
    series = busy_site()
    busy_lab()
    wanted = paths(series) | found_paths()
    folder = Path(os.environ.get("TIDEMARK_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for size, scheme in _ALL_PAIRS if "TIDEMARK_SCREENSHOTS" in os.environ else _PAIRS:
            context = browser.new_context(viewport={"width": _WIDTHS[size], "height": 900}, color_scheme=scheme)
            for name, page, problems in opened(context, live_server.url, wanted):
                problems.extend(seen(page, name))
                if problems or "TIDEMARK_SCREENSHOTS" in os.environ:
                    page.screenshot(path=folder / f"{name}-{size}-{scheme}.png", full_page=True)
                if size == "narrow":
                    page.set_viewport_size({"width": _NARROWEST, "height": 900})
                    problems.extend(fit(page))
                assert problems == [], f"{name} {size} {scheme}"
                page.close()
            context.close()


def opened(context: BrowserContext, site: str, wanted: dict[str, str]) -> Iterator[tuple[str, Page, list[str]]]:
    """Name and page of each path, and what its scripts complain of."""
    names = list(wanted)
    for start in range(0, len(names), _AT_ONCE):
        pages = [(name, context.new_page()) for name in names[start : start + _AT_ONCE]]
        yield from [(name, page, go(page, f"{site}{wanted[name]}", name)) for name, page in pages]


def fit(page: Page) -> list[str]:
    """What scripts draw takes the new width a moment after the window has it."""
    for _ in range(30):
        if page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"):
            return []
        page.wait_for_timeout(100)
    return ["the page scrolls sideways"]


@pytest.mark.real(minutes=2)
@pytest.mark.usefixtures("virtual_verdicts")
def test_page_without_scripts_has_its_values_in_tables(
    transactional_db: None, live_server: LiveServer, tmp_path: Path
) -> None:
    series = erms_regression()
    folder = Path(os.environ.get("TIDEMARK_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        page = browser.new_context(java_script_enabled=False).new_page()
        page.goto(f"{live_server.url}/series/{series.pk}/boots/")
        assert not page.locator(".chart").first.is_visible()
        values = page.locator("details", has_text="Values of mm-basic/fault-4k")
        assert not values.locator("table").is_visible()
        values.locator("summary").click()
        assert values.locator("table").is_visible()
        page.emulate_media(media="print")
        page.screenshot(path=folder / "series-print.png", full_page=True)
        # Paper cannot be clicked: there all values stand open.
        assert page.locator("details", has_text="Values of mm-basic/cow-4k").locator("table").is_visible()


@pytest.mark.real(minutes=1)
@pytest.mark.usefixtures("virtual_verdicts")
@pytest.mark.parametrize("width", _WIDTHS.values(), ids=_WIDTHS)
def test_nothing_moves_when_boots_are_drawn(transactional_db: None, live_server: LiveServer, width: int) -> None:
    series = erms_regression()
    session = series.sessions.get(machine__name="vm-haswell")
    with chromium() as browser:
        seen = watched(browser.new_context(viewport={"width": width, "height": 900}), live_server.url)
        for path in (f"/series/{series.pk}/boots/", f"/sessions/{session.pk}/values/"):
            seen.page.goto(f"{live_server.url}{path}")
            assert seen.page.locator(".dots canvas").first.is_visible()
            assert seen.look() == [], path


def look(page: Page, url: str, name: str) -> list[str]:
    """Open a page and say what is wrong with it."""
    problems = go(page, url, name)
    return problems + seen(page, name)


def go(page: Page, url: str, name: str) -> list[str]:
    """Open a page; the list grows by what its scripts complain of."""
    problems: list[str] = []

    def note(message: ConsoleMessage) -> None:
        # The browser itself notes the 404 on its console.
        if message.type in ("error", "warning") and not (name == "missing" and "404" in message.text):
            problems.append(message.text)

    page.on("pageerror", lambda error: problems.append(f"script: {error}"))
    page.on("console", note)
    page.goto(url)
    return problems


def seen(page: Page, name: str) -> list[str]:
    """What is wrong with an open page that asks for nothing more."""
    page.wait_for_load_state("networkidle")
    problems = fit(page)
    if page.locator("h1").count() != 1:
        problems.append("not exactly one h1")
    if name == "session-values" and page.locator("canvas").count() == 0:
        problems.append("no chart")
    for box in page.locator("canvas").all():
        size = box.bounding_box()
        if size is None or size["width"] < _LEAST_SIZE or size["height"] < _LEAST_SIZE:
            problems.append("a chart has no size")
    return problems
