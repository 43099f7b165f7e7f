"""Pictures as tables for programs: the same cells in the same order, one on each line."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.http import HttpResponse

from server.core.rows.lines import csv_cell, csv_lines
from server.dashboard.pictures.fingerprint import Dot, Fingerprint
from server.dashboard.pictures.heat_map import HeatMap

_OF_DOTS = ("group", "case", "parameters", "column", "verdict", "ratio", "low", "high", "better", "min_effect", "said")
_OF_HEAT = ("row", "about", "column", "verdict", "speed", "stale_days", "finding", "cases_disagree", "said")


_FORMAT = "format"
_FORMATS = ("csv",)
_MOST_PROBLEMS, _LONGEST_SHOWN = 4, 40


def wants_csv(asked: Mapping[str, str]) -> bool:
    return asked.get(_FORMAT) == "csv"


def problems_of(asked: Mapping[str, str], known: Sequence[str]) -> list[str]:
    """What an address of a page with such a picture asks that the page knows nothing of, in words."""
    known = [*known, _FORMAT]
    strange = [name for name in asked if name not in known]
    found = [_no("parameter", name, known) for name in strange]
    if (given := asked.get(_FORMAT, "")) and given not in _FORMATS:
        found.insert(0, _no(_FORMAT, given, _FORMATS))
    return found[:_MOST_PROBLEMS]


def _no(what: str, given: str, known: Iterable[str]) -> str:
    return f"This page has no {what} {given[:_LONGEST_SHOWN]}. Known: {', '.join(known)}."


def fingerprint_csv(picture: Fingerprint, name: str) -> HttpResponse:
    """`ratio` is patched / base; what was not measured says why in `said`."""
    return _answer(_OF_DOTS, _dots(picture), name)


def heat_csv(picture: HeatMap | None, name: str) -> HttpResponse:
    """`speed` is a factor, above 1 faster. Cells that nothing is known of are left out."""
    return _answer(_OF_HEAT, _heat(picture) if picture else (), name)


def _answer(names: Sequence[str], rows: Iterable[Sequence[Any]], name: str) -> HttpResponse:
    body = b"".join(csv_lines(([csv_cell(cell) for cell in row] for row in rows), names))
    headers = {"Content-Disposition": f'inline; filename="{name}.csv"'}
    return HttpResponse(body, content_type="text/csv; charset=utf-8", headers=headers)


def _dots(picture: Fingerprint) -> Iterator[Sequence[Any]]:
    for group in picture.groups:
        for line in group.lines:
            parameters = " ".join(f"{name}={value}" for name, value in line.parameters)
            for column, cell in zip(picture.columns, line.cells, strict=True):
                about = (group.title, line.label, parameters, column.key)
                if isinstance(cell, Dot):
                    effect = cell.min_effect if cell.min_effect is not None else picture.min_effect
                    yield (*about, cell.verdict, cell.ratio, cell.low, cell.high, cell.better, effect, cell.said)
                else:
                    yield (*about, "not measured", None, None, None, None, None, cell.reason)


def _heat(picture: HeatMap) -> Iterator[Sequence[Any]]:
    for row in picture.rows:
        for column, cell in zip(picture.columns, row.cells, strict=True):
            if cell is not None:
                speed = math.exp(cell.change) if cell.change is not None else None
                told = (cell.verdict, speed, cell.stale_days, cell.finding, cell.split, cell.said)
                yield (row.label, row.about, column.key, *told)
