"""Of much that waits, each sweep takes some."""

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.conf import settings

from server.core.tasks import in_turn
from server.sources.models import MailingList
from tests.builders import build_list

pytestmark = pytest.mark.django_db
_NOW = datetime(2026, 11, 23, tzinfo=UTC)


def taken(most: int) -> list[str]:
    return in_turn(MailingList.objects.order_by("pk").values_list("name", flat=True), most)


def test_few_are_taken_all_at_once_and_in_their_order() -> None:
    for number in range(4):
        build_list(f"list-{number}")
    assert taken(4) == [f"list-{number}" for number in range(4)]


def test_of_many_the_oldest_come_each_time_and_all_others_in_turn() -> None:
    names = {build_list(f"list-{number:02}").name for number in range(23)}
    seen: set[str] = set()
    for sweep in range(10):
        with time_machine.travel(_NOW + timedelta(seconds=sweep * settings.SWEEP_SECONDS), tick=False):
            found = taken(6)
        assert len(found) <= 6
        assert found[:3] == ["list-00", "list-01", "list-02"]
        seen.update(found)
    assert seen == names
