"""Rows with a life: a state, why, since when, and a transition won by a conditional UPDATE."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import structlog
from django.db import connection, models, transaction
from django.db.models.sql import UpdateQuery

from server.core import clock
from server.core.models import Transition
from server.core.reasons import NONE, Reason, code_field

log = structlog.get_logger(__name__)


def new_trace() -> str:
    """A new id that follows one cause through all processes and logs."""
    return uuid.uuid4().hex[:16]


class Stateful(models.Model):
    """Base of every long thing. Subclasses name their states in STATES and what may follow each in NEXT."""

    NEXT: ClassVar[Mapping[str, frozenset[str]]]
    # Names in log lines, and the fields that they tell: lines of one thing lead to those of another.
    IDS: ClassVar[Mapping[str, str]] = {}

    state = models.CharField(max_length=20)
    reason = models.TextField(blank=True, default="", help_text="Why it is in this state, for people.")
    reason_code = code_field()
    state_since = models.DateTimeField(default=clock.now)
    trace = models.CharField(max_length=16, default=new_trace, db_index=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True

    @property
    def ids(self) -> dict[str, Any]:
        """What its log lines name beside its own id, of what was read of the row."""
        return {name: self.__dict__[field] for name, field in self.IDS.items() if field in self.__dict__}

    @property
    def said(self) -> Reason:
        """The reason of its state."""
        return Reason(self.reason_code, self.reason)

    def record_creation(self, *, actor: str = "") -> Self:
        """Write the first line of the row's history; call once, in the transaction that creates it."""
        _record(self, "", self.state, self.said, actor)
        return self

    def advance(self, to: str, reason: Reason = NONE, *, actor: str = "", **fields: Any) -> bool:
        """Go from the state this object was read in to `to`, setting `fields` too. `actor` is the person who did it.

        Returns False, and changes nothing, if another process moved the row first. A step that NEXT does not allow
        is a programming error and raises ValueError.
        """
        before = self.state
        if to not in self.NEXT.get(before, frozenset()):
            raise ValueError(f"{self._meta.model_name} {self.pk}: no way from {before} to {to}")
        since = clock.now()
        line = _line(self, before, to, reason, actor)
        # A move for a new cause is told as that one's.
        line.trace = fields.get("trace", line.trace)
        if not _moved(self, line, {"state": to, "state_since": since, **reason.columns(), **fields}):
            return False
        self.state, self.state_since = to, since
        self.reason, self.reason_code = str(reason), reason.code
        for name, value in fields.items():
            setattr(self, name, value)
        transaction.on_commit(lambda: _tell((self.ids, line)))
        return True

    def note(self, reason: Reason, *, actor: str = "", **fields: Any) -> bool:
        """Stay in the state this object was read in, for another reason, setting `fields` too.

        Only a reason that is new becomes a line of the history. Returns False, and changes nothing, if another process
        moved the row first.
        """
        manager = type(self)._default_manager
        with transaction.atomic():
            rows = manager.select_for_update(of=("self",)).filter(pk=self.pk, state=self.state)
            known = rows.values_list("reason", "reason_code")
            old = known.first()
            if old is None:
                return False
            manager.filter(pk=self.pk).update(**reason.columns(), **fields)
            self.reason, self.reason_code = str(reason), reason.code
            for name, value in fields.items():
                setattr(self, name, value)
            if old != (str(reason), reason.code):
                _record(self, self.state, self.state, reason, actor)
        return True


def record_creations(rows: Sequence[Stateful]) -> None:
    """As `record_creation` of each of many rows, in one query."""
    lines = [_line(row, "", row.state, row.said, "") for row in rows]
    Transition.objects.bulk_create(lines)
    transaction.on_commit(lambda: _tell(*((row.ids, line) for row, line in zip(rows, lines, strict=True))))


def _moved(row: Stateful, line: Transition, values: Mapping[str, Any]) -> bool:
    """Whether the row was in `line.before`: it has `values` now, and the line is written. One statement, so all of it
    happens or nothing does.
    """
    # Its stubs do not know that it becomes a query of the class that it is given.
    update: Any = type(row)._default_manager.filter(pk=row.pk, state=line.before).query.chain(UpdateQuery)
    update.add_update_values(dict(values))
    statement, of_update = update.get_compiler(connection=connection).as_sql()
    fields = [field for field in Transition._meta.local_concrete_fields if not field.primary_key]
    of_line = [field.get_db_prep_save(field.pre_save(line, True), connection) for field in fields]
    names = ", ".join(connection.ops.quote_name(str(field.column)) for field in fields)
    history = connection.ops.quote_name(Transition._meta.db_table)
    with transaction.mark_for_rollback_on_error(), connection.cursor() as cursor:
        cursor.execute(
            f"WITH moved AS ({statement} RETURNING 1)"  # noqa: S608 (names of our own columns)
            f" INSERT INTO {history} ({names}) SELECT {', '.join(['%s'] * len(fields))} FROM moved",
            [*of_update, *of_line],
        )
        return bool(cursor.rowcount == 1)


def _record(row: Stateful, before: str, after: str, reason: Reason, actor: str = "") -> None:
    line = _line(row, before, after, reason, actor)
    line.save(force_insert=True)
    transaction.on_commit(lambda: _tell((row.ids, line)))


def _line(row: Stateful, before: str, after: str, reason: Reason, actor: str) -> Transition:
    return Transition(
        trace=row.trace,
        subject=str(row._meta.model_name),
        subject_id=row.pk,
        before=before,
        after=after,
        **reason.columns(),
        actor=actor,
    )


def _tell(*told: tuple[Mapping[str, Any], Transition]) -> None:
    for ids, line in told:
        log.info(
            "state_changed",
            **ids,
            trace=line.trace,
            subject=line.subject,
            id=line.subject_id,
            before=line.before,
            after=line.after,
            reason=line.reason,
            code=line.reason_code,
            actor=line.actor,
        )


def state_check(states: type[models.TextChoices], name: str) -> models.CheckConstraint:
    """The database's own guard: only known states can be stored."""
    return models.CheckConstraint(condition=models.Q(state__in=list(states.values)), name=name)
