"""Where the git epochs of a public-inbox archive are: over HTTP, or as a folder on this host."""

import json
import re
import zlib
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from server.core.errors import DomainError
from server.core.git import GitError, run

_TIMEOUT = 20.0
_LARGEST_MANIFEST = 8 * 1024 * 1024
_MOST_EPOCHS = 1000
_MOST_REDIRECTS = 5
_GZIP = 16 + zlib.MAX_WBITS


def epoch_urls(url: str, *, cwd: Path) -> dict[int, str]:
    """The clone address of each epoch by its number. `cwd` is any folder, for git to run in."""
    if urlsplit(url).scheme in {"http", "https"}:
        return _listed(url) or _probed(url, cwd)
    return _folders(Path(url.removeprefix("file://")))


def _folders(inbox: Path) -> dict[int, str]:
    found = {}
    for folder in (inbox / "git", inbox):
        if folder.is_dir():
            epochs = [p for p in folder.iterdir() if re.fullmatch(r"\d{1,4}(\.git)?", p.name) and p.is_dir()]
            found = {int(p.name.removesuffix(".git")): str(p) for p in epochs}
        if found:
            return found
    raise DomainError("list-unreachable", f"no epochs in {inbox}", permanent=False)


def _listed(url: str) -> dict[int, str]:
    """From manifest.js.gz, which names the epochs of this inbox, and perhaps of others; {} if there is none."""
    inbox = url.rstrip("/")
    # A proxy may serve the inbox under another path than the archive's own, but its name stays.
    name = urlsplit(inbox).path.rpartition("/")[2]
    before = rf"(?:.*/)?{re.escape(name)}/" if name else "/?"
    found = {}
    for key in _manifest(f"{inbox}/manifest.js.gz"):
        if number := re.fullmatch(before + r"(git/)?(\d{1,4})(?:\.git)?", key):
            place = f"git/{number[2]}.git" if number[1] else number[2]
            found[int(number[2])] = f"{inbox}/{place}"
    return found


def _manifest(url: str) -> list[str]:
    packed = _fetched(url)
    if packed is None:
        return []
    try:
        # A limit, because a small answer may unpack to any size.
        text = zlib.decompressobj(_GZIP).decompress(packed, _LARGEST_MANIFEST)
        entries = json.loads(text)
    except (zlib.error, ValueError) as error:
        raise DomainError("list-unreachable", f"{url}: no manifest: {error}", permanent=False) from error
    return [str(key) for key in entries] if isinstance(entries, dict) else []


def _fetched(url: str) -> bytes | None:
    """What the archive answers, None where it has nothing at `url`. It may redirect, but not to another host."""
    try:
        with httpx2.Client(timeout=_TIMEOUT) as client:
            place = httpx2.URL(url)
            for _ in range(_MOST_REDIRECTS):
                with client.stream("GET", place) as answer:
                    if answer.next_request is None:
                        return _content(url, answer)
                    place = answer.next_request.url
                if place.host != httpx2.URL(url).host:
                    raise _unreachable(url, f"redirects to another host, {place.host}")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise _unreachable(url, str(error) or type(error).__name__) from error
    raise _unreachable(url, "redirects too often")


def _content(url: str, answer: httpx2.Response) -> bytes | None:
    if answer.status_code == httpx2.codes.NOT_FOUND:
        return None
    if not answer.is_success:
        raise _unreachable(url, f"HTTP {answer.status_code}")
    content = bytearray()
    for part in answer.iter_bytes():
        content += part
        if len(content) > _LARGEST_MANIFEST:
            raise _unreachable(url, f"larger than {_LARGEST_MANIFEST // 2**20} MB")
    return bytes(content)


def _unreachable(url: str, why: str) -> DomainError:
    return DomainError("list-unreachable", f"{url}: {why}", permanent=False)


def _probed(url: str, cwd: Path) -> dict[int, str]:
    """A mirror without a manifest: its epochs count up from 0 without gaps."""
    inbox = url.rstrip("/")
    found: dict[int, str] = {}
    for number in range(_MOST_EPOCHS):
        tries = (f"{inbox}/git/{number}.git", f"{inbox}/{number}")
        there = next((u for u in tries if run("ls-remote", "--", u, cwd=cwd, timeout=_TIMEOUT).code == 0), None)
        if there is None:
            break
        found[number] = there
    if not found:
        raise GitError("list-unreachable", f"{inbox}: neither manifest.js.gz nor an epoch 0")
    return found
