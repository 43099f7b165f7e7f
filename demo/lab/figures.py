"""Published figures of kernel series, as facts in a table: what the machines of the lab measure again.

Copying folios in batches made them twice as fast on Zen 5 and lost up to two fifths on Zen 3; clearing pages in one
go helped where pages are large and did nothing elsewhere; the same for arm64 on a machine with two kinds of cores.
"""

from collections.abc import Iterator
from typing import NamedTuple

from demo.lab.replay.studies import ROUND_MEAN, UNPUBLISHED, Row, Spread, Study, slug

_GB = ("throughput", "GB/s", "higher")
# (folio, mean and standard deviation before, the same after) in GB/s; (folio, ratio) where no means were published.
_Figures = tuple[str, float, float, float, float] | tuple[str, float]


class _Copies(NamedTuple):
    """Without a function they were copied by migration: another benchmark."""

    uarch: str
    function: str
    direction: str
    cache: str
    total: str
    figures: tuple[_Figures, ...]


_COPIES = (
    _Copies(
        "zen5",
        "folio_mc_copy",
        "DRAM0->DRAM1",
        "cold",
        "2M",
        (
            ("256K", 15.63, 0.55, 30.81, 2.1),
            ("512K", 16.14, 0.66, 33.74, 2.74),
            ("1M", 17.09, 0.63, 36.04, 1.85),
            ("2M", 18.65, 1.37, 38.03, 3.21),
        ),
    ),
    _Copies(
        "zen5",
        "folio_mc_copy",
        "DRAM0->CXL",
        "cold",
        "2M",
        (
            ("256K", 22.55, 0.37, 36.34, 1.32),
            ("512K", 22.24, 0.86, 37.42, 1.89),
            ("1M", 23.28, 0.94, 39.23, 0.97),
            ("2M", 25.46, 2.89, 39.29, 1.17),
        ),
    ),
    _Copies(
        "zen5",
        "folio_mc_copy",
        "CXL->DRAM0",
        "cold",
        "2M",
        (("1M", 17.88, 3.88, 33.53, 0.4), ("2M", 20.61, 3.95, 35.07, 0.62)),
    ),
    _Copies(
        "zen5",
        "folio_copy",
        "DRAM0->DRAM1",
        "cold",
        "2M",
        (
            ("256K", 14.93, 0.57, 29.66, 2.44),
            ("512K", 15.6, 0.36, 34.21, 1.23),
            ("1M", 17.47, 0.41, 36.2, 1.4),
            ("2M", 19.36, 1.97, 38.92, 1.58),
        ),
    ),
    _Copies(
        "zen5",
        "folio_copy",
        "DRAM0->CXL",
        "cold",
        "2M",
        (
            ("256K", 21.49, 0.39, 34.92, 2.95),
            ("512K", 21.01, 0.69, 37.09, 2.13),
            ("1M", 24.37, 1.99, 38.94, 0.9),
            ("2M", 26.59, 2.78, 38.4, 2.59),
        ),
    ),
    _Copies(
        "zen5",
        "folio_copy",
        "CXL->DRAM0",
        "cold",
        "2M",
        (("1M", 19.05, 3.87, 33.93, 0.42), ("2M", 20.5, 4.53, 35.78, 0.93)),
    ),
    _Copies(
        "zen5",
        "folio_copy",
        "DRAM0->DRAM0",
        "hot",
        "1G",
        (
            ("16K", 83.61, 0.41, 96.7, 0.58),
            ("64K", 65.95, 1.14, 78.77, 0.2),
            ("256K", 68.59, 0.88, 82.55, 0.1),
            ("512K", 66.02, 0.5, 82.66, 0.17),
            ("1M", 38.07, 0.06, 41.53, 0.05),
            ("2M", 38.54, 0.02, 41.6, 0.04),
        ),
    ),
    _Copies(
        "zen5",
        "",
        "DRAM0->DRAM1",
        "",
        "1G",
        (("256K", 4.77, 0.01, 5.09, 0.01), ("1M", 4.83, 0.02, 5.19, 0.02), ("2M", 7.2, 0.03, 8.01, 0.02)),
    ),
    _Copies(
        "zen5",
        "",
        "DRAM0->CXL",
        "",
        "1G",
        (("256K", 6.07, 0.02, 6.65, 0.01), ("1M", 6.29, 0.02, 6.74, 0.02), ("2M", 11.12, 0.15, 13.07, 0.03)),
    ),
    _Copies(
        "zen5",
        "",
        "DRAM1->DRAM0",
        "",
        "1G",
        (("256K", 4.72, 0.01, 5.06, 0.01), ("1M", 4.83, 0.02, 5.17, 0.02), ("2M", 7.21, 0.02, 7.95, 0.02)),
    ),
    _Copies(
        "zen5",
        "",
        "CXL->DRAM0",
        "",
        "1G",
        (("256K", 5.08, 0.06, 5.24, 0.05), ("1M", 5.3, 0.05, 5.44, 0.05), ("2M", 9.1, 0.05, 9.49, 0.01)),
    ),
    _Copies("zen3", "folio_copy", "DRAM0->DRAM1", "cold", "2M", (("2M", 13.03, 0.76, 11.59, 0.18), ("1M", 0.9))),
    _Copies("zen3", "folio_copy", "DRAM1->DRAM0", "cold", "2M", (("2M", 12.85, 0.25, 11.02, 0.1), ("1M", 0.85))),
    _Copies("zen3", "folio_copy", "DRAM0->DRAM1", "hot", "2M", (("1M", 0.6), ("2M", 0.61))),
    _Copies("zen3", "folio_copy", "DRAM1->DRAM0", "hot", "2M", (("1M", 0.6), ("2M", 0.6))),
    _Copies("zen3", "folio_copy", "DRAM0->DRAM1", "hot", "1G", (("1M", 0.59), ("2M", 0.59))),
    _Copies("zen3", "folio_copy", "DRAM1->DRAM0", "hot", "1G", (("1M", 0.59), ("2M", 0.61))),
)


