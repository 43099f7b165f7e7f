"""The fingerprint: one column for each microarchitecture, one line for each case, so that a split is a shape."""

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from server.dashboard.pictures import axis
from server.dashboard.pictures.axis import RatioAxis

HEIGHT = 18
_FEW_COLUMNS = 3
# In percent of a wide column.
_ROOM_FOR_WORDS = 62
# Each verdict has a sign of its own: colour alone says nothing in print and to many readers.
SIGNS: Final = {"regressed": "✗", "improved": "✓", "unchanged": "=", "inconclusive": "?", "split": "±"}
# Only of these a size is said beside the mark: the others claim none.
CHANGES = ("regressed", "improved")


@dataclass(frozen=True, slots=True)
class Column:
    """A microarchitecture, or a machine."""

    key: str
    title: str
    note: str = ""
    verdict: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class Dot:
    """What one case did in one column: ratios of patched to base as they are stored. `said` tells it in words."""

    ratio: float
    low: float | None
    high: float | None
    better: str
    verdict: str
    said: str
    href: str = ""
    # Of a noisy cell larger than that of the picture; None: the same.
    min_effect: float | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """Not measured there, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Line:
    """`parameters` are what the case is made of, by name: direction, page size, cache regime."""

    label: str
    about: str
    cells: tuple[Dot | Absent, ...]
    href: str = ""
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Lines that fold into their median and range."""

    title: str
    lines: tuple[Line, ...]
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class DrawnCell:
    """A dot or its absence as it is drawn."""

    verdict: str
    said: str
    href: str
    svg: SafeString


@dataclass(frozen=True, slots=True)
class DrawnLine:
    line: Line
    cells: tuple[DrawnCell, ...]


@dataclass(frozen=True, slots=True)
class DrawnGroup:
    group: Group
    lines: tuple[DrawnLine, ...]
    summary: tuple[DrawnCell, ...]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """`min_effect` is a fraction; `unshown` counts lines that the page left out."""

    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    min_effect: float
    unshown: int = 0
    axis: RatioAxis = field(init=False, compare=False)

    def __post_init__(self) -> None:
        sizes = (size for dot in self._dots() if (size := axis.speed(dot.ratio, dot.better)) is not None)
        object.__setattr__(self, "axis", RatioAxis.around(sizes, self.min_effect))

    def _dots(self) -> Iterator[Dot]:
        cells = (cell for group in self.groups for line in group.lines for cell in line.cells)
        return (cell for cell in cells if isinstance(cell, Dot))

    @property
    def effects_differ(self) -> bool:
        return any(dot.min_effect not in (None, self.min_effect) for dot in self._dots())

    @property
    def is_of_parts(self) -> bool:
        """Whether lines are named by parts of their cases' names, which tell no parameters."""
        lines = (line for group in self.groups for line in group.lines)
        return any(not line.parameters and f"/{line.label}," not in f"{line.about}," for line in lines)

    @property
    def lines(self) -> int:
        return sum(len(group.lines) for group in self.groups)

    @property
    def width(self) -> str:
        """How wide a column may be: few ones have room for words beside the marks."""
        return "roomy" if len(self.columns) <= _FEW_COLUMNS else "tight"

    @property
    def drawn(self) -> tuple[DrawnGroup, ...]:
        return tuple(
            DrawnGroup(
                group,
                tuple(DrawnLine(line, tuple(_cell(cell, self.axis) for cell in line.cells)) for line in group.lines),
                tuple(_summary(group, place, self.axis) for place in range(len(self.columns))),
            )
            for group in self.groups
        )


def _cell(cell: Dot | Absent, scale: RatioAxis) -> DrawnCell:
    if isinstance(cell, Absent):
        return DrawnCell("absent", cell.reason, "", SafeString(""))
    size = axis.speed(cell.ratio, cell.better)
    if size is None:
        return DrawnCell("absent", cell.said, cell.href, SafeString(""))
    at = scale.at(size)
    interval = scale.interval(cell.low, cell.high, cell.better)
    parts = [_band(scale, cell.min_effect)]
    if interval is not None:
        parts.append(_interval(interval))
    parts.append(_mark(at, cell.verdict, scale.leaves(size)))
    if cell.verdict in CHANGES:
        ends = (at, at) if interval is None else (min(interval.low, at), max(interval.high, at))
        parts += _words(ends, axis.told(cell.ratio, cell.better))
    return DrawnCell(cell.verdict, cell.said, cell.href, _svg(parts))


def _words(ends: tuple[float, float], words: str) -> list[str]:
    """On the inner side of the mark, or on the outer one, or nowhere: never over an interval. In full, and without the
    direction for columns that are too narrow for it: there the side and the shape say it.
    """
    low, high = ends
    right, left = high <= _ROOM_FOR_WORDS, 100 - low <= _ROOM_FOR_WORDS
    if not (right or left):
        return []
    toward_right = right and (not left or low + high < 100)  # noqa: PLR2004 (percents)
    at, shift, anchor = (high, 9, "start") if toward_right else (low, -9, "end")
    short = words.rpartition(" ")[0]
    return [
        f'<text class="{name}" x="{at}%" dx="{shift}" y="13" text-anchor="{anchor}">{text}</text>'
        for name, text in (("full", words), ("brief", short))
    ]


