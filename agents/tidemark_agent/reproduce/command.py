"""`reproduce`: runs a published case here and shows both side by side."""

import argparse
import io
import json
import os
import signal
import statistics
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tidemark_agent.cases.programs import CaseResult
from tidemark_agent.config import DEFAULT_CONFIG, AgentConfig, read_config
from tidemark_agent.errors import AgentError, InfrastructureError
from tidemark_agent.log import Log
from tidemark_agent.reproduce.document import (
    Cell,
    DocumentError,
    Machine,
    Metric,
    Published,
    document_of,
    read_document,
    read_source,
)
from tidemark_agent.reproduce.here import Here, Record, Wanted, measure_here, read_record, record_of
from tidemark_agent.system.text import one_line

# What the kernel's copying, clearing and faulting choose by.
_FLAGS_THAT_MATTER = (
    "erms", "fsrm", "fzrm", "fsrs", "rep_good", "nopl", "pcid", "invpcid", "invlpgb", "la57", "avx2", "avx512f",
    "movdir64b", "mops", "lse", "atomics", "sve", "dcpodp",
)  # fmt: skip
_WHOLE_FROM, _WHOLE_TO = 1e3, 1e12
_HEAD = ("machine", "uarch", "base", "patched", "patched/base [95 %]", "verdict", "here")
_LONGEST_SHOWN_BUILD_ID = 12


def table(published: Published, here: Here, earlier: Record | None = None) -> list[str]:
    """All lines to print."""
    lines = [
        published.subject,
        f"{published.benchmark}/{published.case}: {published.title}",
        f"benchmark version {published.version[:12]}, {published.runs} runs a boot, {published.warmup} for warm-up",
    ]
    for metric in published.metrics:
        judged = "not judged" if metric.better == "none" else f"{metric.better} is better"
        lines += ["", f"{metric.name} in {metric.unit}, {judged}"]
        lines += _aligned([_HEAD, *_rows(published, metric, here)])
    lines += ["", *_remarks(published), *_about_here(published, here)]
    if earlier is not None:
        lines += ["", *_against(here, earlier, published)]
    return lines


def _rows(published: Published, metric: Metric, here: Here) -> Iterator[tuple[str, ...]]:
    for cell in published.cells:
        if cell.metric == metric.name:
            name = cell.machine if cell.core_type == "all" else f"{cell.machine}/{cell.core_type}"
            numbers = (_figure(cell.base_mean), _figure(cell.patched_mean), _effect(cell), _verdict(cell))
            yield (name, cell.uarch, *numbers, "")
    for result in here.results:
        name = "here" if result.core_type == "all" else f"here/{result.core_type}"
        uarch = here.facts.uarch if result.core_type == "all" else result.core_type
        yield (name, uarch, "", "", "", "none: one boot", here_figure(result, metric.name))


def here_figure(result: CaseResult, metric: str) -> str:
    """Median of the runs after warm-up, their range and number; or how the case ended."""
    values = result.values.get(metric, ())[result.warmup :]
    if not values:
        return result.outcome
    spread = f"{_figure(min(values))} to {_figure(max(values))}"
    return f"{_figure(statistics.median(values))} ({spread}, {len(values)} runs)"


def _remarks(published: Published) -> Iterator[str]:
    """Why cells have no verdict, and which machines are no evidence."""
    for cell in published.cells:
        if cell.verdict == "inconclusive" and cell.reason:
            yield f"{cell.machine}: inconclusive: {cell.reason}"
    for machine in published.machines:
        if not machine.evidence:
            yield f"{machine.name}: a virtual machine, not evidence; its clock is {machine.clock}"


