"""`reproduce URL|FILE`: run a published case on this machine."""

import argparse
import io
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tidemark_agent.config import DEFAULT_CONFIG, AgentConfig, read_config
from tidemark_agent.errors import AgentError, InfrastructureError
from tidemark_agent.log import Log
from tidemark_agent.printable import one_line
from tidemark_agent.reproduce.document import DocumentError, Published, read_document
from tidemark_agent.reproduce.fetch import read_source
from tidemark_agent.reproduce.here import Here, Wanted, measure_here
from tidemark_agent.reproduce.record import Record, read_record, record_of
from tidemark_agent.reproduce.table import table

_MEASURED, _NOTHING, _UNUSABLE = 0, 1, 2
# What stands in the service's state directory while a session waits or is under way.
_OF_A_SESSION = ("session.jsonl", "installed")
_MOST_RUNS = 10_000


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="URL|FILE", help="document of a published case: .../series/ID/cases/B/C/")
    parser.add_argument("--runs", type=_runs, help="runs, warm-up included; default: as published")
    parser.add_argument("--json", action="store_true", help="print what was measured here as JSON, for --against")
    parser.add_argument("--against", type=Path, metavar="FILE", help="show ratios to what --json wrote in another boot")
    parser.add_argument("--any-version", action="store_true", help="go on if the benchmark has changed since")
    parser.add_argument("--no-prepare", action="store_true", help="leave all settings of this machine as they are")
    parser.add_argument("--modules", type=Path, metavar="DIR", help="benchmark modules built for the running kernel")
    parser.add_argument("--state-dir", type=Path, help="where programs are compiled and settings noted")
    parser.add_argument("--config", type=Path, help=f"agent.toml; default: {DEFAULT_CONFIG} if it is there")
    parser.add_argument("--verbose", action="store_true", help="write the agent's log to stderr")


def run(options: argparse.Namespace) -> int:
    """0 measured, 1 nothing was measured, 2 the document cannot be used."""
    try:
        published = read_document(read_source(options.source, _ca_file(options)))
        earlier = _earlier(options.against, published) if options.against else None
    except AgentError as error:
        return _fail(f"{one_line(options.source, 100)}: {error}", _UNUSABLE)
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        here = _measure(options, published, stop)
    except (AgentError, OSError) as error:
        return _fail(str(error), _NOTHING)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if options.json:
        print(json.dumps(record_of(published, here), indent=1))
    else:
        print("\n".join(table(published, here, earlier)))
    return _MEASURED if any(result.outcome == "measured" for result in here.results) else _NOTHING


def _measure(options: argparse.Namespace, published: Published, stop: threading.Event) -> Here:
    wanted = Wanted(
        runs=options.runs,
        any_version=options.any_version,
        prepare=not options.no_prepare,
        modules=options.modules.resolve() if options.modules else None,
    )
    log = Log() if options.verbose else Log(io.StringIO())
    return measure_here(published, wanted, _config(options), log=log, stop=stop)


def _config(options: argparse.Namespace) -> AgentConfig:
    """The machine's own configuration, if it has one that may be read.

    Without one the state has a lasting place all the same: the next run finds there what a killed one did not put back.
    """
    file = _config_file(options)
    if file:
        config = read_config(file)
        _require_no_session(config.state_dir)
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        config = AgentConfig(server="", token_file=Path(os.devnull), state_dir=cache / "tidemark-agent")
    return replace(config, state_dir=options.state_dir.resolve()) if options.state_dir else config


def _require_no_session(state: Path) -> None:
    """Two that measure on one machine at a time spoil each other's values, and a session's are published."""
    for name in _OF_A_SESSION:
        with suppress(OSError):
            if (state / "lab" / name).exists():
                raise InfrastructureError(
                    f"a session is under way on this machine ({state / 'lab' / name}): try again when it is over"
                )


def _config_file(options: argparse.Namespace) -> Path | None:
    if options.config is not None:
        return Path(options.config)
    try:
        with DEFAULT_CONFIG.open("rb"):
            return DEFAULT_CONFIG
    except OSError:
        return None


def _ca_file(options: argparse.Namespace) -> Path | None:
    file = _config_file(options)
    return read_config(file).ca_file if file else None


def _earlier(path: Path, published: Published) -> Record:
    record = read_record(path)
    if (record.benchmark, record.case) != (published.benchmark, published.case):
        raise DocumentError(f"{path} is of {one_line(record.benchmark)}/{one_line(record.case)}")
    return record


def _runs(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MOST_RUNS:
        raise argparse.ArgumentTypeError(f"{one_line(text, 20)!r} is no number from 1 to {_MOST_RUNS}")
    return int(text)


def _fail(reason: str, status: int) -> int:
    print(f"tidemark-agent: {reason}", file=sys.stderr)
    return status
