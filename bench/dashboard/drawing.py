"""What a picture costs Chromium: by the mark of the script that draws it, or by reading, layout and paint."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, ViewportSize, sync_playwright

_CHROMIUM = "/usr/bin/chromium"
_WINDOW: ViewportSize = {"width": 1400, "height": 900}
_PATIENCE_MS = 60_000
_MOMENT_MS = 300
_FIGURE = "main figure"
_BY_SCRIPT = "(mark) => performance.getEntriesByName(mark, 'measure').at(-1)?.duration ?? null"
# Written anew from its own source: parsed, styled, laid out; over when the frame that shows it is done. What the wait
# for a frame takes is in it.
_BY_SERVER = """async (selector) => {
  const figure = document.querySelector(selector);
  const { parentElement: parent, outerHTML: source } = figure;
  const frame = () => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done();
    channel.port2.postMessage(0);
  }));
  figure.remove();
  await frame();
  const begun = performance.now();
  parent.insertAdjacentHTML("beforeend", source);
  parent.getBoundingClientRect();
  await frame();
  return performance.now() - begun;
}"""


def draw(url: str, mark: str, rounds: int) -> list[float]:
    """Milliseconds of each round, each on a page that was just opened; nothing where there is no such picture.

    What a script draws is told by its measure `mark`.
    """
    with _page() as page:
        return [found for found in (_once(page, url, mark) for _ in range(rounds)) if found is not None]


@contextmanager
def _page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport=_WINDOW)
            page.set_default_timeout(_PATIENCE_MS)
            yield page
        finally:
            browser.close()


def _once(page: Page, url: str, mark: str) -> float | None:
    answer = page.goto(url, wait_until="load")
    if answer is None or not answer.ok or page.locator(_FIGURE).count() == 0:
        return None
    # A script that draws has done so a moment after the page is there.
    page.wait_for_timeout(_MOMENT_MS)
    found = page.evaluate(_BY_SCRIPT, mark) if mark else page.evaluate(_BY_SERVER, _FIGURE)
    return None if found is None else float(found)
