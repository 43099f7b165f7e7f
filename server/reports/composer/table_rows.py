"""The rows of a mail's table: one case each, and one for several that say nearly the same."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from server.core.rounding import is_factor
from server.reports.composer.told import INCONCLUSIVE, MOVED, ToldCell
from server.reports.composer.wording import distinct, listed, movement, plain, wrapped

Key = tuple[str, str, str]
Words = tuple[str, ...]
# From so many cases on one line stands for them, if none of them moved so much more than another.
_FEWEST, _NEAR = 3, 1.2
# Of cases that differ in more places nobody looks for what some share.
_MOST_PLACES = 6
# One line of a mail.
_LONGEST_NAME = 74


@dataclass(frozen=True)
class Row:
    """`cases` of one metric, by column; `name` is what tells them from the other rows of their group."""

    name: str
    cells: Mapping[str, tuple[ToldCell, ...]]
    cases: int = 1

    @property
    def rank(self) -> tuple[int, float, str]:
        """What got slower most comes first, then what got faster most, then what could not be told, or least well."""
        cells = [cell for of_it in self.cells.values() for cell in of_it]
        for place, verdict in enumerate(MOVED):
            sizes = [movement(cell) for cell in cells if cell.verdict == verdict]
            if sizes:
                return place, -max(sizes), self.name
        unsure = any(cell.verdict == INCONCLUSIVE for cell in cells)
        return (2 if unsure else 3), -max((cell.mde or 0.0 for cell in cells), default=0.0), self.name

    def verdicts(self) -> set[str]:
        return {cell.verdict for of_it in self.cells.values() for cell in of_it}


@dataclass(frozen=True)
class RowGroup:
    title: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class _Names:
    """`title` says what the rows of a group share; `names` and `words` what tells each from the others."""

    title: tuple[str, ...]
    names: Mapping[Key, str]
    words: Mapping[Key, Words]


def groups_of(cells: Sequence[ToldCell], *, moved_only: bool) -> list[RowGroup]:
    """Benchmarks, the one with the worst row first; of those `moved_only` rows in which something moved."""
    rows: dict[str, dict[Key, dict[str, ToldCell]]] = defaultdict(dict)
    for cell in cells:
        key = (cell.benchmark, cell.case, cell.metric)
        rows[cell.benchmark].setdefault(key, {}).setdefault(cell.column, cell)
    found = {}
    for benchmark, of_it in rows.items():
        wanted = {key: row for key, row in of_it.items() if not moved_only or _moved(row)}
        if wanted:
            told = _named(benchmark, wanted)
            hidden = [row for key, row in of_it.items() if key not in wanted]
            found[benchmark] = told.title, _rows(told, wanted, apart=bool(hidden))
    often = Counter(row.name for _title, made in found.values() for row in made)
    groups = []
    for benchmark, (title, made) in found.items():
        # No two rows read alike, in whichever group they stand.
        mark = f"{plain(benchmark)} " if any(often[row.name] > 1 for row in made) else ""
        marked = [Row(f"{mark}{row.name}", row.cells, row.cases) for row in made]
        groups.append(RowGroup(title, tuple(sorted(marked, key=lambda row: row.rank))))
    return sorted(groups, key=lambda group: group.rows[0].rank)


def _moved(row: Mapping[str, ToldCell]) -> bool:
    return any(cell.verdict in MOVED for cell in row.values())


def _named(benchmark: str, rows: Mapping[Key, Mapping[str, ToldCell]]) -> _Names:
    first = {key: next(iter(cells.values())) for key, cells in rows.items()}
    words = {cell.case: tuple(map(plain, cell.words)) or (plain(cell.case),) for cell in first.values()}
    parameters = list({tuple(map(plain, cell.parameters)) for cell in first.values()})
    if len(set(words.values())) < len(words):
        words, parameters = {case: (plain(case),) for case in words}, []
    decoded = parameters[0] if len(parameters) == 1 else ()
    shared, apart, by = _shared(words, decoded)
    metrics = distinct(cell.metric for cell in first.values())
    one = len(metrics) == 1
    of_row = {key: apart[cell.case] if one else (*apart[cell.case], plain(cell.metric)) for key, cell in first.items()}
    names = {key: " ".join(of_it) for key, of_it in of_row.items()}
    if len(set(names.values())) < len(names):
        names = {key: plain(f"{cell.case} {cell.metric}") for key, cell in first.items()}
        of_row = {key: (name,) for key, name in names.items()}
    units = distinct(plain(cell.unit) for cell in first.values())
    of = f"{plain(metrics[0])} in {units[0]}" if one else f"in {listed(units)}"
    parts = (plain(benchmark), of.strip(), shared, f"rows {by.upper()}" if by else "")
    title = wrapped(f"{', '.join(part for part in parts if part)}:", indent="  ", most=2)
    return _Names(tuple(title), names, of_row)


def _shared(words: Mapping[str, Words], decoded: Words) -> tuple[str, dict[str, Words], str]:
    """What all cases have in common at the same place, what is left of each, and what `decoded` calls that."""
    if len(words) == 1 or len({len(of_it) for of_it in words.values()}) > 1:
        same = len({len(of_it) for of_it in words.values()}) == 1
        return "", dict(words), " ".join(decoded) if same else ""
    places = list(zip(*words.values(), strict=True))
    differs = [len(set(place)) > 1 for place in places]
    names = decoded if len(decoded) == len(places) else ()
    common = [
        f"{names[n]} {place[0]}" if names and "=" not in place[0] else place[0]
        for n, (place, other) in enumerate(zip(places, differs, strict=True))
        if not other
    ]
    apart = {
        case: tuple(word for word, other in zip(of_it, differs, strict=True) if other) for case, of_it in words.items()
    }
    shared = " ".join(common)
    by = " ".join(name for name, other in zip(names, differs, strict=False) if other)
    return (shared if names or not shared else f"all {shared}"), apart, by


def _rows(told: _Names, rows: Mapping[Key, Mapping[str, ToldCell]], *, apart: bool) -> list[Row]:
    """Each case once. `apart`: some cases of the benchmark are in no row, so nothing can be said of all."""
    left = dict(rows)
    made = []
    for words, keys in _families(told.words, rows):
        whole = not apart and len(keys) == len(rows)
        if all(key in left for key in keys) and (words or whole):
            cells = defaultdict(list)
            for key in keys:
                for column, cell in left.pop(key).items():
                    cells[column].append(cell)
            name = _every(words, [told.words[key] for key in keys])
            made.append(Row(name, {column: tuple(of_it) for column, of_it in cells.items()}, len(keys)))
    single = [Row(told.names[key], {column: (cell,) for column, cell in row.items()}) for key, row in left.items()]
    return [*made, *single]


def _every(shared: Words, cases: Sequence[Words]) -> str:
    """`copy 1M|2M hot: 4 cases` where that names each of them and no other; else what they share."""
    places = [distinct(place) for place in zip(*cases, strict=True)]
    name = f"{' '.join('|'.join(place) for place in places)}: {len(cases)} cases"
    whole = math.prod(map(len, places)) == len(cases)
    return name if whole and len(name) <= _LONGEST_NAME else f"{' '.join(shared) or 'all'} ({len(cases)} cases)"


def _families(
    words: Mapping[Key, Words], rows: Mapping[Key, Mapping[str, ToldCell]]
) -> Iterator[tuple[Words, list[Key]]]:
    """Words, and all cases of the same columns that have them, where these say nearly the same; large ones first."""
    lengths = {len(of_it) for of_it in words.values()}
    if len(lengths) > 1 or max(lengths, default=0) > _MOST_PLACES or len(words) < _FEWEST:
        return
    found = []
    for count in range(max(lengths)):
        for places in combinations(range(max(lengths)), count):
            families: dict[tuple[Words, frozenset[str]], list[Key]] = defaultdict(list)
            for key, of_it in words.items():
                families[tuple(of_it[place] for place in places), frozenset(rows[key])].append(key)
            found += [(said, keys) for (said, _), keys in families.items() if _are_alike([rows[key] for key in keys])]
    yield from sorted(found, key=lambda one: (-len(one[1]), len(one[0])))


def _are_alike(rows: Sequence[Mapping[str, ToldCell]]) -> bool:
    """Whether they say nearly the same of the same metric in each of their columns."""
    return len(rows) >= _FEWEST and all(_is_narrow([row[column] for row in rows]) for column in rows[0])


def _is_narrow(cells: Sequence[ToldCell]) -> bool:
    if len({(cell.verdict, cell.metric) for cell in cells}) > 1:
        return False
    if cells[0].verdict in MOVED:
        if len({cell.ratio is not None and is_factor(cell.ratio) for cell in cells}) > 1:
            return False
        sizes = [movement(cell) for cell in cells]
    else:
        sizes = [cell.mde or 0.0 for cell in cells]
    return max(sizes) <= _NEAR * min(sizes)
