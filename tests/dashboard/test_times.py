from datetime import UTC, datetime, timedelta

import pytest

from server.dashboard.rows.figures import ago

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
