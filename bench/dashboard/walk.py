"""Every page that links reach from home, in Chromium: what is wrong with it, wide and narrow, light and dark.

python -m bench.dashboard.walk [--site http://127.0.0.1:8000] [--most 3] [--login NAME] [--pictures FOLDER]: of each
kind of address so many are opened, on a site that runs (`make demo ARGS=--lab` fills one). Told are statuses that are
no 200, errors on the console, violations that axe finds, layout shifts, requests to other hosts, and what is wider than
its window. With --login the pages are those of somebody who is signed in (TIDEMARK_PASSWORD). Fails where something is.
"""

import argparse
import os
import re
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urldefrag, urljoin, urlsplit

from playwright.sync_api import Browser, Error, sync_playwright

from bench.dashboard.watched import WINDOWS, WatchedPage, picture, watched
from bench.table import table

_CHROMIUM = "/usr/bin/chromium"
_PATIENCE_MS = 60_000
# Addresses that are no pages of the dashboard, and one that ends the walk of who is signed in.
_NOT_WALKED = re.compile(r"^/(?:api|admin|static|logout|login|gallery)(?:/|$)")
_NO_PAGE = re.compile(r"(?:\.svg|\.csv|/feed/|/raw/|/text/|/files/[^/]+/|/course/|format=csv)")
_NAMED = {"machines": 1, "builders": 1, "trees": 1}
_LINKS = "[...document.querySelectorAll('a[href]')].map((link) => link.href)"


def kind_of(url: str) -> str:
    """The address with its names and numbers left out: `/trees/NAME/branches/NAME/`, `/findings/N/?state`."""
    parts = urlsplit(url)
    told = ["N" if word.isdecimal() else word for word in parts.path.split("/")]
    if told[1] in _NAMED and len(told) > 3:  # noqa: PLR2004 (the list itself has no name)
        told[2] = "NAME"
    if "branches" in told:
        told = [*told[: told.index("branches") + 1], "NAME", ""]
    asked = "&".join(sorted({name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}))
    return "/".join(told) + (f"?{asked}" if asked else "")


@dataclass
class Walk:
    site: str
    most: int
    pictures: Path | None = None
    seen: set[str] = field(default_factory=set)
    kinds: Counter[str] = field(default_factory=Counter)
    waiting: deque[str] = field(default_factory=deque)
    looks: int = 0
    # By what is wrong, and of which kind of page: the first that has it.
    problems: dict[tuple[str, str, str], str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, links: Sequence[str]) -> None:
        for link in links:
            url = urldefrag(urljoin(self.site, link)).url
            path = url.removeprefix(self.site)
            if url in self.seen or not url.startswith(f"{self.site}/") or _NOT_WALKED.match(path):
                continue
            kind = kind_of(url)
            self.seen.add(url)
            if self.kinds[kind] < self.most:
                self.kinds[kind] += 1
                self.waiting.append(url)

    def note(self, url: str, what: str, text: str) -> None:
        self.counts[what] += 1
        if (what, kind_of(url), text) not in self.problems:
            self.problems[what, kind_of(url), text] = url
            print(f"{what}: {text}: {url}", file=sys.stderr, flush=True)


def walk(browser: Browser, state: Walk, login: str) -> None:
    contexts = {size: browser.new_context(viewport={"width": width, "height": height})
                for size, width, height, _ in WINDOWS}  # fmt: skip
    pages = {size: watched(context, state.site) for size, context in contexts.items()}
    for one in pages.values():
        one.page.set_default_timeout(_PATIENCE_MS)
        if login:
            _sign_in(one, state.site, login)
    state.add([f"{state.site}/"])
    while state.waiting:
        url = state.waiting.popleft()
        if _NO_PAGE.search(url):
            answer = contexts["wide"].request.get(url)
            if answer.status != 200:  # noqa: PLR2004 (HTTP)
                state.note(url, "status", str(answer.status))
            continue
        for size, one in pages.items():
            _open(state, one, url, size)
        state.add(pages["wide"].page.evaluate(_LINKS))


def _open(state: Walk, one: WatchedPage, url: str, size: str) -> None:
    try:
        answer = one.page.goto(url)
    except Error as error:
        state.note(url, "not opened", error.message.splitlines()[0])
        return
    if answer is None or answer.status != 200:  # noqa: PLR2004 (HTTP)
        state.note(url, "status", str(answer.status if answer else "none"))
    for name, *_, scheme in WINDOWS:
        if name != size:
            continue
        one.page.emulate_media(color_scheme=scheme)
        state.looks += 1
        for what, text in one.look():
            state.note(url, what, f"{text} ({size}, {scheme})" if what != "console" else text)
        kind = re.sub(r"\W+", "-", kind_of(url)).strip("-") or "home"
        picture(state.pictures, one.page, f"{kind}-{size}-{scheme}")


def _sign_in(one: WatchedPage, site: str, login: str) -> None:
    one.page.goto(f"{site}/login/")
    one.page.fill("input[name=username]", login)
    one.page.fill("input[name=password]", os.environ.get("TIDEMARK_PASSWORD", ""))
    one.page.click("main button")
    one.page.wait_for_load_state()
    if urlsplit(one.page.url).path.startswith("/login/"):
        raise SystemExit(f"{login} is not signed in: no such user, or another password than TIDEMARK_PASSWORD")


@contextmanager
def _browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def report(state: Walk, seconds: float) -> str:
    found: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for (what, kind, text), url in state.problems.items():
        found[what, text.partition(" (")[0] if what == "axe" else text].append((kind, url))
    rows = [
        [what, text, str(len(where)), where[0][1].removeprefix(state.site)]
        for (what, text), where in sorted(found.items())
    ]
    total = sum(state.kinds.values())
    told = ", ".join(f"{count} x {what}" for what, count in sorted(state.counts.items())) or "nothing is wrong"
    head = f"{total} addresses of {len(state.kinds)} kinds, {state.looks} looks, {seconds:.0f} s: {told}"
    return f"{table(['what', 'told', 'kinds', 'for example'], rows)}\n{head}" if rows else head


def main() -> int:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.dashboard.walk", description=__doc__, formatter_class=plain)
    parser.add_argument("--site", default="http://127.0.0.1:8000", help="that runs")
    parser.add_argument("--most", type=int, default=3, help="addresses of each kind")
    parser.add_argument("--login", default="", help="who signs in first")
    parser.add_argument("--pictures", type=Path, help="folder for a picture of each kind")
    given = parser.parse_args()
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
    state = Walk(given.site.rstrip("/"), given.most, given.pictures)
    began = time.monotonic()
    with _browser() as browser, suppress(KeyboardInterrupt):
        walk(browser, state, given.login)
    print(report(state, time.monotonic() - began))
    return 1 if state.problems else 0


if __name__ == "__main__":
    sys.exit(main())
