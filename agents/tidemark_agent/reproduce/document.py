"""A published case: fetched, and read with distrust."""

import http.client
import json
import math
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tidemark_agent.errors import AgentError
from tidemark_agent.system.text import one_line
from tidemark_agent.wire.transport import TIMEOUT_SECONDS, TemporaryError, build_opener, pieces

FORMAT, VERSION = "tidemark-case", 1
_MOST_CELLS = 2000
_MOST_FLAGS = 1000
_MOST_RUNS = 10_000
_MOST_SECONDS = 24 * 3600
_LONGEST_COMMAND_LINE = 2048
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HEX = re.compile(r"[0-9a-f]{0,64}")
_VERDICTS = frozenset({"improved", "regressed", "unchanged", "inconclusive"})
Item = TypeVar("Item")


class DocumentError(AgentError):
    """What was given is no document of a published case that this agent can use."""


@dataclass(frozen=True)
class Metric:
    name: str
    unit: str
    better: str


@dataclass(frozen=True)
class Kernel:
    """One of the two kernels of a session."""

    build_id: str
    config: str


@dataclass(frozen=True)
class Machine:
    """A machine that measured the case, with what its probe saw."""

    name: str
    uarch: str
    evidence: bool
    clock: str
    cmdline: str
    flags: frozenset[str]
    base: Kernel
    patched: Kernel


@dataclass(frozen=True)
class Cell:
    """One published comparison; means are in the metric's unit, ratios are patched / base."""

    machine: str
    uarch: str
    core_type: str
    metric: str
    verdict: str
    reason: str
    boots: tuple[int, int]
    base_mean: float | None
    patched_mean: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    mde: float | None


@dataclass(frozen=True)
class Published:
    """The whole document. All names are safe as words of a command line, all texts as lines of a terminal."""

    subject: str
    benchmark: str
    version: str
    case: str
    title: str
    runs: int
    warmup: int
    timeout_seconds: int
    metrics: tuple[Metric, ...]
    machines: tuple[Machine, ...]
    cells: tuple[Cell, ...]


