"""The one table of a mail: columns are microarchitectures, rows are what tells cases of one benchmark apart."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from server.core.rounding import seen_effect
from server.reports.composer.table_rows import Row, RowGroup, groups_of
from server.reports.composer.told import INCONCLUSIVE, MOVED, REGRESSED, UNCHANGED, ToldCell
from server.reports.composer.wording import WIDTH, is_slower, listed, plain, reach, reach_of_size, wrapped

_INDENT = "  "
_GAP = 2
# A name that is longer stands on a line of its own, whole.
_WIDEST_NAME = 40
# Where the columns need the room, and few names are longer.
_NARROW_NAME = 26
_WIDEST_HEAD, _KEPT_OF_HEAD = 22, 9
_NOTHING = "."
# Of each benchmark so many rows come before more of any other.
_FEW = 2
# The heads of the columns, and how many cases are left out.
_HEAD_AND_REST = 2

Field = Callable[[Sequence[ToldCell]], str]


@dataclass(frozen=True)
class _Layout:
    """The columns that fit beside each other, what stands in their fields, and the columns that are left over."""

    name_width: int
    shown: tuple[str, ...]
    titles: tuple[str, ...]
    widths: tuple[int, ...]
    field: Field
    left_out: tuple[str, ...]

    def line(self, name: str, fields: Sequence[str]) -> str:
        columns = "".join(f"{'':{_GAP}}{one:<{width}}" for one, width in zip(fields, self.widths, strict=True))
        return f"{_INDENT}{name:<{self.name_width}}{columns}".rstrip()

    def lines(self, row: Row) -> list[str]:
        fields = [self.field(row.cells[name]) if name in row.cells else _NOTHING for name in self.shown]
        if len(row.name) <= self.name_width:
            return [self.line(row.name, fields)]
        return [*wrapped(row.name, first=_INDENT, indent=_INDENT * 2), self.line("", fields)]


class Grid:
    """The table of `cells`; of those `moved_only` rows in which something moved."""

    def __init__(self, cells: Sequence[ToldCell], columns: Sequence[str], *, moved_only: bool) -> None:
        self._groups = groups_of(cells, moved_only=moved_only)
        self._rows = [row for group in self._groups for row in group.rows]
        self._layout = _layout(_ordered(columns, self._rows), self._rows) if self._rows else None

    @property
    def legend(self) -> str:
        """What the signs mean, of those that stand in it."""
        layout = self._layout
        if layout is None:
            return ""
        verdicts = {cell.verdict for row in self._rows for name in layout.shown for cell in row.cells.get(name, ())}
        said = ['"-": slower, "+": faster'] if layout.field is _short else []
        if UNCHANGED in verdicts:
            said.append('"= <x": no change, x would have been seen')
        if INCONCLUSIVE in verdicts:
            said.append('"? <x": cannot be told, x would have been seen')
        return "; ".join(said)

    @property
    def has_holes(self) -> bool:
        """Whether a case stands in it that one of its columns did not run."""
        layout = self._layout
        return layout is not None and any(name not in row.cells for row in self._rows for name in layout.shown)

    def lines(self, most: int) -> list[str]:
        """At most `most` lines; none where not even a row has room."""
        layout = self._layout
        if layout is None:
            return []
        footer = _left_out(layout.left_out, self._rows)
        counts = _room(self._groups, most - len(footer) - _HEAD_AND_REST, layout.name_width)
        if not any(counts):
            return []
        lines = [layout.line("", layout.titles)]
        for group, count in zip(self._groups, counts, strict=True):
            if count:
                lines += [*group.title, *(line for row in group.rows[:count] for line in layout.lines(row))]
        hidden = [row for group, count in zip(self._groups, counts, strict=True) for row in group.rows[count:]]
        return [*lines, *_more(hidden), *footer]


def _ordered(columns: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Those in which something got slower first, then faster, then measured at all; else in the order given."""

    def place(name: str) -> tuple[int, int]:
        verdicts = {cell.verdict for row in rows for cell in row.cells.get(name, ())}
        rank = next((n for n, verdict in enumerate(MOVED) if verdict in verdicts), 2 if verdicts else 3)
        return rank, columns.index(name)

    return [name for name in sorted(columns, key=place) if any(name in row.cells for row in rows)]


