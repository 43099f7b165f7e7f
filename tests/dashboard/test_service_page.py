"""The service page: the numbers of /metrics, for people."""

from datetime import timedelta

import pytest
from django.test import Client
from pytest_django.fixtures import DjangoAssertNumQueries

from server.core import clock
from server.operations import pulse
from server.sources.models import Tree

# Two of them say who asks.
MOST_QUERIES = 14


@pytest.mark.django_db
def test_the_page_tells_queues_sweeps_watchers_and_disk(
    admin_client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(5):
        polled = clock.now() - timedelta(days=number)
        Tree.objects.create(name=f"tree-{number}", url="https://example.org/a.git", polled_at=polled)
    with pulse.noted("lab.sweep"):
        pass
    with django_assert_max_num_queries(MOST_QUERIES):
        page = admin_client.get("/status/service/").content.decode()
    assert "tree tree-4" in page
    assert "late" in page
    assert "lab.sweep" in page
    assert "leases overdue" in page
    assert "/status/service/" in admin_client.get("/status/").content.decode()


@pytest.mark.django_db
def test_strangers_are_asked_who_they_are(client: Client) -> None:
    answer = client.get("/status/service/")
    assert (answer.status_code, answer["Location"]) == (302, "/login/?next=/status/service/")
