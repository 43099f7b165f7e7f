"""How soon a session is wanted, and what its machine must have, as a person said; with a line of history."""

from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import transaction

from server.core import clock
from server.core.errors import DomainError
from server.core.models import Transition
from server.core.tasks import enqueue
from server.lab.models import Machine, Session

# Trees have single digits; anything beyond this is a slip.
MOST_PRIORITY = 1000
_SHOWN_NEEDS = 20


@dataclass(frozen=True)
class Wish:
    """What is to change; null: leave it. `deadline` is a moment, or "" for none any more."""

    priority: int | None = None
    deadline: datetime | str | None = None
    needs: tuple[str, ...] | None = None


def change_urgency(session: Session, wish: Wish, *, actor: str) -> str:
    """Store what the wish changes; returns it in words, "" if all was so already.

    Raises DomainError if the session is over, or the wish cannot be meant.
    """
    if not actor:
        raise DomainError("no-actor", "say who decides this")
    _check(wish)
    with transaction.atomic():
        row = Session.objects.select_for_update(of=("self",)).get(pk=session.pk)
        if row.state in Session.FINAL:
            raise DomainError("over", f"{row} is over: {row.state}")
        told = _apply(row, wish)
        if told:
            row.save(update_fields=["priority", "deadline_at", "needs"])
            Transition.objects.create(
                trace=row.trace, subject="session", subject_id=row.pk, before=row.state, after=row.state,
                reason=told, actor=actor[:150],
            )  # fmt: skip
    enqueue("lab.dispatch")
    return told


def _check(wish: Wish) -> None:
    if wish.priority is not None and abs(wish.priority) > MOST_PRIORITY:
        raise DomainError("bad-priority", f"priority {wish.priority}: from -{MOST_PRIORITY} to {MOST_PRIORITY}")
    if isinstance(wish.deadline, datetime) and wish.deadline <= clock.now():
        raise DomainError("bad-deadline", f"deadline {wish.deadline:%Y-%m-%d %H:%M %Z} is in the past")
    machines = Machine.objects.filter(enabled=True)
    if wish.needs and not machines.filter(capabilities__contains=sorted(wish.needs)).exists():
        # The next sweep would fail the session for a slip of the pen.
        known = sorted({word for words in machines.values_list("capabilities", flat=True) for word in words})
        there = ", ".join(known[:_SHOWN_NEEDS]) or "none"
        wanted = ", ".join(sorted(wish.needs))
        raise DomainError("no-such-machine", f"no machine has all of {wanted}; capabilities of machines: {there}")


def _apply(row: Session, wish: Wish) -> str:
    told = []
    if wish.priority is not None and wish.priority != row.priority:
        told.append(f"priority {row.priority} -> {wish.priority}")
        row.priority = wish.priority
    deadline = wish.deadline or None
    if wish.deadline is not None and deadline != row.deadline_at:
        assert deadline is None or isinstance(deadline, datetime)
        told.append(f"deadline {_moment(row.deadline_at)} -> {_moment(deadline)}")
        row.deadline_at = deadline
    if wish.needs is not None and sorted(set(wish.needs)) != sorted(row.needs):
        told.append(f"needs {', '.join(row.needs) or 'nothing'} -> {', '.join(sorted(set(wish.needs))) or 'nothing'}")
        row.needs = sorted(set(wish.needs))
    return "; ".join(told)


def _moment(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if moment else "none"
