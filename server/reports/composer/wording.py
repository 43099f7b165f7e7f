"""How a mail words what it tells: plain ASCII of whatever strangers wrote, and figures by their direction."""

import math
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

from server.core.rounding import downward, is_factor, seen_effect, size_digits, size_of, upward
from server.reports.composer.told import HIGHER, ToldCell

WIDTH = 78
# Plus-minus, arrow, dashes, quotation marks, ellipsis: everything else folds to its base letter or to "?".
_REPLACED = {
    0xB1: "+-",
    0x2192: "->",
    0x2010: "-",
    0x2011: "-",
    0x2013: "-",
    0x2014: "-",
    0x2018: "'",
    0x2019: "'",
    0x201C: '"',
    0x201D: '"',
    0x2026: "...",
}
_BLANKS = re.compile(r"\s+")
# What other programs obey in the text of a mail, wherever a line happens to begin: our commands, and the trailers that
# b4 takes from replies.
_COMMAND = re.compile(r"#\s*(?=(?:tidemark|syz|regzbot)\b)", re.IGNORECASE)
_TRAILER = re.compile(r"\b((?:[A-Za-z]+-)+by|Fixes|Closes|Link|Cc|Change-Id|Message-Id):(?=\s)", re.IGNORECASE)
# A line of a diff, or one that ends a commit message.
_DIFF = re.compile(r"(?:^|(?<=\s))(-{3,}|\+{3}|@@+|diff(?= -)|Index:)(?=\s|$)")
# Nobody reads more of one thing that a stranger named.
_MOST_LETTERS = 2000


def plain(text: str) -> str:
    """One line of printable ASCII: nothing of a hostile mail or console is obeyed by whoever reads the mail."""
    folded = unicodedata.normalize("NFKD", text[:_MOST_LETTERS].translate(_REPLACED))
    folded = "".join(c for c in folded if not unicodedata.combining(c))
    ascii_only = "".join(c if c.isascii() else "?" for c in _BLANKS.sub(" ", folded))
    line = "".join(c for c in ascii_only if c.isprintable()).strip()
    line = _COMMAND.sub("# ", line)
    line = _TRAILER.sub(r"\1 :", line)
    return _DIFF.sub(lambda found: f"'{found[1]}'", line)


def wrap(text: str, *, first: str = "", indent: str = "", most: int | None = None) -> list[str]:
    """`text`, made plain, in lines; `first` stands before the first line, `indent` before the others."""
    return wrapped(plain(text), first=first, indent=indent, most=most)


def wrapped(text: str, *, first: str = "", indent: str = "", most: int | None = None) -> list[str]:
    """The same of words that are ours."""
    # A percentage, a sign of the table and a number of boots stay on their line.
    lines = textwrap.wrap(
        text.replace(" %", "\x00%").replace(" <", "\x00<").replace(" boots", "\x00boots"),
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        max_lines=most,
        placeholder=" ...",
        break_on_hyphens=False,
    )
    return [line.replace("\x00", " ") for line in lines] or [first.rstrip()]


def cut(text: str, width: int) -> str:
    """Plain, and no longer than that."""
    text = plain(text)
    return text if len(text) <= width else f"{text[: width - 3].rstrip()}..."


def listed(names: Sequence[str], most: int = 0) -> str:
    """a, b and c; of more than `most` how many are left."""
    if most and len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def distinct(words: Iterable[str]) -> list[str]:
    """Each once, in the order of their first time."""
    return list(dict.fromkeys(words))


_WHOLE_FROM, _WHOLE_TO = 1e3, 1e12
_SMALL = 1e-3
_DIGITS = 4


def _decimals(value: float) -> int:
    """So many that a number has four digits."""
    size = abs(value)
    return 0 if size >= _WHOLE_FROM else max(0, _DIGITS - 1 - math.floor(math.log10(size or 1)))


def number(value: float) -> str:
    """Four significant digits, never in powers of ten for numbers that a person can read."""
    if not math.isfinite(value) or (value and not _SMALL <= abs(value) < _WHOLE_TO):
        return f"{value:.4g}"
    return f"{value:.{_decimals(value)}f}"


def spread(mean: float, sd: float) -> str:
    """`10.02 +- 0.03`: both end at the same digit, unless nothing would be left of the spread."""
    decimals = _decimals(mean) if _SMALL <= abs(mean) < _WHOLE_TO else -1
    shown = f"{sd:.{decimals}f}" if decimals >= 0 else f"{sd:.2g}"
    return f"{number(mean)} +- {shown if float(shown) or not sd else format(sd, '.1g')}"


_SIZES = frozenset({"B", "KB", "MB", "GB", "KIB", "MIB", "GIB", "BYTES", "PAGES", "%", "W", "J"})


