"""Mails about findings: what is told is gathered from rows as plain data, and composed from that alone."""

from server.reports.composer.evidence import (
    gather,
    gather_bisection,
    gather_correction,
    gather_digest,
    gather_follow_up,
    gather_retraction,
)
from server.reports.composer.mail_text import MOST_LINES, compose, reply_subject
from server.reports.composer.told import Text, Told, ToldFinding

__all__ = [
    "MOST_LINES",
    "Text",
    "Told",
    "ToldFinding",
    "compose",
    "gather",
    "gather_bisection",
    "gather_correction",
    "gather_digest",
    "gather_follow_up",
    "gather_retraction",
    "reply_subject",
]