def _about_here(published: Published, here: Here) -> Iterator[str]:
    facts = here.facts
    virtual = f", virtual ({one_line(facts.hypervisor, 40)}): not evidence" if facts.virtual else ""
    yield f"here: {facts.uarch}, {one_line(facts.model_name, 80)}{virtual}"
    yield f"      Linux {one_line(facts.kernel_release, 80)}{_which_kernel(published, facts.kernel_build_id)}"
    yield f"      {one_line(facts.cmdline, 200)}"
    yield f"      flags: {_flags(facts.flags) or 'none of those that copying and faulting depend on'}"
    for machine in published.machines:
        yield from _flag_difference(machine, facts.flags)
    for shortcoming in here.shortcomings:
        yield f"      {one_line(shortcoming)}"
    for result in here.results:
        if result.outcome != "measured":
            yield f"      {result.core_type}: {result.outcome}: {one_line(result.reason)}"
    yield "One machine in one boot is no comparison: it says how fast this kernel is here, not what the patch changes."
    yield "For that, boot the base kernel and the patched one, each several times; --against FILE shows a ratio."


def _which_kernel(published: Published, build_id: str) -> str:
    """Whether the running kernel is, by its build id, one that was measured."""
    if not build_id:
        return ", which shows no build id"
    for machine in published.machines:
        for arm, kernel in (("base", machine.base), ("patched", machine.patched)):
            if kernel.build_id == build_id:
                return f": the {arm} kernel that {machine.name} measured (by its build id)"
    return f", build id {one_line(build_id)[:_LONGEST_SHOWN_BUILD_ID]}: none of the kernels that were measured"


def _flag_difference(machine: Machine, flags: Sequence[str]) -> Iterator[str]:
    if not machine.flags:
        return
    theirs, ours = set(_flags(machine.flags).split()), set(_flags(flags).split())
    parts = [
        f"{word} {' '.join(sorted(names))}"
        for word, names in (("lacks", theirs - ours), ("has", ours - theirs))
        if names
    ]
    if parts:
        yield f"      against {machine.name} ({machine.uarch}) this machine {', '.join(parts)}"


def _against(here: Here, earlier: Record, published: Published) -> Iterator[str]:
    """Ratios to an earlier boot, for the eye only."""
    build_id = earlier.build_id[:_LONGEST_SHOWN_BUILD_ID] or "unknown"
    yield f"against the earlier run in Linux {earlier.kernel} (build id {build_id}):"
    if earlier.boot_id == here.boot_id:
        yield "      the same boot: what differs is noise of the runs, not of kernels"
    if earlier.version != here.version:
        yield "      another version of the benchmark: the values may be of different work"
    for result in here.results:
        for metric in published.metrics:
            values = result.values.get(metric.name, ())[result.warmup :]
            before = earlier.median(result.core_type, metric.name)
            if values and before:
                ratio = statistics.median(values) / before
                yield f"      {result.core_type} {metric.name}: {ratio:.3f} of the earlier median {_figure(before)}"
            else:
                yield f"      {result.core_type} {metric.name}: not measured both times"
    yield "      a ratio of two boots has no interval and no verdict"


def _flags(flags: Sequence[str] | frozenset[str]) -> str:
    return " ".join(flag for flag in _FLAGS_THAT_MATTER if flag in flags)


def _effect(cell: Cell) -> str:
    if cell.ratio is None:
        return "-"
    interval = f"[{cell.ratio_low:.3f}, {cell.ratio_high:.3f}]" if cell.ratio_low and cell.ratio_high else "[-]"
    return f"{cell.ratio:.3f} {interval}"


def _verdict(cell: Cell) -> str:
    if cell.verdict == "unchanged" and cell.mde is not None:
        return f"unchanged (would have seen {100 * cell.mde:.1f} %)"
    return cell.verdict


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if _WHOLE_FROM <= abs(value) < _WHOLE_TO else f"{value:.4g}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


_MEASURED, _NOTHING, _UNUSABLE = 0, 1, 2
# What stands in the service's state directory while a session waits or is under way.
_OF_A_SESSION = ("session.jsonl", "installed")
_MOST_RUNS = 10_000


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="URL|FILE", help="page of a series or finding; or the document of a case")
    parser.add_argument("case", nargs="?", metavar="BENCHMARK/CASE", help="beside a page: which of its cases")
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
        source = document_of(options.source, options.case) if options.case else options.source
        published = read_document(read_source(source, _ca_file(options)))
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