def is_slower(cell: ToldCell) -> bool:
    assert cell.ratio is not None
    return (cell.ratio < 1) == (cell.better == HIGHER)


def direction(cell: ToldCell) -> str:
    """Slower or faster, as the metric goes; what is no speed gets worse or better."""
    words = ("worse", "better") if cell.unit.upper() in _SIZES else ("slower", "faster")
    return words[0] if is_slower(cell) else words[1]


def movement(cell: ToldCell) -> float:
    """On logs; what moved to or from zero moved most."""
    if cell.ratio is None:
        return 0.0
    return abs(math.log(cell.ratio)) if 0 < cell.ratio < math.inf else math.inf


def _size(ratio: float, of: float) -> float:
    """How far `ratio` lies in the direction of `of`, on its scale."""
    if is_factor(of):
        size = ratio if of > 1 else (1 / ratio if ratio else math.inf)
        return max(size, 0.0)
    return 100 * (ratio - 1 if of > 1 else 1 - ratio)


def magnitude(cell: ToldCell, *, tenths: bool = False) -> str:
    """`41 %` or `2.21x`; with `tenths` a factor is told as `2.2x`."""
    assert cell.ratio is not None
    if tenths and is_factor(cell.ratio):
        size = _size(cell.ratio, cell.ratio)
        return f"{size:.{min(size_digits(size, factor=True), 1)}f}x"
    return size_of(cell.ratio)


def speed(cell: ToldCell, *, tenths: bool = False) -> str:
    """`41 % slower`, `2.21x faster`."""
    return f"{magnitude(cell, tenths=tenths)} {direction(cell)}"


def reach_of_size(cells: Sequence[ToldCell], *, tenths: bool = False, to: str = " to ") -> str:
    """`39 to 41 %`, `2.02 to 2.21x`, `1.08 to 2.21x`: from the least moved to the most, in the unit of the most."""
    ends = (min(cells, key=movement), max(cells, key=movement))
    low, high = (magnitude(cell, tenths=tenths) for cell in ends)
    if high.endswith("x") and low.endswith("%"):
        # What does not move by a factor moves by less than twice.
        ratio = ends[0].ratio or 1.0
        low = f"{max(ratio, 1 / ratio):.{1 if tenths else 2}f}x"
    if low == high:
        return high
    for unit in (" %", "x"):
        if low.endswith(unit) and high.endswith(unit):
            low = low.removesuffix(unit)
    return f"{low}{to}{high}"


def reach(cells: Sequence[ToldCell], *, tenths: bool = False, to: str = " to ") -> str:
    """`39 to 41 % slower`, of cells that moved the same way."""
    return f"{reach_of_size(cells, tenths=tenths, to=to)} {direction(cells[0])}"


def span(cell: ToldCell) -> str:
    """`41 % slower [40 to 43 %]`: the interval in the same words, rounded so that it holds the value."""
    assert cell.ratio is not None
    if cell.low is None or cell.high is None:
        return speed(cell)
    factor = is_factor(cell.ratio)
    digits = size_digits(_size(cell.ratio, cell.ratio), factor=factor)
    ends = sorted(_size(end, cell.ratio) for end in (min(cell.low, cell.ratio), max(cell.high, cell.ratio)))
    unit = "x" if factor else " %"
    return f"{speed(cell)} [{downward(ends[0], digits)} to {upward(ends[1], digits)}{unit}]"


def figures(cell: ToldCell) -> str:
    """`10.02 +- 0.03 -> 5.89 +- 0.02 GB/s`."""
    known = (cell.base_mean, cell.base_sd, cell.patched_mean, cell.patched_sd)
    if None in known:
        return "no figures"
    base, patched = spread(known[0] or 0.0, known[1] or 0.0), spread(known[2] or 0.0, known[3] or 0.0)
    return f"{base} -> {patched} {plain(cell.unit)}".rstrip()


def means(cell: ToldCell) -> str:
    """`10.02 -> 5.89 GB/s`; empty where they are not known."""
    if cell.base_mean is None or cell.patched_mean is None:
        return ""
    return f"{number(cell.base_mean)} -> {number(cell.patched_mean)} {plain(cell.unit)}".rstrip()


def boots(cell: ToldCell) -> str:
    """`7+7 boots`."""
    return f"{cell.boots[0]}+{cell.boots[1]} boots"


def seen(effects: Sequence[float]) -> str:
    """Down to which effect some cells would have shown one: of very different ones half and the noisiest."""
    known = sorted(effects)
    half, worst = known[(len(known) - 1) // 2], known[-1]
    # Nearly alike: the worst is true of all and hides nothing.
    if worst <= 2 * half:
        return seen_effect(worst)
    return f"{seen_effect(half)} in half of them and {seen_effect(worst)} in the noisiest"
