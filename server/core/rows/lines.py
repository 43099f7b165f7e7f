"""Rows as lines of text: CSV for spreadsheets, JSON for programs."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rest_framework.utils.encoders import JSONEncoder

# A spreadsheet takes a text that begins so for a formula, and a mail's subject would run on its reader's machine. Signs
# that nobody sees may stand before it, and where a semicolon parts cells the text begins anew behind one. That `'` is
# among them lets a program tell what was put in front from what was there.
_UNSEEN = (
    "[ \\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\xa0\\u1680\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u2064\\u3000\\ufeff]"
)
_FORMULA = re.compile(f"(?:^|(?<=[;\\t\\r\\n]))(?={_UNSEEN}*[=+@'\\-\uff1d\uff0b\uff0d\uff20])")


def csv_cell(value: Any) -> Any:
    """Numbers as they are, null as nothing, lists and objects as JSON; no text begins a formula."""
    if isinstance(value, str):
        return _FORMULA.sub("'", value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, float | int):
        return value
    # Where a semicolon parts cells, none begins within.
    return as_json(value).decode().replace(";", "\\u003b")


# Lines that are written at once.
_LINES = 1000


def csv_lines(rows: Iterable[Sequence[Any]], names: Sequence[str]) -> Iterator[bytes]:
    """A header and a line for each row of cells (RFC 4180), many at a time."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(names)
    left = iter(rows)
    while some := list(islice(left, _LINES)):
        writer.writerows(some)
        yield out.getvalue().encode()
        out.seek(0)
        out.truncate()
    if text := out.getvalue():
        yield text.encode()


def json_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """NDJSON: an object on each line, many at a time."""
    left = iter(rows)
    while some := list(islice(left, _LINES)):
        yield b"".join(as_json(row) + b"\n" for row in some)


_ENCODER = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# Signs that programs take for the end of a line.
_ENDS = {sign: f"\\u{sign:04x}" for sign in (0x85, 0x2028, 0x2029)}


def as_json(value: Any) -> bytes:
    """On one line, whoever reads it."""
    text = _ENCODER.encode(value)
    return (text if text.isascii() else text.translate(_ENDS)).encode()
