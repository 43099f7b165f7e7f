"""What is answered: what could not be done, and what came of what was measured, to the one who asked and nobody else.

Every line of the mail that is told back is quoted, so that no answer gives a command to whoever reads it.
"""

import textwrap
from collections.abc import Iterable, Sequence
from datetime import timedelta

import structlog
from django.conf import settings
from django.urls import reverse

from server.core import clock
from server.core.reasons import Because
from server.detection.findings.checks import CheckOutcome, Name, checks_named
from server.detection.findings.result import result_of
from server.detection.lifecycle.retest import compare_retest
from server.detection.models import Finding
from server.lab.models import Trial, TrialState
from server.reports.commands.grammar import HELP
from server.reports.models import CommandState, MailCommand, Report, ReportState
from server.reports.outbox import queue_delivery
from server.reports.sending.readers import opt_outs
from server.sources.models import Message

log = structlog.get_logger(__name__)
# To one sender about one finding: whoever gets more is a program.
MOST_A_DAY = 5
_WIDTH = 76
_MOST_REFERENCES = 20
_LONGEST_SUBJECT = 200


def answer_refusals(message: Message, rows: Sequence[MailCommand]) -> Report | None:
    """One mail about all commands of a mail that cannot be done. Runs in the transaction that found them so."""
    if not rows:
        return None
    lines = [line for row in rows for line in (*_quoted(row), *_wrapped(f"Not done: {row.reason.rstrip('.')}."), "")]
    known = ["Known, each at the beginning of a line of its own, after #tidemark:", *(f"    {one}" for one in HELP)]
    return _answer(f"answer:{message.pk}", message, rows, [*lines, *known])


def answer_result(row: MailCommand) -> Report | None:
    """What the trial that the command asked for came to, if it is over: then the command is done.

    Runs in the transaction of the caller, who holds the command.
    """
    trial = row.trial
    finding = row.delivery.report.finding
    if trial is None or finding is None or trial.state not in Trial.FINAL or trial.answered_at is None:
        return None
    told = _result(finding, trial)
    if not row.advance(CommandState.DONE, Because.ANSWERED(f"trial {trial.pk}: {told}")):
        return None
    page = f"{settings.SITE_URL}{reverse('finding', args=[finding.pk])}"
    return _answer(
        f"answer:{row.message_id}:{row.line}", row.message, [row], [*_quoted(row), *_wrapped(told), "", page]
    )


def _result(finding: Finding, trial: Trial) -> str:
    """In one sentence or two."""
    result = result_of(trial, virtual_too=finding.virtual)
    if result is None or not (result.comparisons or result.identical):
        return f"Measured again without a result: {trial.reason or TrialState(trial.state).label}."
    # Compared when it was answered: by now what it did not show again may have been taken back.
    stored = {check["outcome"] for check in checks_named(finding, Name.RETEST)} - {CheckOutcome.PENDING}
    outcome = CheckOutcome(stored.pop()) if stored else compare_retest(finding, trial, result)
    said = {
        CheckOutcome.PASSED: "Measured again; what both measured says the same. The new measurement by itself",
        CheckOutcome.FAILED: "Measured again, and it does not say the same as what we told you",
        CheckOutcome.NOT_CHECKED: "Measured again, and it neither bears out nor contradicts what we told you",
    }
    return f"{said[outcome]}: {result.headline}"


def _quoted(row: MailCommand) -> list[str]:
    return [f"> {_plain(row.text)[: _WIDTH - 2]}"]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(_plain(text), _WIDTH, break_on_hyphens=False) or [""]


def _plain(text: str) -> str:
    return text.encode("ascii", "replace").decode()


def _answer(key: str, message: Message, rows: Sequence[MailCommand], lines: Iterable[str]) -> Report | None:
    """Queue it; None where its reader wants no mail, or got enough of them."""
    row = rows[0]
    about, sender = row.delivery.report, row.sender
    if not sender.isascii() or opt_outs([sender]) or _lately(about, sender) >= MOST_A_DAY:
        log.info("command_not_answered", trace=row.trace, message=message.pk)
        return None
    if Report.objects.filter(key=key).exists():
        return None
    body = "\n".join([*lines, "", "-- ", "Written by a program (Tidemark)."]) + "\n"
    report = Report.objects.create(
        kind=Report.Kind.ANSWER,
        key=key,
        finding=about.finding,
        answers=about,
        state=ReportState.APPROVED,
        trace=row.trace,
        subject=about.subject[:_LONGEST_SUBJECT] or "Re: your command",
        body=body,
        composed=body,
        in_reply_to=message.message_id,
        references=_references(row, message),
        to=[sender],
        **Because.ANSWERED("an answer to a command goes to its sender alone").columns(),
    ).record_creation()
    MailCommand.objects.filter(pk__in=[one.pk for one in rows]).update(answer=report)
    queue_delivery(report=report)
    return report


def _references(row: MailCommand, message: Message) -> list[str]:
    before = [*row.delivery.report.references[-_MOST_REFERENCES:], row.delivery.message_id, message.message_id]
    return list(dict.fromkeys(before))


def _lately(about: Report, sender: str) -> int:
    day_ago = clock.now() - timedelta(days=1)
    return Report.objects.filter(
        kind=Report.Kind.ANSWER, finding=about.finding, to=[sender], created_at__gt=day_ago
    ).count()
