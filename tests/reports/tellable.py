"""Findings that can be told whole, their mails sent and read back, and how they move on."""

from email import message_from_bytes
from email.message import Message as Mail
from typing import Any

from django.core import mail

from server.core.reasons import Because
from server.detection.findings.checks import Check, CheckOutcome, Name, set_checks
from server.detection.findings.result import remake
from server.detection.models import Bisection, BisectionState, Comparison, Finding, Verdict
from server.lab.models import Boot, Session
from server.reports.models import Delivery, Report
from server.reports.moderation import approve_report
from server.reports.outbox import send_delivery
from server.reports.writing import tell_news
from server.sources.models import MailingList, Revision, Series
from tests.builders import because, build_comparison, build_list, build_machine, build_series, build_session, tell_boots
from tests.detection.lifecycle.findings import Verdicts, as_judged, judged

_FACTS = {"cmdline": "console=ttyS0 nokaslr", "virtual": False}


def measured_session(series: Series, machine: str, uarch: str, **fields: object) -> Session:
    session = build_session(series, build_machine(machine, uarch, **fields), state=Session.State.DONE)
    facts = _FACTS | {"model_name": f"Vendor(R) {uarch} CPU"}
    tell_boots(Boot.objects.filter(session=session), facts=facts)
    return session


def split_series() -> Series:
    series = build_series()
    verdicts = {"haswell": Verdict.REGRESSED, "zen3": Verdict.IMPROVED, "zen5": Verdict.UNCHANGED}
    for uarch, verdict in verdicts.items():
        build_comparison(measured_session(series, f"box-{uarch}", uarch), verdict)
    return series


def version(verdicts: dict[str, dict[str, str]], *, of: MailingList | None = None, **fields: Any) -> Finding:
    """A confirmed finding of a new series: by microarchitecture, the verdict of each case."""
    series = build_series(of or build_list(), **fields)
    machines: Verdicts = {build_machine(f"box-{uarch}", uarch): cases for uarch, cases in verdicts.items()}
    return as_judged(judged(series, machines), series=series, state=Finding.State.CONFIRMED)


def unmoderated() -> MailingList:
    return build_list(moderated=False)


def news(finding: Finding) -> None:
    tell_news(finding_id=finding.pk)
    finding.refresh_from_db()


def send(report: Report) -> Mail:
    """The mail of a report, released if nobody did that, as its readers get it."""
    report.refresh_from_db()
    if report.state != Report.State.APPROVED:
        approve_report(report_id=report.pk, actor="ada")
    before = len(mail.outbox)
    assert send_delivery(delivery_id=Delivery.objects.get(report=report).pk)
    report.refresh_from_db()
    assert len(mail.outbox) == before + 1
    return message_from_bytes(mail.outbox[-1].message().as_bytes())


def told(finding: Finding) -> Report:
    """Its first report, sent."""
    news(finding)
    report = Report.objects.get(first_of=finding)
    send(report)
    finding.refresh_from_db()
    return report


def about(report: Report) -> Finding:
    assert report.finding is not None
    return report.finding


def last(kind: str) -> Report:
    return Report.objects.filter(kind=kind).latest("pk")


def withdraw(finding: Finding, reason: str = "noise: the machine was busy") -> None:
    finding.refresh_from_db()
    finding.advance(Finding.State.INVALID, Because.NOISE(reason), actor="ada")


def silence(finding: Finding, case: str) -> None:
    """Fresh boots do not show what this case showed."""
    finding.refresh_from_db()
    gone = Comparison.objects.filter(session__trial=finding.trial, case__name=case).select_related("session__machine")
    checks = [
        Check(Name.AGAIN, CheckOutcome.FAILED, "not seen again", row.session.machine.name, comparisons=(row.pk,))
        for row in gone
    ]
    set_checks(finding, [Name.AGAIN], checks)
    remake(finding)


def bisected(finding: Finding, **fields: Any) -> None:
    """It went through a search, which ended with these fields of the finding."""
    finding.refresh_from_db()
    before = finding.state
    finding.advance(Finding.State.BISECTING, because("looked for"))
    finding.advance(before, because("found"), **fields)


def searched(finding: Finding, culprit: Revision) -> Bisection:
    """The end of a search on the machine of its one cell."""
    row = Comparison.objects.filter(session__trial=finding.trial).order_by("pk")[0]
    return Bisection.objects.create(
        finding=finding, machine=row.session.machine, target=row, state=BisectionState.FOUND, high=1, effect=0.5,
        revisions=["0" * 40, culprit.sha], culprit=culprit, reason=f"made by {culprit}",
    )  # fmt: skip
