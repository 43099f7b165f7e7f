"""Words and tables for plain-text mails: ASCII, at most 72 columns, whatever the outside world put into the rows."""

import re
import textwrap
import unicodedata
from collections.abc import Sequence

WIDTH = 72
# Plus-minus, arrow, dashes, quotation marks, ellipsis: everything else folds to its base letter or to "?".
_REPLACED = {
    0xB1: "+-",
    0x2192: "->",
    0x2013: "-",
    0x2014: "-",
    0x2018: "'",
    0x2019: "'",
    0x201C: '"',
    0x201D: '"',
    0x2026: "...",
}
_WHOLE_FROM, _WHOLE_TO = 1e3, 1e12
_BLANKS = re.compile(r"\s+")


def plain(text: str) -> str:
    """One line of printable ASCII: no control character of a hostile mail or console survives."""
    folded = unicodedata.normalize("NFKD", text.translate(_REPLACED))
    folded = "".join(c for c in folded if not unicodedata.combining(c))
    ascii_only = "".join(c if c.isascii() else "?" for c in _BLANKS.sub(" ", folded))
    return "".join(c for c in ascii_only if c.isprintable()).strip()


def wrap(text: str, *, indent: str = "", first: str = "", most: int | None = None) -> list[str]:
    """`text` in lines; `first` stands before the first line, `indent` before the others."""
    wrapped = textwrap.wrap(
        plain(text),
        WIDTH,
        initial_indent=first or indent,
        subsequent_indent=indent,
        max_lines=most,
        placeholder=" ...",
        break_on_hyphens=False,
    )
    return wrapped or [f"{first or indent}".rstrip()]


def cut(text: str, width: int) -> str:
    text = plain(text)
    return text if len(text) <= width else f"{text[: width - 2]}.."


def table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Rows with a name and one text for each column; columns that do not fit beside each other follow below."""
    names = max(len(name) for name, _cells in rows)
    widths = [max(len(title), *(len(cells[i]) for _name, cells in rows)) for i, title in enumerate(head)]
    lines: list[str] = []
    start = 0
    while start < len(head):
        stop = start + 1
        while stop < len(head) and names + sum(w + 2 for w in widths[start : stop + 1]) <= WIDTH:
            stop += 1
        lines.append(_row("", names, head[start:stop], widths[start:stop]))
        lines += [_row(name, names, cells[start:stop], widths[start:stop]) for name, cells in rows]
        start = stop
    return lines


def _row(name: str, names: int, cells: Sequence[str], widths: Sequence[int]) -> str:
    columns = "".join(f"  {cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{name:<{names}}{columns}".rstrip()


def number(value: float) -> str:
    """Four significant digits, never in powers of ten for numbers a person can read."""
    return f"{value:.0f}" if _WHOLE_FROM <= abs(value) < _WHOLE_TO else f"{value:.4g}"