def _layout(head: Sequence[str], rows: Sequence[Row]) -> _Layout:
    titles = _titles(head)
    for field, widest in ((_long, _WIDEST_NAME), (_long, _NARROW_NAME), (_short, _WIDEST_NAME)):
        if widest == _NARROW_NAME and sum(len(row.name) > widest for row in rows) > _FEW:
            continue
        name_width = max([len(row.name) for row in rows if len(row.name) <= widest], default=widest)
        room = WIDTH - len(_INDENT) - name_width
        widths = [
            max(len(title), *(len(field(row.cells[name])) for row in rows if name in row.cells))
            for name, title in zip(head, titles, strict=True)
        ]
        count = _fitting(widths, room)
        if count == len(head):
            break
    return _Layout(
        name_width, tuple(head[:count]), tuple(titles[:count]), tuple(widths[:count]), field, tuple(head[count:])
    )


def _fitting(widths: Sequence[int], room: int) -> int:
    """How many columns."""
    for count, width in enumerate(widths):
        room -= _GAP + width
        if room < 0:
            return count
    return len(widths)


def _titles(head: Sequence[str]) -> list[str]:
    """Long ones lose their middle; two that are the same then are counted."""
    shown: list[str] = []
    for name in map(plain, head):
        short = name if len(name) <= _WIDEST_HEAD else f"{name[:_KEPT_OF_HEAD]}..{name[-_KEPT_OF_HEAD:]}"
        shown.append(short if short not in shown else f"{short[: _WIDEST_HEAD - 4]}#{len(shown)}")
    return shown


def _long(cells: Sequence[ToldCell]) -> str:
    if _have_moved(cells):
        return reach(cells, to="-")
    sign = "=" if cells[0].verdict == UNCHANGED else "?"
    effects = [cell.mde for cell in cells if cell.mde is not None]
    return f"{sign} <{seen_effect(max(effects))}".replace(" %", "%") if effects else sign


def _short(cells: Sequence[ToldCell]) -> str:
    if _have_moved(cells):
        return f"{'-' if is_slower(cells[0]) else '+'}{reach_of_size(cells, to='..')}".replace(" %", "%")
    return _long(cells).replace(" ", "")


def _have_moved(cells: Sequence[ToldCell]) -> bool:
    return cells[0].verdict in MOVED and all(cell.ratio is not None for cell in cells)


def _room(groups: Sequence[RowGroup], most: int, name_width: int) -> list[int]:
    """How many rows of each group are shown: most losses, a few of each, then more of those that come first."""
    counts = [0] * len(groups)
    left = most
    for limit, verdict in ((max(_FEW, most * 2 // 3), REGRESSED), (_FEW, ""), (most, "")):
        for n, group in enumerate(groups):
            for row in group.rows[counts[n] : limit]:
                if verdict and verdict not in row.verdicts():
                    break
                cost = _lines_of(row, name_width) + (0 if counts[n] else len(group.title))
                if cost > left:
                    break
                counts[n] += 1
                left -= cost
    return counts


def _lines_of(row: Row, name_width: int) -> int:
    if len(row.name) <= name_width:
        return 1
    return 1 + len(wrapped(row.name, first=_INDENT, indent=_INDENT * 2))


def _more(hidden: Sequence[Row]) -> list[str]:
    if not hidden:
        return []
    kinds: Counter[str] = Counter()
    for row in hidden:
        kinds[_kind(row)] += row.cases
    told = ", ".join(f"{kinds[kind]} {kind}" for kind in _KINDS if kinds[kind]) if len(kinds) > 1 else next(iter(kinds))
    count = kinds.total()
    return wrapped(
        f"... and {count} more {'case' if count == 1 else 'cases'} on the page: {told}", first=_INDENT, most=1
    )


_KINDS = ("slower somewhere", "faster", "cannot be told", "no change")


def _kind(row: Row) -> str:
    verdicts = row.verdicts()
    order = (*MOVED, INCONCLUSIVE, UNCHANGED)
    return _KINDS[next(n for n, verdict in enumerate(order) if verdict in verdicts)]


def _left_out(columns: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Columns without room, in one line: the page has them, and the lines above the table what moved there."""
    if not columns:
        return []
    moved = [name for name in columns if any(cell.verdict in MOVED for row in rows for cell in row.cells.get(name, ()))]
    calm = [name for name in columns if name not in moved]
    said = []
    if moved:
        said.append(f"{listed([plain(name) for name in moved], 4)}, which moved, too")
    if calm:
        said.append(f"{listed([plain(name) for name in calm], 4)}, which did not move")
    return wrapped(f"... columns on the page alone: {'; '.join(said)}", first=_INDENT, indent=_INDENT * 2, most=2)
