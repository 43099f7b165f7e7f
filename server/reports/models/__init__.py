"""Reports and their mails, who is told and who is not, and what people answer."""

from server.reports.models.command import CommandState, MailCommand, ReadingMark, Verb
from server.reports.models.readers import Bounce, MailStop, OptOut, RestingAddress, ReturnedMail
from server.reports.models.report import Delivery, DeliveryState, Report, ReportState
from server.reports.models.subscription import CallState, HookCall, Subscription

__all__ = [
    "Bounce",
    "CallState",
    "CommandState",
    "Delivery",
    "DeliveryState",
    "HookCall",
    "MailCommand",
    "MailStop",
    "OptOut",
    "ReadingMark",
    "Report",
    "ReportState",
    "RestingAddress",
    "ReturnedMail",
    "Subscription",
    "Verb",
]
