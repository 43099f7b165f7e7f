"""The published table with a column of this machine, and the words that keep it from being more than it is."""

import statistics
from collections.abc import Iterator, Sequence

from tidemark_agent.cases.model import CaseResult
from tidemark_agent.printable import one_line
from tidemark_agent.reproduce.document import Cell, Machine, Metric, Published
from tidemark_agent.reproduce.here import Here
from tidemark_agent.reproduce.record import Record

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
