"""Rows as people and programs read them: a table, CSV, one JSON document, or a line of JSON for each row."""

import csv
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidemark.api import Row
from tidemark.nouns import field

_STYLES = {
    **dict.fromkeys(("regressed", "failed", "quarantined"), "red"),
    **dict.fromkeys(("split", "suspect"), "yellow"),
    **dict.fromkeys(("improved", "healthy"), "green"),
}
_SHORT_SHA = 12
_SHAS = {"sha", "head", "culprit", "fix", "reference"}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the program, with a code of its own."""
        raise BrokenPipeError


Write = Callable[[Iterable[Row], Sequence[str], TextIO], None]


def as_table(rows: Iterable[Row], columns: Sequence[str], out: TextIO) -> None:
    """Colours on a terminal alone, and none where NO_COLOR is set; what is no terminal gets lines of any width."""
    console: Console = _Console(file=out, highlight=False)
    if not console.is_terminal:
        console = _Console(file=out, highlight=False, width=100_000, no_color=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(_cell(column, field(row, column)) for column in columns))
    console.print(table)


def _cell(column: str, value: Any) -> Text:
    text = _shown(value)
    if column.rpartition(".")[2] in _SHAS:
        text = text[:_SHORT_SHA]
    return Text(text, style=_STYLES.get(text, ""))


def _shown(value: Any) -> str:
    """Ratios to four places: what people compare. A mail may hold signs that would move a terminal's cursor."""
    text = f"{value:.4f}" if isinstance(value, float) else _plain(value)
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def as_words(rows: Iterable[Row], columns: Sequence[str], out: TextIO) -> None:
    """A line for each row as soon as it is there."""
    for row in rows:
        out.write("  ".join(_shown(field(row, column)) for column in columns) + "\n")
        out.flush()


def as_csv(rows: Iterable[Row], columns: Sequence[str], out: TextIO) -> None:
    """As the service's own: numbers with all their digits, true and false; what holds several values is JSON; a `'`
    before a text that would be a formula.
    """
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_of_program(field(row, column)) for column in columns])
        out.flush()


def _of_program(value: Any) -> str:
    if isinstance(value, str):
        return _FORMULA.sub("'", value)
    if isinstance(value, bool | dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace(";", "\\u003b")
    return _plain(value)


# A spreadsheet would run a mail's subject that begins so. Signs that nobody sees may stand before it, and where a
# semicolon parts cells the text begins anew behind one.
_UNSEEN = (
    "[ \\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\xa0\\u1680\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u2064\\u3000\\ufeff]"
)
_FORMULA = re.compile(f"(?:^|(?<=[;\\t\\r\\n]))(?={_UNSEEN}*[=+@'\\-\uff1d\uff0b\uff0d\uff20])")


def as_json(rows: Iterable[Row], _columns: Sequence[str], out: TextIO) -> None:
    """All fields, whatever columns a table has."""
    json.dump(list(rows), out, ensure_ascii=False, indent=1)
    out.write("\n")


def as_lines(rows: Iterable[Row], _columns: Sequence[str], out: TextIO) -> None:
    for row in rows:
        out.write(json.dumps(row, ensure_ascii=False) + "\n")
        out.flush()


# What a service makes itself.
FILES = ("arrow", "parquet")
FORMATS: dict[str, Write] = {"table": as_table, "csv": as_csv, "json": as_json, "ndjson": as_lines, "lines": as_words}
