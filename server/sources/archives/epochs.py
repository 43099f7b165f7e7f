"""Where the git epochs of a public-inbox archive are: over HTTP, or as a folder on this host."""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from server.core.git import run
from server.core.processes import Limits
from server.sources.archives.web import fetched, unreachable

_TIMEOUT = 20.0
# The manifest of a whole archive host with hundreds of lists is below 1 MB.
_LARGEST_MANIFEST = 8 * 1024 * 1024
_MOST_EPOCHS = 1000
# git holds all refs that a server names until it has named the last one.
ASK_LIMITS = Limits(file_bytes=2**20, memory_bytes=512 * 2**20)
# git itself must not be led to another host; the manifest has told where the archive is.
GIT_HTTP = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "http.followRedirects", "GIT_CONFIG_VALUE_0": "false"}


@dataclass(frozen=True)
class EpochPlace:
    """Where one epoch can be cloned from, and what the archive's manifest says of it.

    `fingerprint` changes whenever a ref of the epoch does; "" without a manifest. `modified` is the time of its newest
    commit.
    """

    number: int
    url: str
    fingerprint: str = ""
    modified: datetime | None = None


def find_epochs(url: str, *, known: Collection[int], cwd: Path) -> tuple[EpochPlace, ...]:
    """The epochs of the archive at `url`, lowest number first.

    Where there is no manifest, epochs are probed: those after `known` (numbers read before), which count up without
    gaps. `cwd` is any folder, for git to run in. Raises DomainError when none is found.
    """
    if urlsplit(url).scheme in {"http", "https"}:
        found = _listed(url) or _probed(url, known, cwd)
    else:
        found = _folders(Path(url.removeprefix("file://")))
    return tuple(sorted(found, key=lambda place: place.number))


def _folders(inbox: Path) -> list[EpochPlace]:
    for folder in (inbox / "git", inbox):
        if folder.is_dir():
            epochs = [p for p in folder.iterdir() if re.fullmatch(r"\d{1,4}(\.git)?", p.name) and p.is_dir()]
            if epochs:
                return [EpochPlace(int(p.name.removesuffix(".git")), str(p)) for p in epochs]
    raise unreachable(str(inbox), "no epochs in this folder")


def _listed(url: str) -> list[EpochPlace]:
    """From manifest.js.gz, which names the epochs of this inbox, and perhaps of others; [] if there is none."""
    # A proxy may serve the inbox under another path than the archive's own, but its name stays.
    name = urlsplit(url.rstrip("/")).path.rpartition("/")[2]
    before = rf"(?:.*/)?{re.escape(name)}/" if name else "/?"
    asked = f"{url.rstrip('/')}/manifest.js.gz"
    answer = fetched(asked, largest=_LARGEST_MANIFEST)
    if answer is None:
        return []
    inbox = answer[0].rpartition("/")[0]
    found = {}
    for key, facts in _entries(asked, answer[1]).items():
        if number := re.fullmatch(before + r"(git/)?(\d{1,4})(?:\.git)?", key):
            place = f"git/{number[2]}.git" if number[1] else number[2]
            found[int(number[2])] = _epoch_place(int(number[2]), f"{inbox}/{place}", facts)
    return list(found.values())


# lore.kernel.org has some thousand repositories.
_MOST_PARTS = 300_000


def _entries(url: str, content: bytes) -> dict[str, object]:
    if content.count(b"{") + content.count(b"[") > _MOST_PARTS:
        raise unreachable(url, f"no manifest: more than {_MOST_PARTS} objects and lists")
    try:
        entries = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise unreachable(url, f"no manifest: {error}") from error
    if not isinstance(entries, dict):
        raise unreachable(url, f"no manifest: {type(entries).__name__} instead of an object")
    return entries


def _epoch_place(number: int, url: str, facts: object) -> EpochPlace:
    """Facts that are not what they should be are left out: they only save work."""
    if not isinstance(facts, dict):
        return EpochPlace(number, url)
    fingerprint, modified = facts.get("fingerprint"), facts.get("modified")
    known = isinstance(fingerprint, str) and re.fullmatch(r"[0-9a-f]{40,64}", fingerprint)
    when = None
    if isinstance(modified, int) and 0 < modified < datetime(9999, 1, 1, tzinfo=UTC).timestamp():
        when = datetime.fromtimestamp(modified, tz=UTC)
    return EpochPlace(number, url, str(fingerprint) if known else "", when)


def _probed(url: str, known: Collection[int], cwd: Path) -> list[EpochPlace]:
    inbox = url.rstrip("/")
    found: list[EpochPlace] = []
    # The last one that is known is asked for again, so that an archive that went away is noticed.
    for number in range(max(known, default=0), _MOST_EPOCHS):
        tries = (f"{inbox}/git/{number}.git", f"{inbox}/{number}")
        there = next((place for place in tries if _answers(place, cwd)), None)
        if there is None:
            break
        found.append(EpochPlace(number, there))
    if not found:
        raise unreachable(inbox, f"neither manifest.js.gz nor an epoch {max(known, default=0)}")
    # Older ones stay where the newer are: a history that is rewritten must be seen there, too.
    pattern = found[0].url.rpartition(str(found[0].number))
    older = [EpochPlace(n, f"{pattern[0]}{n}{pattern[2]}") for n in sorted(set(known)) if n < found[0].number]
    return older + found


def _answers(url: str, cwd: Path) -> bool:
    return run("ls-remote", "--", url, cwd=cwd, timeout=_TIMEOUT, extra=GIT_HTTP, limits=ASK_LIMITS).code == 0
