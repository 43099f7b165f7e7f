"""How long ago, in the one unit a reader wants."""

from datetime import datetime

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
