"""The one place that asks what time it is, so that tests can set it."""

from datetime import datetime

from django.utils import timezone


def now() -> datetime:
    """The current time, aware, in UTC."""
    return timezone.now()
