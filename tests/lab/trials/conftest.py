"""What a test's own transaction wakes up, as if it were committed."""

import pytest
from django.db import transaction

from server.core import tasks

Sent = list[tuple[str, tuple[int | str, ...]]]


@pytest.fixture
def wakes(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """(task name, arguments) of all that was asked of workers, in order."""
    sent: Sent = []
    monkeypatch.setattr(transaction, "on_commit", lambda call, **_options: call())
    monkeypatch.setattr(tasks, "send", lambda name, args: sent.append((name, args)))
    return sent
