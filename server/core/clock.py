"""The one place that asks what time it is, so that tests can set it."""

from datetime import datetime, timedelta

from django.utils import timezone


def now() -> datetime:
    """The current time, aware, in UTC."""
    return timezone.now()


def lately() -> datetime:
    """Since when sweeps look at what moved: they come every few seconds, and are hardly ever away for so long."""
    return now() - timedelta(days=2)