def _svg(parts: list[str]) -> SafeString:
    """Nothing but numbers and names of this module goes in."""
    return mark_safe(  # noqa: S308
        f'<svg width="100%" height="{HEIGHT}" aria-hidden="true" focusable="false">{"".join(parts)}</svg>'
    )


def _band(scale: RatioAxis, min_effect: float | None = None) -> str:
    left, width = scale.band_of(scale.min_effect if min_effect is None else min_effect)
    middle = f'<line class="one" x1="50%" x2="50%" y2="{HEIGHT}"/>'
    return f'<rect class="band" x="{left}%" width="{width}%" height="{HEIGHT}"/>{middle}'


def _interval(interval: axis.Interval) -> str:
    line = f'<line class="ci" x1="{interval.low}%" x2="{interval.high}%" y1="9" y2="9"/>'
    left = '<svg x="0" y="9"><path class="ci" d="M5-4 1 0 5 4"/></svg>' if interval.arrow_low else ""
    right = '<svg x="100%" y="9"><path class="ci" d="M-5-4-1 0-5 4"/></svg>' if interval.arrow_high else ""
    return line + left + right


_SHAPES = {
    "regressed": '<path d="M-6 0 4-5.5V5.5z"/>',
    "improved": '<path d="M6 0-4-5.5V5.5z"/>',
    "unchanged": '<path class="tick" d="M0-5V5"/>',
}
_HOLLOW = '<circle class="hollow" r="4"/>'
_BEYOND = {-1: '<path d="M1 0 7-5.5V5.5zM7-5.5h2v11h-2z"/>', 1: '<path d="M-1 0-7-5.5V5.5zM-7-5.5h-2v11h2z"/>'}


def _mark(at: float, verdict: str, leaves: int) -> str:
    shape = _BEYOND[leaves] if leaves else _SHAPES.get(verdict, _HOLLOW)
    return f'<svg x="{at}%" y="9">{shape}</svg>'


def _summary(group: Group, place: int, scale: RatioAxis) -> DrawnCell:
    """The median of a column's lines and their range."""
    dots = [line.cells[place] for line in group.lines if place < len(line.cells)]
    sizes = [s for dot in dots if isinstance(dot, Dot) and (s := axis.speed(dot.ratio, dot.better)) is not None]
    if not sizes:
        return DrawnCell("absent", "not measured", "", SafeString(""))
    low, middle, high = min(sizes), statistics.median(sizes), max(sizes)
    reach = axis.Interval(scale.at(low), scale.at(high), scale.leaves(low) < 0, scale.leaves(high) > 0)
    mark = f'<svg x="{scale.at(middle)}%" y="9"><path class="median" d="M0-5 5 0 0 5-5 0z"/></svg>'
    words = [f"{axis.factor(size)} {axis.direction(size)}".strip() for size in (middle, low, high)]
    said = f"median of {len(sizes)}: {words[0]}; from {words[1]} to {words[2]}"
    verdict = _together({dot.verdict for dot in dots if isinstance(dot, Dot)})
    return DrawnCell(verdict, said, "", _svg([_band(scale), _interval(reach), mark]))


def _together(verdicts: set[str]) -> str:
    moved = verdicts.intersection(CHANGES)
    return "split" if len(moved) == len(CHANGES) else next(iter(moved), "inconclusive")


