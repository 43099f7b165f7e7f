"""A page in Chromium that notes what is wrong: scripts that fail, other hosts, shifts, axe, what does not fit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request

from bench.kit import ROOT

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
# What moves less than this nobody sees.
_LEAST_SHIFT = 0.01
_SHIFTS = """() => {
  window.shifted = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
}"""
_ASK_AXE = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations.map(
  (one) => `${one.id}: ${one.nodes.length} x, as ${one.nodes[0].target}`)"""
_TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@dataclass
class WatchedPage:
    """`site` is where everything must come from. `problems` are told by kind, and taken by who asks for them."""

    site: str
    page: Page
    problems: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self._note("script", str(error)))
        self.page.on("console", self._console)
        self.page.on("request", self._request)
        self.page.add_init_script(f"({_SHIFTS})()")

    def _note(self, kind: str, text: str) -> None:
        self.problems.append((kind, text[:300]))

    def _console(self, message: ConsoleMessage) -> None:
        # The browser itself notes what was refused; statuses are asked of the answer.
        if message.type in ("error", "warning") and "the server responded with a status of" not in message.text:
            self._note("console", message.text)

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.site, "data:", "blob:")):
            self._note("other host", request.url)

    def look(self) -> list[tuple[str, str]]:
        """What is wrong with the page as it stands now, and what was noted on the way here."""
        self.page.wait_for_load_state("networkidle")
        if (wide := self.page.evaluate(_TOO_WIDE)) > 0:
            self._note("too wide", f"by {wide} px")
        if (shift := self.page.evaluate("window.shifted ?? 0")) > _LEAST_SHIFT:
            self._note("layout shift", f"{shift:.3f}")
        self.page.evaluate(AXE.read_text())
        for told in self.page.evaluate(_ASK_AXE):
            self._note("axe", told)
        found, self.problems = self.problems, []
        return found


def watched(context: BrowserContext, site: str) -> WatchedPage:
    return WatchedPage(site, context.new_page())


Window = tuple[str, int, int, Any]
WINDOWS: Sequence[Window] = (
    ("wide", 1400, 900, "light"),
    ("wide", 1400, 900, "dark"),
    ("narrow", 390, 844, "light"),
    ("narrow", 390, 844, "dark"),
)


def picture(folder: Path | None, page: Page, name: str) -> None:
    if folder is not None:
        page.screenshot(path=folder / f"{name}.png", full_page=True)