class _Cell(NamedTuple):
    """`spreads` are shares of the means, where they were published."""

    uarch: str
    core_type: str
    page_size: str
    base: float
    ratio: float
    spreads: tuple[float, float] | None = None


_CLEARED = (
    _Cell("zen4", "all", "2MB", 11.76, 2.0051, (0.011, 0.0195)),
    _Cell("zen4", "all", "1GB", 24.85, 1.0, (0.0241, 0.0133)),
    _Cell("icelakex", "all", "2MB", ROUND_MEAN, 1.0),
    _Cell("neoverse-n1", "all", "2MB", ROUND_MEAN, 1.0),
)
_CLEARED_ON_ARM64 = (
    _Cell("virtual", "all", "1GB", 2.38, 1.0126),
    _Cell("cix-p1", "cortex-a720", "1GB", 43.3, 1.0462),
    _Cell("cix-p1", "cortex-a520", "1GB", ROUND_MEAN, 1.0),
)
# Events of one boot on Zen 4 with 2 MB pages: they explain, and are not judged.
_COUNTED = (
    ("L1-dcache-loads", 7394341051.0, 0.9744),
    ("L1-dcache-load-misses", 3292247227.0, 0.9846),
    ("l2_pf_hit_l2.all", 2835860245.0, 1.2243),
    ("cache-references", 8493499137.0, 1.1093),
    ("cache-misses", 930501344.0, 0.0739),
    ("branches", 980014411.0, 0.5261),
    ("branch-misses", 180897177.0, 0.4314),
)
FOUNDING, NO_EFFECT = "copy-batch", "copy-comments"


def studies() -> tuple[Study, ...]:
    """What is posted, in this order; the first is the founding case."""
    title = "mm: Copy the pages of a folio in batches"
    copies = Study(FOUNDING, title, ("mm: Copy folios in batches",), _copied(), _WORDS)
    cleared = "mm: Clear the pages of a folio in one go"
    on_arm64 = "arm64: Clear several pages with one call"
    mmap = "mem-mmap"
    return (
        copies,
        Study("clear-pages", cleared, (cleared,), (*_rows(mmap, _CLEARED), *_counters(mmap))),
        Study("arm64-clear-pages", on_arm64, (on_arm64,), tuple(_rows(mmap, _CLEARED_ON_ARM64))),
        _commented(copies),
    )


_WORDS = {
    "folio-copy": {
        "hot": "the same folios again, none evicted",
        "cold": "source evicted before each copy",
        "total": "volume copied in one run",
    }
}
# Between the boots of a cell that would have shown a small effect.
_STEADY = 0.008


def _commented(study: Study) -> Study:
    """A series without any effect, where machines are steady enough to say so."""
    title = "mm: Say in comments how folios are copied"
    rows = (row for row in study.without_effect(NO_EFFECT).rows if max(one.boots for one in row.spreads) < _STEADY)
    return Study(NO_EFFECT, title, (title,), tuple(rows))


def _copied() -> tuple[Row, ...]:
    return tuple(_copy(group, figures) for group in _COPIES for figures in group.figures)


def _copy(group: _Copies, figures: _Figures) -> Row:
    folio = figures[0]
    told = (("function", group.function), ("direction", group.direction), ("folio", folio), ("cache", group.cache))
    parameters = tuple((name, value) for name, value in (*told, ("total", group.total)) if value)
    benchmark = "folio-copy" if group.function else "move-pages"
    if len(figures) == 2:  # noqa: PLR2004 (as their type says)
        base, ratio, spreads = ROUND_MEAN, figures[1], _UNKNOWN
    else:
        _, base, sd, patched, patched_sd = figures
        ratio, spreads = patched / base, (Spread.of_share(sd / base), Spread.of_share(patched_sd / patched))
    return _row((group.uarch, benchmark, "all"), parameters, base, ratio, spreads)


_UNKNOWN = (Spread(UNPUBLISHED, UNPUBLISHED), Spread(UNPUBLISHED, UNPUBLISHED))


def _rows(benchmark: str, cells: tuple[_Cell, ...]) -> Iterator[Row]:
    for cell in cells:
        spreads = _UNKNOWN
        if cell.spreads is not None:
            spreads = (Spread.of_share(cell.spreads[0]), Spread.of_share(cell.spreads[1]))
        parameters = (("page_size", cell.page_size), ("function", "demand"))
        yield _row((cell.uarch, benchmark, cell.core_type), parameters, cell.base, cell.ratio, spreads)


def _row(
    place: tuple[str, str, str],
    parameters: tuple[tuple[str, str], ...],
    base: float,
    ratio: float,
    spreads: tuple[Spread, Spread],
) -> Row:
    """`place` is microarchitecture, benchmark and kind of core."""
    uarch, benchmark, core_type = place
    verdict = "unchanged" if ratio == 1 else "improved" if ratio > 1 else "regressed"
    case = slug(" ".join(value for _, value in parameters))
    return Row(
        uarch, benchmark, case, *_GB, core_type, base, (ratio,), spreads, expected=verdict, parameters=parameters
    )


def _counters(benchmark: str) -> Iterator[Row]:
    parameters = (("page_size", "2MB"), ("function", "demand"))
    for event, base, ratio in _COUNTED:
        place = ("zen4", benchmark, slug("2MB demand"), slug(event), "events", "none", "all")
        yield Row(*place, base, (ratio,), _UNKNOWN, expected="counter", parameters=parameters)
