"""What a check finds: a code for scripts, a sentence, and what mends it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """An error keeps work from being done; a warning will, or already takes something away."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Ailment:
    code: str
    severity: Severity
    what: str
    mend: str


_ERROR, _WARNING = Severity.ERROR, Severity.WARNING
# Every code that a check may give, with its severity. docs/operations/watching.md tells what each means.
CODES: Final = {
    "database-unreachable": _ERROR,
    "migrations-missing": _ERROR,
    "broker-unreachable": _ERROR,
    "broker-evicts": _ERROR,
    "no-worker": _ERROR,
    "beat-silent": _ERROR,
    "sweep-failing": _ERROR,
    "disk-full": _ERROR,
    "disk-low": _WARNING,
    "folder-not-writable": _ERROR,
    "clock-off": _ERROR,
    "mirror-broken": _ERROR,
    "secret-readable": _ERROR,
    "dkim-missing": _WARNING,
    "dkim-unusable": _ERROR,
    "dkim-mismatch": _ERROR,
    "dispatcher-alarm": _ERROR,
    "default-partition-filled": _WARNING,
    "leases-stuck": _WARNING,
    "watcher-failing": _WARNING,
    "watcher-behind": _WARNING,
    "agent-missing": _ERROR,
    "agent-stale": _WARNING,
    "task-given-up": _WARNING,
    "canary-overdue": _WARNING,
}


def ailment(code: str, what: str, mend: str) -> Ailment:
    return Ailment(code, CODES[code], what, mend)
