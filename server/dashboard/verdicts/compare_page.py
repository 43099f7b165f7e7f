"""Any two kernels side by side, compared now from the stored samples as the API does it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from server.core import clock
from server.core.errors import DomainError
from server.core.rows.together import Row, read_together
from server.dashboard.frame.kept_pages import kept
from server.dashboard.rows.fingerprints import fingerprint_of
from server.dashboard.rows.verdicts import VERDICT_ORDER, FiguresRow, lines
from server.dashboard.verdicts.first_words import largest
from server.dashboard.verdicts.kernels_apart import apart_sentence, at_most, found_between, heads_named
from server.detection.findings.headline import headline
from server.detection.findings.table import MOST_CELLS, ComparisonTable, table_of
from server.detection.findings.vector import as_speed, uarch_verdicts
from server.detection.models import Comparison, MeasuredHead, Verdict
from server.detection.models.finding import CHANGES
from server.detection.trials.naming import HOW, asked_of, kernel_of
from server.detection.trials.pair import PairOnMachine, compare_kernels
from server.lab.models import Machine, Session
from server.results.models import Benchmark
from server.sources.models import Revision

_LONGEST = 100
_MOST_NAMED = 12
_MOST_HEADS = 40
_SIDES = ("base", "patched")


@dataclass(frozen=True, slots=True)
class CompareWish:
    """What the address asks for, as it was written."""

    base: str
    patched: str
    machine: str
    benchmark: str

    @property
    def query(self) -> str:
        return urlencode({name: value for name in self.__slots__ if (value := getattr(self, name))})


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One kernel: its commit, or why the word names none."""

    name: str
    revision: Revision | None
    builds: frozenset[int]
    problem: str


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One line of the table that stands beside the fingerprint. `delta` is by the metric's direction; of a cell whose
    kernels were measured `apart` it is no claim.
    """

    machine: str
    uarch: str
    line: FiguresRow
    base_spread: str
    patched_spread: str
    delta: str
    apart: bool


@dataclass(frozen=True, slots=True)
class Compared:
    table: ComparisonTable
    rows: tuple[BenchRow, ...]
    statements: tuple[tuple[str, str], ...]
    sentences: tuple[str, ...]
    shared: bool


@require_safe
@kept
def compare(request: HttpRequest) -> HttpResponse:
    wish = CompareWish(*(request.GET.get(name, "").strip()[:_LONGEST] for name in CompareWish.__slots__))
    words = {name: getattr(wish, name) for name in _SIDES}
    *names, base_heads, patched_heads, base_rows, patched_rows = read_together(
        Machine.objects.order_by("name").values_list("name"),
        Benchmark.objects.order_by("name").values_list("name"),
        *map(heads_named, words.values()),
        *map(asked_of, words.values()),
    )
    machines, benchmarks = ([name for (name,) in rows] for rows in names)
    sides = [_side(name, words[name], rows) for name, rows in zip(_SIDES, (base_rows, patched_rows), strict=True)]
    problems = [*_unknown("machine", wish.machine, machines), *_unknown("benchmark", wish.benchmark, benchmarks)]
    problems += [side.problem for side in sides if side.problem]
    context: dict[str, Any] = {"now": clock.now(), "wish": wish, "machines": machines, "benchmarks": benchmarks}
    context |= {"sides": sides, "how": HOW, "compared": None, "fingerprint": None, "address": _address(wish)}
    if not problems and all(side.revision for side in sides):
        base, patched = sides
        if base.builds & patched.builds:
            problems.append("Both have the same content: they are one kernel.")
        else:
            compared = _compared(wish, base.builds, patched.builds)
            context |= {"compared": compared, "fingerprint": fingerprint_of(compared.table)}
            if base.revision is not None and patched.revision is not None:
                context["between"] = found_between(base.revision, patched.revision, [*base_heads, *patched_heads])
    context |= {"problems": problems, "measured": [] if context["compared"] else _measured(sides)}
    return render(request, "dashboard/compare.html", context, status=400 if problems else 200)


def _side(name: str, word: str, rows: Sequence[Row]) -> ComparedSide:
    if not word:
        return ComparedSide(name, None, frozenset(), "")
    try:
        revision, builds = kernel_of(word, rows)
    except DomainError as error:
        return ComparedSide(name, None, frozenset(), f"{name}: {error.message}")
    return ComparedSide(name, revision, frozenset(builds), "")


def _unknown(what: str, value: str, known: Sequence[str]) -> list[str]:
    if not value or value in known:
        return []
    more = ", ..." if len(known) > _MOST_NAMED else ""
    return [f"There is no {what} {value} here. Known: {', '.join(known[:_MOST_NAMED]) or 'none'}{more}."]


def _address(wish: CompareWish) -> str:
    """Of the same answer in the API, which knows nothing of benchmarks."""
    query = {name: value for name in (*_SIDES, "machine") if (value := getattr(wish, name))}
    return f"{reverse('api-compare')}?{urlencode(query)}"


def _measured(sides: Sequence[ComparedSide]) -> list[Revision]:
    """Those that are chosen, commits that sessions measured of late, and heads of branches."""
    newest = Session.objects.filter(state=Session.State.DONE).order_by("-pk")[:_MOST_NAMED]
    pairs = newest.values_list("base_build__revision", "patched_build__revision")
    heads = MeasuredHead.objects.filter(observed_at__isnull=False).order_by("-pk").values_list("revision", flat=True)
    own = [side.revision.pk for side in sides if side.revision is not None]
    late = [pk for pair in pairs for pk in pair]
    wanted = list(dict.fromkeys([*own, *late, *heads[:_MOST_HEADS]]))[:_MOST_HEADS]
    rows = Revision.objects.select_related("tree").in_bulk(wanted)
    return [rows[pk] for pk in wanted if pk in rows]


def _compared(wish: CompareWish, base: frozenset[int], patched: frozenset[int]) -> Compared:
    found = compare_kernels(base, patched, machines={wish.machine} if wish.machine else ())
    found.sort(key=lambda one: (one.session.machine.uarch.name, one.session.machine.name))
    cells = [cell for one in found for cell in one.comparisons if _asked(cell, wish)]
    cells.sort(key=_worst_first)
    shown = cells[:MOST_CELLS]
    table = table_of([one.session for one in found], shown)
    table = replace(table, unshown=len(cells) - len(shown))
    apart = {one.session.pk for one in found if not one.shares_session}
    rows = tuple(_row(line, apart) for line in lines(shown))
    told = [_sentence([cell for cell in cells if cell.session.pk not in apart])]
    if unjudged := [cell for cell in cells if cell.session.pk in apart]:
        told.append(apart_sentence(unjudged, len(cells) - len(unjudged)))
    shared = any(one.shares_session for one in found)
    return Compared(table, rows, _statements(found), tuple(text for text in told if text), shared)


def _asked(cell: Comparison, wish: CompareWish) -> bool:
    return not wish.benchmark or cell.case.benchmark.name == wish.benchmark


def _worst_first(cell: Comparison) -> tuple[int, float]:
    ratio = cell.ratio or 1.0
    slower = ratio if cell.metric.better == "lower" else 1 / ratio
    return VERDICT_ORDER.index(cell.verdict), -slower


def _row(line: FiguresRow, apart: Collection[int]) -> BenchRow:
    cell = line.cell
    machine = cell.session.machine
    delta = as_speed(cell.ratio, cell.metric.better) if cell.ratio is not None else ""
    spreads = _spread(cell.base_mean, cell.base_sd), _spread(cell.patched_mean, cell.patched_sd)
    return BenchRow(machine.name, machine.uarch.name, line, *spreads, delta, cell.session.pk in apart)


def _spread(mean: float | None, deviation: float | None) -> str:
    """As benchstat writes it: in percent of the mean, without digits that nobody reads."""
    return f"{100 * deviation / abs(mean):.0f}" if mean and deviation is not None else ""


def _statements(found: Sequence[PairOnMachine]) -> tuple[tuple[str, str], ...]:
    """What limits the answer, once, with the machines of which it is true."""
    said: dict[str, list[str]] = {}
    for one in found:
        if one.statement:
            said.setdefault(one.statement, []).append(one.session.machine.name)
    return tuple((", ".join(machines), statement) for statement, machines in said.items())


_WORDS = {Verdict.REGRESSED: "slower", Verdict.IMPROVED: "faster"}


def _sentence(cells: Sequence[Comparison]) -> str:
    if not cells:
        return ""
    told = [at_most(cell) for change in CHANGES if (cell := largest(cells, change)) is not None]
    if told:
        counts = ", ".join(f"{sum(c.verdict == v for c in cells)} {word}" for v, word in _WORDS.items())
        return f"{counts} of {len(cells)} cells: {' and '.join(told)}."
    return headline(uarch_verdicts((cell.session.machine.uarch for cell in cells), cells, ()), identical=False)