def read_document(raw: bytes) -> Published:
    """The document in `raw`; raises DocumentError that says what is wrong and where."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"it is no JSON: {one_line(str(error), 200)}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise DocumentError(f"it is no {FORMAT} document: give the address .../api/v1/series/ID/cases/BENCHMARK/CASE/")
    if data.get("version") != VERSION:
        raise DocumentError(f"it has version {one_line(repr(data.get('version')), 20)}, this agent reads {VERSION}")
    return _published(_Part("", data))


def _published(part: "_Part") -> Published:
    case = part.part("case")
    runs, warmup = case.count("runs", _MOST_RUNS), case.count("warmup", _MOST_RUNS)
    if runs <= warmup:
        raise DocumentError(f"case.runs is {runs}, which leaves nothing after {warmup} runs of warm-up")
    version = case.text("version")
    if not _SHA256.fullmatch(version):
        raise DocumentError("case.version is no SHA-256: the service that published it does not name its benchmarks so")
    published = Published(
        subject=one_line(part.text("subject")),
        benchmark=case.word("benchmark"),
        version=version,
        case=case.word("name"),
        title=one_line(case.text("title")),
        runs=runs,
        warmup=warmup,
        timeout_seconds=max(1, case.count("timeout_seconds", _MOST_SECONDS)),
        metrics=part.several("metrics", _metric),
        machines=part.several("machines", _machine),
        cells=part.several("cells", _cell),
    )
    if not published.metrics:
        raise DocumentError("metrics is empty")
    return published


def _metric(part: "_Part") -> Metric:
    better = part.text("better")
    if better not in {"lower", "higher", "none"}:
        raise DocumentError(f"{part.name}better is none of lower, higher, none")
    return Metric(name=part.word("name"), unit=one_line(part.text("unit"), 20), better=better)


def _machine(part: "_Part") -> Machine:
    flags = part.data.get("flags", [])
    if not isinstance(flags, list) or len(flags) > _MOST_FLAGS:
        raise DocumentError(f"{part.name}flags is no list of at most {_MOST_FLAGS} flags")
    return Machine(
        name=part.word("name"),
        uarch=part.word("uarch"),
        evidence=part.data.get("evidence") is True,
        clock=part.word("clock"),
        cmdline=one_line(part.text("cmdline"), _LONGEST_COMMAND_LINE),
        flags=frozenset(str(flag) for flag in flags if isinstance(flag, str) and _WORD.fullmatch(flag)),
        base=_kernel(part.part("base")),
        patched=_kernel(part.part("patched")),
    )


def _kernel(part: "_Part") -> Kernel:
    build_id = part.text("build_id")
    if not _HEX.fullmatch(build_id):
        raise DocumentError(f"{part.name}build_id is no build id")
    return Kernel(build_id=build_id, config=one_line(part.text("config"), 60))


def _cell(part: "_Part") -> Cell:
    verdict = part.text("verdict")
    if verdict not in _VERDICTS:
        raise DocumentError(f"{part.name}verdict is none of {', '.join(sorted(_VERDICTS))}")
    return Cell(
        machine=part.word("machine"),
        uarch=part.word("uarch"),
        core_type=part.word("core_type"),
        metric=part.word("metric"),
        verdict=verdict,
        reason=one_line(part.text("reason")),
        boots=(part.count("base_boots", _MOST_RUNS), part.count("patched_boots", _MOST_RUNS)),
        base_mean=part.number("base_mean"),
        patched_mean=part.number("patched_mean"),
        ratio=part.number("ratio"),
        ratio_low=part.number("ratio_low"),
        ratio_high=part.number("ratio_high"),
        mde=part.number("mde"),
    )


class _Part:
    """One object of the document, and where it stands."""

    def __init__(self, name: str, data: Mapping[str, Any]) -> None:
        self.name = name
        self.data = data

    def part(self, key: str) -> "_Part":
        value = self.data.get(key)
        if not isinstance(value, dict):
            raise DocumentError(f"{self.name}{key} is missing or no object")
        return _Part(f"{self.name}{key}.", value)

    def several(self, key: str, read: Callable[["_Part"], Item]) -> tuple[Item, ...]:
        values = self.data.get(key)
        if not isinstance(values, list) or len(values) > _MOST_CELLS:
            raise DocumentError(f"{self.name}{key} is no list of at most {_MOST_CELLS} objects")
        found = []
        for number, value in enumerate(values):
            if not isinstance(value, dict):
                raise DocumentError(f"{self.name}{key}[{number}] is no object")
            found.append(read(_Part(f"{self.name}{key}[{number}].", value)))
        return tuple(found)

    def text(self, key: str) -> str:
        value = self.data.get(key)
        if not isinstance(value, str):
            raise DocumentError(f"{self.name}{key} is missing or no text")
        return value

    def word(self, key: str) -> str:
        """A text that may become part of a path or of a command."""
        value = self.text(key)
        if not _WORD.fullmatch(value) or ".." in value:
            raise DocumentError(f"{self.name}{key} is {one_line(value, 40)!r}, which is no name")
        return value

    def count(self, key: str, most: int) -> int:
        value = self.data.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise DocumentError(f"{self.name}{key} is no number from 0 to {most}")
        return value

    def number(self, key: str) -> float | None:
        value = self.data.get(key)
        if value is None:
            return None
        # An int may be too large for a float; JSON's NaN and 1e999 are read as floats.
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
            raise DocumentError(f"{self.name}{key} is no finite number")
        try:
            return float(value)
        except OverflowError as error:
            raise DocumentError(f"{self.name}{key} is no finite number") from error


_LONGEST = 4 * 1024 * 1024


_PAGE = re.compile(r"(https?://[^?#\s]*)/(series|findings)/(\d{1,18})/?(?:#[a-z-]*)?")
_CASE = re.compile(r"([A-Za-z0-9_-]{1,60})/([A-Za-z0-9_-]{1,60})")


def document_of(page: str, case: str) -> str:
    """Where the document of `case`, BENCHMARK/CASE, of the series or finding lies whose page this is."""
    found = _PAGE.fullmatch(page)
    if found is None:
        raise DocumentError("beside a case stands the page of its series or finding, such as https://HOST/series/ID/")
    if _CASE.fullmatch(case) is None:
        raise DocumentError(f"{one_line(case, 80)} is no BENCHMARK/CASE")
    site, kind, number = found.groups()
    return f"{site}/api/v1/{kind}/{number}/cases/{case}/"


def read_source(source: str, ca_file: Path | None = None) -> bytes:
    """What is at the address or in the file `source`, at most 4 MiB; raises DocumentError.

    A redirect is not followed: the address that was typed says whom its reader trusts.
    """
    if source.startswith(("http://", "https://")):
        return _fetched(source, ca_file)
    if "://" in source:
        raise DocumentError(f"{one_line(source, 80)} is neither a file nor an address with http or https")
    try:
        with Path(source).open("rb") as stream:
            return _limited(stream.read(_LONGEST + 1), source)
    except (OSError, ValueError) as error:
        raise DocumentError(f"{one_line(source, 80)} cannot be read: {one_line(str(error))}") from error


def _fetched(address: str, ca_file: Path | None) -> bytes:
    name = one_line(address, 200)
    try:
        if not urlsplit(address).hostname:
            raise DocumentError(f"{name} names no host")
        request = urllib.request.Request(address, headers={"Accept": "application/json"})  # noqa: S310 (http or https)
        with build_opener(address, ca_file).open(request, timeout=TIMEOUT_SECONDS) as answer:
            return _limited(b"".join(pieces(answer, _LONGEST)), name)
    except urllib.error.HTTPError as error:
        error.close()
        where = error.headers.get("Location")
        if where:
            raise DocumentError(f"{name} points to {one_line(where)}; give that address if you trust it") from error
        raise DocumentError(f"{name} answers {error.code} {one_line(str(error.reason))}") from error
    except (TemporaryError, AgentError, OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, DocumentError):
            raise
        raise DocumentError(f"{name} cannot be fetched: {one_line(str(error))}") from error


def _limited(data: bytes, name: str) -> bytes:
    if len(data) > _LONGEST:
        raise DocumentError(f"{name} is larger than {_LONGEST} bytes")
    return data
