"""The one table of a mail: columns are microarchitectures, rows are what tells cases of one benchmark apart."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from server.reports.composer.told import INCONCLUSIVE, MOVED, REGRESSED, UNCHANGED, ToldCell
from server.reports.composer.wording import (
    WIDTH,
    distinct,
    is_slower,
    listed,
    magnitude,
    movement,
    percent,
    plain,
    speed,
    wrapped,
)

_INDENT = "  "
_GAP = 2
# A name that is longer stands on a line of its own, whole.
_WIDEST_NAME = 40
_WIDEST_HEAD, _KEPT_OF_HEAD = 22, 9
_NOTHING = "."
# Of each benchmark so many rows come before more of any other.
_FEW = 2

Key = tuple[str, str, str]
Field = Callable[[ToldCell], str]


@dataclass(frozen=True)
class _Row:
    """One case and metric; `name` is what tells it from the other rows of its group."""

    name: str
    cells: Mapping[str, ToldCell]

    @property
    def slower(self) -> bool:
        return any(cell.verdict == REGRESSED for cell in self.cells.values())

    @property
    def moved(self) -> bool:
        return any(cell.verdict in MOVED for cell in self.cells.values())

    @property
    def rank(self) -> tuple[int, float, str]:
        """What got slower most comes first, then what got faster most, then what could not be told, or least well."""
        cells = self.cells.values()
        for place, verdict in enumerate(MOVED):
            sizes = [movement(cell) for cell in cells if cell.verdict == verdict]
            if sizes:
                return place, -max(sizes), self.name
        unsure = any(cell.verdict == INCONCLUSIVE for cell in cells)
        return (2 if unsure else 3), -max((cell.mde or 0.0 for cell in cells), default=0.0), self.name


@dataclass(frozen=True)
class _Group:
    title: str
    rows: tuple[_Row, ...]


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

    def lines(self, row: _Row) -> list[str]:
        fields = [self.field(row.cells[name]) if name in row.cells else _NOTHING for name in self.shown]
        if len(row.name) <= self.name_width:
            return [self.line(row.name, fields)]
        return [*wrapped(row.name, first=_INDENT, indent=_INDENT * 2), self.line("", fields)]


class Grid:
    """The table of `cells`; of those `moved_only` rows in which something moved."""

    def __init__(self, cells: Sequence[ToldCell], columns: Sequence[str], *, moved_only: bool) -> None:
        self._groups = _groups(cells, moved_only=moved_only)
        self._rows = [row for group in self._groups for row in group.rows]
        self._layout = _layout(_ordered(columns, self._rows), self._rows) if self._rows else None

    @property
    def legend(self) -> str:
        """What the signs mean, of those that stand in it."""
        layout = self._layout
        if layout is None:
            return ""
        verdicts = {cell.verdict for row in self._rows for name, cell in row.cells.items() if name in layout.shown}
        said = ['"-": slower, "+": faster'] if layout.field is _short else []
        if UNCHANGED in verdicts:
            said.append('"= <x": no change, x would have been seen')
        if INCONCLUSIVE in verdicts:
            said.append('"? <x": cannot be told, x would have been seen')
        if any(name not in row.cells for row in self._rows for name in layout.shown):
            said.append(f'"{_NOTHING}": not measured')
        return "; ".join(said)

    def lines(self, most: int) -> list[str]:
        """At most `most` lines; none where not even a row has room."""
        layout = self._layout
        if layout is None:
            return []
        footer = _left_out(layout.left_out, self._rows)
        counts = _room(self._groups, most - len(footer) - 2)
        if not any(counts):
            return []
        lines = [layout.line("", layout.titles)]
        for group, count in zip(self._groups, counts, strict=True):
            if count:
                lines += [group.title, *(line for row in group.rows[:count] for line in layout.lines(row))]
        hidden = [row for group, count in zip(self._groups, counts, strict=True) for row in group.rows[count:]]
        return [*lines, *_more(hidden), *footer]


def _groups(cells: Sequence[ToldCell], *, moved_only: bool) -> list[_Group]:
    """Benchmarks, the one with the worst row first."""
    rows: dict[str, dict[Key, dict[str, ToldCell]]] = defaultdict(dict)
    for cell in cells:
        key = (cell.benchmark, cell.case, cell.metric)
        rows[cell.benchmark].setdefault(key, {}).setdefault(cell.column, cell)
    wanted = {
        benchmark: {
            key: row
            for key, row in of_it.items()
            if not moved_only or any(cell.verdict in MOVED for cell in row.values())
        }
        for benchmark, of_it in rows.items()
    }
    named = {benchmark: _names(benchmark, of_it) for benchmark, of_it in wanted.items() if of_it}
    often = Counter(name for _title, names in named.values() for name in names.values())
    groups = []
    for benchmark, (title, names) in named.items():
        # No two rows read alike, in whichever group they stand.
        mark = f"{plain(benchmark)} " if any(often[name] > 1 for name in names.values()) else ""
        made = [_Row(f"{mark}{name}", wanted[benchmark][key]) for key, name in names.items()]
        groups.append(_Group(title, tuple(sorted(made, key=lambda row: row.rank))))
    return sorted(groups, key=lambda group: group.rows[0].rank)


def _names(benchmark: str, rows: Mapping[Key, Mapping[str, ToldCell]]) -> tuple[str, dict[Key, str]]:
    """The title of the group, which says what its rows share, and a name for each row that no other row has."""
    first = {key: next(iter(cells.values())) for key, cells in rows.items()}
    words = {cell.case: tuple(map(plain, cell.words)) or (plain(cell.case),) for cell in first.values()}
    if len(set(words.values())) < len(words):
        words = {case: (plain(case),) for case in words}
    shared, apart = _shared(words)
    metrics = distinct(cell.metric for cell in first.values())
    one = len(metrics) == 1
    names = {
        key: apart[cell.case] if one else f"{apart[cell.case]} {plain(cell.metric)}" for key, cell in first.items()
    }
    if len(set(names.values())) < len(names):
        names = {key: plain(f"{cell.case} {cell.metric}") for key, cell in first.items()}
    units = distinct(plain(cell.unit) for cell in first.values())
    of = f"{plain(metrics[0])} in {units[0]}" if one else f"in {listed(units)}"
    title = ", ".join(part for part in (plain(benchmark), of.strip(), f"all {shared}" if shared else "") if part)
    return (wrapped(f"{title}:", most=1)[0], names)


def _shared(words: Mapping[str, tuple[str, ...]]) -> tuple[str, dict[str, str]]:
    """What all cases have in common at the same place, and what is left of each."""
    whole = {case: " ".join(of_it) for case, of_it in words.items()}
    if len(words) == 1 or len({len(of_it) for of_it in words.values()}) > 1:
        return "", whole
    places = list(zip(*words.values(), strict=True))
    differs = [len(set(place)) > 1 for place in places]
    common = " ".join(place[0] for place, other in zip(places, differs, strict=True) if not other)
    apart = {
        case: " ".join(word for word, other in zip(of_it, differs, strict=True) if other)
        for case, of_it in words.items()
    }
    return common, apart


def _ordered(columns: Sequence[str], rows: Sequence[_Row]) -> list[str]:
    """Those in which something got slower first, then faster, then measured at all; else in the order given."""

    def place(name: str) -> tuple[int, int]:
        verdicts = {row.cells[name].verdict for row in rows if name in row.cells}
        rank = next((n for n, verdict in enumerate(MOVED) if verdict in verdicts), 2 if verdicts else 3)
        return rank, columns.index(name)

    return [name for name in sorted(columns, key=place) if any(name in row.cells for row in rows)]


def _layout(head: Sequence[str], rows: Sequence[_Row]) -> _Layout:
    name_width = min(_WIDEST_NAME, max(len(row.name) for row in rows))
    room = WIDTH - len(_INDENT) - name_width
    titles = _titles(head)
    for field in (_long, _short):
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


def _long(cell: ToldCell) -> str:
    if cell.verdict in MOVED and cell.ratio is not None:
        return speed(cell)
    if cell.mde is None:
        return "=" if cell.verdict == UNCHANGED else "?"
    return f"{'=' if cell.verdict == UNCHANGED else '?'} <{percent(cell.mde)}".replace(" %", "%")


def _short(cell: ToldCell) -> str:
    if cell.verdict in MOVED and cell.ratio is not None:
        return f"{'-' if is_slower(cell) else '+'}{magnitude(cell)}".replace(" %", "%")
    return _long(cell).replace(" ", "")


def _room(groups: Sequence[_Group], most: int) -> list[int]:
    """How many rows of each group are shown: a few of each, then more of those that come first."""
    counts = [0] * len(groups)
    left = most
    for limit in (_FEW, most):
        for n, group in enumerate(groups):
            for row in group.rows[counts[n] : limit]:
                cost = _lines_of(row) + (0 if counts[n] else 1)
                if cost > left:
                    break
                counts[n] += 1
                left -= cost
    return counts


def _lines_of(row: _Row) -> int:
    if len(row.name) <= _WIDEST_NAME:
        return 1
    return 1 + len(wrapped(row.name, first=_INDENT, indent=_INDENT * 2))


def _more(hidden: Sequence[_Row]) -> list[str]:
    if not hidden:
        return []
    kinds = Counter(_kind(row) for row in hidden)
    told = ", ".join(f"{kinds[kind]} {kind}" for kind in _KINDS if kinds[kind])
    rows = "row" if len(hidden) == 1 else "rows"
    return wrapped(f"... and {len(hidden)} more {rows} on the page: {told}", first=_INDENT, most=1)


_KINDS = ("slower somewhere", "faster", "cannot be told", "no change")


def _kind(row: _Row) -> str:
    verdicts = {cell.verdict for cell in row.cells.values()}
    order = (*MOVED, INCONCLUSIVE, UNCHANGED)
    return _KINDS[next(n for n, verdict in enumerate(order) if verdict in verdicts)]


def _left_out(columns: Sequence[str], rows: Sequence[_Row]) -> list[str]:
    """Columns without room, in one line: the page has them, and the lines above the table what moved there."""
    if not columns:
        return []
    moved = [name for name in columns if any(name in row.cells and row.cells[name].verdict in MOVED for row in rows)]
    calm = [name for name in columns if name not in moved]
    said = []
    if moved:
        said.append(f"{listed([plain(name) for name in moved], 4)}, which moved, too")
    if calm:
        said.append(f"{listed([plain(name) for name in calm], 4)}, which did not move")
    return wrapped(f"... columns on the page alone: {'; '.join(said)}", first=_INDENT, indent=_INDENT * 2, most=2)