# As an image of its own: for a link, or beside a mail. It brings its colours, light and dark.
_LABEL, _GAP = 230, 14
_COLUMN = {"roomy": 220, "tight": 130}
_ROW, _HEAD = 22, 62
# Pixels of a sign of names, and how many signs stand before titles and labels.
_SIGN, _INDENT = 7.3, (1, 3)
# Of what is no name, and of a name of which nobody knows how long it is.
_MOST, _LONGEST = 28, 160
_NOT_MEASURED = '<text class="none" x="50%" y="13" text-anchor="middle">not measured</text>'
_NOTE = "better is right; logarithmic; grey: below the minimum effect of"
# What XML cannot hold, and what turns the direction of text around it.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_STYLE = """
svg{overflow:visible}text{font:12px ui-monospace,"DejaVu Sans Mono",monospace;fill:#1b1c1a}
.quiet,.axis text{fill:#5a5c58}
.paper{fill:#fff}.band{fill:#5a5c58;opacity:.16}.one{stroke:#5a5c58;stroke-dasharray:2 2}.rule{stroke:#d6d6d0}
.bold{font-weight:700}.ci{fill:none;stroke-width:1.5}.tick{stroke-width:2.5}.hollow{stroke-width:2}
g{fill:#5a5c58;stroke:none}.ci,.tick{stroke:#5a5c58}.hollow{fill:#fff;stroke:#6b4b00}
.regressed,.regressed text{fill:#a1260d}.regressed .ci{stroke:#a1260d}.improved,.improved text{fill:#00604d}
.improved .ci{stroke:#00604d}.inconclusive .ci{stroke:#6b4b00}.inconclusive text{fill:#6b4b00}.split text{fill:#652a8c}
.tight text,.brief{display:none}.roomy text{font-size:11px;paint-order:stroke;stroke:#fff;stroke-width:4px}
.tight .none{display:inline;font-size:11px}.median{fill:#5a5c58}
@media(prefers-color-scheme:dark){text{fill:#e3e4e0}.quiet,.axis text,g{fill:#a5a9a5}.paper,.hollow{fill:#15181a}
.roomy text{stroke:#15181a}
.band{fill:#a5a9a5}.one,.ci,.tick{stroke:#a5a9a5}.rule{stroke:#363b3e}.hollow{stroke:#e8c663}.median{fill:#a5a9a5}
.regressed,.regressed text{fill:#ffa18a}.regressed .ci{stroke:#ffa18a}.improved,.improved text{fill:#74d8bb}
.improved .ci{stroke:#74d8bb}.inconclusive .ci{stroke:#e8c663}.inconclusive text{fill:#e8c663}.split text{fill:#d6abf3}}
"""


def svg_of(picture: Fingerprint) -> str:
    """A whole SVG document. Folded groups are one line in it, as on the page."""
    groups = picture.drawn
    rows = list(_rows(groups))
    label = _label_width(rows)
    wide = label + len(picture.columns) * (_COLUMN[picture.width] + _GAP) + _GAP
    tall = _HEAD + _ROW * (len(rows) + 1) + 8
    heads = "".join(
        _head(column, _left(number, label, picture), picture) for number, column in enumerate(picture.columns)
    )
    lines = "".join(_row(row, _HEAD + number * _ROW, label, picture) for number, row in enumerate(rows))
    more = f"; {picture.unshown} more not shown" if picture.unshown else ""
    note = f"{_NOTE} {picture.min_effect * 100:g} %{more}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}">'
        f"<title>Fingerprint of {picture.lines} cases in {len(picture.columns)} columns</title>"
        f'<style>{_STYLE}</style><rect class="paper" width="{wide}" height="{tall}"/>{heads}{lines}'
        f'<text class="quiet" x="8" y="{tall - 8}">{note}</text></svg>'
    )


def clean(text: str, most: int = _MOST) -> str:
    """Fit for an image: shortened, and without what breaks XML or turns other text around."""
    shown = _UNSAFE.sub("", text)
    return escape(shown if len(shown) <= most else f"{shown[: most - 1]}…")


def _rows(groups: tuple[DrawnGroup, ...]) -> Iterator[DrawnGroup | DrawnLine]:
    for drawn in groups:
        if drawn.group.title:
            yield drawn
        if drawn.group.is_open or not drawn.group.title:
            yield from drawn.lines


def _title(drawn: DrawnGroup) -> str:
    return drawn.group.title if drawn.group.is_open else f"{drawn.group.title} ({len(drawn.lines)})"


def _label_width(rows: list[DrawnGroup | DrawnLine]) -> int:
    """Room for the longest name: a title that is cut no longer says which cases it is of."""
    titles = [len(_title(row)) + _INDENT[0] for row in rows if isinstance(row, DrawnGroup)]
    labels = [len(row.line.label) + _INDENT[1] for row in rows if isinstance(row, DrawnLine)]
    return max(_LABEL, round(min(max([*titles, *labels], default=0), _LONGEST) * _SIGN) + _GAP)


def _left(number: int, label: int, picture: Fingerprint) -> int:
    return label + number * (_COLUMN[picture.width] + _GAP)


def _head(column: Column, left: int, picture: Fingerprint) -> str:
    sign = SIGNS.get(column.verdict, "")
    verdict = f'<g class="{clean(column.verdict)}"><text y="30">{sign} {clean(column.verdict)}</text></g>'
    ticks = "".join(
        f'<text x="{tick.at}%" y="50" text-anchor="{tick.anchor}">{tick.label}</text>'
        for tick in picture.axis.ticks
        if not tick.inner
    )
    title = f'<text class="bold" y="15">{clean(column.title, _COLUMN[picture.width] // 8)}</text>'
    box = f'<svg x="{left}" width="{_COLUMN[picture.width]}" height="{_HEAD}">'
    return f'{box}{title}{verdict}<g class="axis">{ticks}</g></svg>'


def _row(row: DrawnGroup | DrawnLine, top: int, label: int, picture: Fingerprint) -> str:
    if isinstance(row, DrawnGroup):
        name, cells = f'<text class="bold" x="8" y="14">{clean(_title(row), _LONGEST)}</text>', row.summary
    else:
        name, cells = f'<text x="20" y="14">{clean(row.line.label, _LONGEST)}</text>', row.cells
    width = picture.width
    drawn = "".join(
        f'<svg class="{width}" x="{_left(number, label, picture)}" width="{_COLUMN[width]}" height="18">'
        f'<g class="{clean(cell.verdict)}">'
        f"<title>{clean(cell.said, 300)}</title>{cell.svg or _NOT_MEASURED}</g></svg>"
        for number, cell in enumerate(cells)
    )
    return f'<svg y="{top}" width="100%" height="{_ROW}">{name}{drawn}</svg>'
