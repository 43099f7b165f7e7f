"""Numbers and times as text, and long tables page by page."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet

from server.core.rounding import downward, upward

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def span(seconds: float) -> str:
    """`3 h` for 11000 seconds; the largest unit that fits, rounded down."""
    whole = max(int(seconds), 0)
    for size, name in _UNITS:
        if whole >= size:
            return f"{whole // size} {name}"
    return "0 s"


def ago(moment: datetime, now: datetime) -> str:
    """`3 h ago`, or `in 3 h` for a date from the future, which mails do have."""
    seconds = (now - moment).total_seconds()
    return f"in {span(-seconds)}" if seconds <= -1 else f"{span(seconds)} ago"


NONE = "\N{EM DASH}"
_NBSP = "\N{NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"
# A column shows its smallest value with about this many digits, and never more decimals than three.
_DIGITS = 4
_MOST_DECIMALS = 3


def decimals_for(values: Iterable[float | None]) -> int:
    """How many decimals a whole column gets, so that all its figures line up."""
    sizes = [abs(v) for v in values if v is not None and math.isfinite(v) and v != 0]
    if not sizes:
        return 1
    magnitude = math.floor(math.log10(min(sizes)))
    # One decimal more than asked for shows the spread of figures in the thousands.
    return min(max(_DIGITS - 1 - magnitude, 1 if magnitude < _DIGITS else 0), _MOST_DECIMALS)


def fixed(value: float | None, decimals: int) -> str:
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.{decimals}f}".replace("-", _MINUS)


def ratio(value: float | None) -> str:
    """`1.713x`, as kernel people write a speed-up or its opposite."""
    return NONE if value is None else f"{fixed(value, 3)}x"


def interval(low: float | None, high: float | None) -> str:
    """Rounded outward: it holds its ratio as that is shown."""
    return "" if low is None or high is None else f"[{downward(low, 3)}, {upward(high, 3)}]"


def change(value: float | None) -> str:
    """The change that a ratio means: 1.713 is `+71.3 %`."""
    if value is None:
        return NONE
    percent = round((value - 1) * 100, 1)
    sign = "+" if percent > 0 else _MINUS if percent < 0 else _NBSP
    return f"{sign}{abs(percent):.1f}{_NBSP}%"


def effect(fraction: float | None) -> str:
    """A size of change without a sign, from a fraction, rounded up: 0.0117 is `1.2 %`."""
    if fraction is None:
        return NONE
    if 0 < fraction < 0.0005:  # noqa: PLR2004 (what one decimal cannot show)
        return f"<0.1{_NBSP}%"
    return f"{upward(fraction * 100, 1)}{_NBSP}%"


def least(fraction: float | None) -> str:
    """The lower end of an interval of such sizes, rounded down."""
    return NONE if fraction is None else f"{downward(fraction * 100, 1)}{_NBSP}%"


def probability(value: float | None) -> str:
    if value is None:
        return NONE
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"  # noqa: PLR2004 (what four decimals cannot show)


Row = TypeVar("Row")
Source = TypeVar("Source")
PER_PAGE = 50


@dataclass(frozen=True, slots=True)
class Paged(Generic[Row]):
    """`total` counts the rows of all pages; `previous` and `next` are page numbers."""

    rows: tuple[Row, ...]
    number: int
    pages: int
    total: int
    previous: int | None
    next: int | None


def paged(
    query: "QuerySet[Any, Source] | Sequence[Source]",
    number: str,
    rows: Callable[[Sequence[Source]], Sequence[Row]],
    per_page: int = PER_PAGE,
) -> Paged[Row]:
    """Two queries, of what is not read yet, and those of `rows`; one that makes no sense gives the nearest page."""
    page: Page[Source] = Paginator(query, per_page).get_page(number)
    return Paged(
        rows=tuple(rows(list(page.object_list))),
        number=page.number,
        pages=page.paginator.num_pages,
        total=page.paginator.count,
        previous=page.previous_page_number() if page.has_previous() else None,
        next=page.next_page_number() if page.has_next() else None,
    )
