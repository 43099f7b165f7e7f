"""Whether everything truly happened: asked of the database, the mail sink and the service's page."""

from demo.checks.culprits import culprit_checks
from demo.checks.facts import Check
from demo.checks.kernels import kernel_checks
from demo.checks.measured import measured_checks
from demo.checks.outside import mail_checks, page_checks, replies_to
from demo.checks.verdicts import verdict_checks

__all__ = [
    "Check",
    "culprit_checks",
    "kernel_checks",
    "mail_checks",
    "measured_checks",
    "page_checks",
    "replies_to",
    "verdict_checks",
]
