"""Queue `sources`: watching trees and lists, making series of mails, checking and applying them."""

import time
from types import SimpleNamespace

import structlog
from celery import Task, shared_task

from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.sources.applying.application import apply_series
from server.sources.archives import archive
from server.sources.messages.storage import POSTED
from server.sources.models import MailingList, Message, Series, Tree
from server.sources.series import formation
from server.sources.series.requests import sweep_series
from server.sources.trees import fetch
from server.sources.trust import series_check

log = structlog.get_logger(__name__)

# Work for some seconds; what is left goes on with the next wake-up, and other tasks get their turn.
THREADS_AT_ONCE = 200
_GROUP_SECONDS = 120.0
# A silent name server, or others' turn: asked again after one minute, then after two, and so on for half an hour.
_FIRST_PAUSE = 60
_PROOFS_TRIED = 5
_rest = SimpleNamespace(until=0.0)


@shared_task(name="sources.poll_trees")
def poll_trees() -> None:
    for tree in fetch.claim_due_trees():
        enqueue("sources.fetch_tree", tree.pk)


@shared_task(name="sources.poll_lists")
def poll_lists() -> None:
    for mailing_list in archive.claim_due_lists():
        enqueue("sources.read_list", mailing_list.pk)


@shared_task(name="sources.fetch_tree")
def fetch_tree(tree_id: int) -> None:
    if tree := Tree.objects.filter(pk=tree_id, enabled=True).first():
        fetch.fetch_tree(tree=tree)


@shared_task(name="sources.read_list")
def read_list(list_id: int) -> None:
    mailing_list = MailingList.objects.filter(pk=list_id, enabled=True).first()
    if mailing_list and archive.read_list(mailing_list=mailing_list).more:
        enqueue("sources.read_list", list_id)


@shared_task(name="sources.group_threads")
def group_threads() -> None:
    if formation.group_stale(limit=THREADS_AT_ONCE, seconds=_GROUP_SECONDS) == THREADS_AT_ONCE:
        enqueue("sources.group_threads")


@shared_task(name="sources.check_series")
def check_series(series_id: int) -> None:
    """Checking may wait for name servers: that is why it is a task of its own."""
    series = Series.objects.filter(pk=series_id, state=Series.State.HELD).first()
    if series is None:
        return
    try:
        series_check.check_series(series=series)
    except DomainError as error:
        if error.permanent:
            raise
        # The series stays held; the sweep tries again.
        log.warning("series_not_checked_yet", trace=series.trace, series=series.pk, reason=error.message)


@shared_task(name="sources.check_strangers")
def check_strangers() -> None:
    """The sweep asks again. As long as it has taken this process rests: where there is no other one, all else waits."""
    began = time.monotonic()
    if began >= _rest.until:
        try:
            series_check.check_strangers()
        finally:
            _rest.until = 2 * time.monotonic() - began


@shared_task(name="sources.prove_mail", bind=True, max_retries=_PROOFS_TRIED)
def prove_mail(self: "Task[..., None]", message_id: int) -> None:
    mail = Message.objects.filter(pk=message_id, kind__in=POSTED).defer(*Message.LONG).first()
    if mail is None or series_check.prove_loose(mail=mail) or self.request.retries >= _PROOFS_TRIED:
        return
    raise self.retry(countdown=_FIRST_PAUSE * 2**self.request.retries)


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
