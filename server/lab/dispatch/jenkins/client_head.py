"""What each answer's header tells of the controller."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from server.lab.dispatch.jenkins.answers import Head
from server.lab.dispatch.jenkins.client_values import clean

# As the database's columns for them.
_LONGEST_SESSION = 64
_LONGEST_VERSION = 60


def read_head(headers: Mapping[str, str], now: datetime) -> Head:
    """The controller's session, version and time, as far as they are told; `now` is our time of the answer."""
    date = _date(headers.get("Date", ""))
    return Head(
        session=clean(headers.get("X-Jenkins-Session", ""), _LONGEST_SESSION),
        version=clean(headers.get("X-Jenkins", ""), _LONGEST_VERSION),
        date=date,
        skew_seconds=(date - now).total_seconds() if date else None,
    )


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
        return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
