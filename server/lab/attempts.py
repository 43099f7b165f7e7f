"""Attempts to get work done: all that the rest of the service asks of them, in one place."""

from server.lab.claiming import allow_time, claim_attempt, find_attempt
from server.lab.endings import (
    cancel_attempt,
    end_attempt,
    finish_canceled,
    keep_for_the_record,
    lose_attempt,
    report_build,
    was_stopped,
)
from server.lab.fruitless import MAX_FRUITLESS_ATTEMPTS, fruitless_attempts
from server.lab.leases import MAX_LOG_CHARACTERS, is_wanted, renew_lease
from server.lab.moving import UNCLAIMED, lock_attempt, move_attempt
from server.lab.opening import open_attempt
from server.lab.requeueing import end_session, requeue
from server.lab.works import work_of

__all__ = [
    "MAX_FRUITLESS_ATTEMPTS",
    "MAX_LOG_CHARACTERS",
    "UNCLAIMED",
    "allow_time",
    "cancel_attempt",
    "claim_attempt",
    "end_attempt",
    "end_session",
    "find_attempt",
    "finish_canceled",
    "fruitless_attempts",
    "is_wanted",
    "keep_for_the_record",
    "lock_attempt",
    "lose_attempt",
    "move_attempt",
    "open_attempt",
    "renew_lease",
    "report_build",
    "requeue",
    "was_stopped",
    "work_of",
]
