from datetime import UTC, datetime, timedelta

import pytest

from server.dashboard.rows.figures import ago
from server.dashboard.templatetags.tidemark import since

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s ago"),
        (59, "59 s ago"),
        (60, "1 min ago"),
        (7199, "1 h ago"),
        (3 * 86_400, "3 d ago"),
        (-0.5, "0 s ago"),
        (-90, "in 1 min"),
    ],
)
def test_ago_names_the_largest_unit_that_fits(seconds: float, text: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == text


def test_what_was_dated_by_a_clock_ahead_is_told_by_its_date() -> None:
    assert ">2026-12-22</time>" in since(datetime(2026, 12, 22, 16, tzinfo=UTC), NOW)
    assert ">in 2 h</time>" in since(NOW + timedelta(hours=2, minutes=1), NOW)
