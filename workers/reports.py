import structlog
from celery import shared_task

from server.core.errors import DomainError
from server.reports.outbox import queue_delivery, reports_without_delivery, send_delivery, wake_outbox
from server.reports.writing import tell_news

log = structlog.get_logger(__name__)


@shared_task(name="reports.compose")
def compose(finding_id: int) -> None:
    tell_news(finding_id=finding_id)


# A delivery that is still `sending` after two minutes belongs to a dead process: this one must be over by then.
@shared_task(name="reports.send", soft_time_limit=90, time_limit=100)
def send(delivery_id: int) -> None:
    send_delivery(delivery_id=delivery_id)


@shared_task(name="reports.sweep")
def sweep() -> None:
    for report in reports_without_delivery():
        try:
            queue_delivery(report=report)
        except DomainError as error:
            # One that moved on meanwhile must not keep the others from leaving.
            log.warning("delivery_not_queued", trace=report.trace, report=report.pk, error=error.message)
    wake_outbox()
