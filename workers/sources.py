"""Queue `sources`: watching trees and lists, and applying series."""

import structlog
from celery import shared_task

from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.sources import lists, trees
from server.sources.application import apply_series
from server.sources.models import MailingList, Series, Tree
from server.sources.series import sweep_series

log = structlog.get_logger(__name__)


@shared_task(name="sources.poll_trees")
def poll_trees() -> None:
    for tree in trees.claim_due_trees():
        enqueue("sources.fetch_tree", tree.pk)


@shared_task(name="sources.poll_lists")
def poll_lists() -> None:
    for mailing_list in lists.claim_due_lists():
        enqueue("sources.read_list", mailing_list.pk)


@shared_task(name="sources.fetch_tree")
def fetch_tree(tree_id: int) -> None:
    if tree := Tree.objects.filter(pk=tree_id, enabled=True).first():
        trees.fetch_tree(tree=tree)


@shared_task(name="sources.read_list")
def read_list(list_id: int) -> None:
    mailing_list = MailingList.objects.filter(pk=list_id, enabled=True).first()
    if mailing_list and lists.read_list(mailing_list=mailing_list).more:
        enqueue("sources.read_list", list_id)


@shared_task(name="sources.apply_series")
def apply(series_id: int) -> None:
    series = Series.objects.filter(pk=series_id).first()
    if series is None:
        return
    try:
        apply_series(series=series)
    except DomainError as error:
        if error.permanent:
            raise
        # The series stays ready; the sweep tries again.
        log.warning("series_not_applied_yet", trace=series.trace, series=series.pk, reason=error.message)


@shared_task(name="sources.sweep")
def sweep() -> None:
    sweep_series()
