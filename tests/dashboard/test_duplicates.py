"""Two people who say at one moment that two findings are the same."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction
from django.test import Client

from server.detection.models import Finding
from tests.dashboard.test_triage import WHY, act, found, mark, person


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("by", ["page", "api"])
def test_two_who_name_each_others_finding_do_not_wait_for_each_other(client: Client, by: str) -> None:
    """Who waits for the first of both holds nothing that the one who has it will ask for."""
    split = found("split", {"zen3": "regressed", "zen5": "improved"}, subject="mm: Split")
    better = found("improved", {"zen3": "improved"}, subject="mm: Better")
    client.force_login(person("ada", "change_finding"))

    def name_the_first() -> int:
        try:
            if by == "page":
                return act(client, "duplicate", mark(better), reason=WHY, of=str(split.pk)).status_code
            body = {"of": split.pk, "reason": WHY}
            return client.post(f"/api/v1/findings/{better.pk}/duplicate/", body, "application/json").status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Finding.objects.select_for_update(no_key=True).get(pk=split.pk)
            waiting = pool.submit(name_the_first)
            _until_somebody_waits()
            assert Finding.objects.select_for_update(no_key=True, skip_locked=True).filter(pk=better.pk).exists()
        assert waiting.result(timeout=20) in (200, 302)
    better.refresh_from_db()
    assert better.same_as == split


def _until_somebody_waits() -> None:
    for _ in range(200):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            if cursor.fetchone():
                return
        time.sleep(0.05)
    raise AssertionError("nobody waits")
