import structlog
from celery import shared_task

from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.reports.commands.inbox import answer_trial_asked, obey_mail, read_new_mails, sweep_commands
from server.reports.outbox import queue_delivery, reports_without_delivery, send_delivery, send_rest, wake_outbox
from server.reports.sending.bounces import read_returned_mails
from server.reports.subscribers.calls import calls_to_send, send_call
from server.reports.subscribers.notices import tell_what_moved, write_digests
from server.reports.writing import tell_news

log = structlog.get_logger(__name__)


@shared_task(name="reports.compose")
def compose(finding_id: int) -> None:
    tell_news(finding_id=finding_id)


# A delivery that is still `sending` after two minutes belongs to a dead process: this one must be over by then.
@shared_task(name="reports.send", soft_time_limit=90, time_limit=100)
def send(delivery_id: int) -> None:
    send_delivery(delivery_id=delivery_id)


@shared_task(name="reports.send_rest", soft_time_limit=90, time_limit=100)
def send_again(delivery_id: int) -> None:
    send_rest(delivery_id=delivery_id)


@shared_task(name="reports.sweep")
def sweep() -> None:
    read_returned_mails()
    for report in reports_without_delivery():
        try:
            queue_delivery(report=report)
        except DomainError as error:
            # One that moved on meanwhile must not keep the others from leaving.
            log.warning("delivery_not_queued", trace=report.trace, report=report.pk, error=error.message)
    wake_outbox()
    sweep_commands()
    tell_what_moved()
    for call_id in calls_to_send():
        enqueue("reports.call", call_id)


# A call that is still `sending` after two minutes belongs to a dead process.
@shared_task(name="reports.call", soft_time_limit=90, time_limit=100)
def call(call_id: int) -> None:
    send_call(call_id=call_id)


@shared_task(name="reports.digests")
def digests() -> None:
    write_digests()


@shared_task(name="reports.read_commands")
def read_commands() -> None:
    """Commands in mails that came since the last time; one process at a time, for some seconds."""
    with advisory_lock("reports.read_commands") as free:
        if free and read_new_mails():
            enqueue("reports.read_commands")


@shared_task(name="reports.obey")
def obey(message_id: int) -> None:
    try:
        obey_mail(message_id=message_id)
    except DomainError as error:
        if error.permanent:
            raise
        # It waits still; the sweep tries again.
        log.warning("command_not_obeyed_yet", message=message_id, reason=error.message)


@shared_task(name="reports.answer_trial")
def answer_trial(trial_id: int) -> None:
    answer_trial_asked(trial_id=trial_id)
