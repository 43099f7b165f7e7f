"""From mails that came to commands that were obeyed: each mail that answers ours is looked at once, in the order in
which they were stored; each line is obeyed in the transaction that writes down what came of it.
"""

import time
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from email.utils import parseaddr

import structlog
from django.conf import settings
from django.db import DataError, transaction
from django.db.models import Max

from server.core import clock
from server.core.database import advisory_lock, wait_for_lock
from server.core.errors import DomainError
from server.core.reasons import Because, Reason
from server.core.states import record_creations
from server.core.tasks import enqueue, in_turn
from server.reports.commands.acts import Asked, obey
from server.reports.commands.authority import Copies, Role, answers_this, copies_of, is_of_list, is_reader, role_of
from server.reports.commands.grammar import read_order
from server.reports.commands.reply import MARK, OwnLine, Reply, read_reply
from server.reports.commands.responses import answer_refusals, answer_result
from server.reports.models import CommandState, Delivery, MailCommand, ReadingMark, Verb
from server.sources.messages.storage import POSTED
from server.sources.models import Message
from server.sources.trust.dkim_keys import Lookup, look_up_key
from server.sources.trust.series_check import prove_answer

log = structlog.get_logger(__name__)

# Ids and names of so many mails are read at once; the task goes on for some seconds.
_AT_ONCE = 500
_SECONDS = 30.0
# Of one sender in a day; whoever gives more is a program.
MOST_COMMANDS_A_DAY = 50
# Name servers that do not answer are asked again after a minute, then ever later, for three days.
_FIRST_PAUSE = timedelta(minutes=1)
_LONGEST_PAUSE = timedelta(hours=6)
_LONGEST_TRIAL = timedelta(days=3)
# In one sweep.
_MOST_WOKEN = 100
# One mail at a time does what its lines say, so that a second copy of it sees the first.
_LOCK = "reports.commands"
_PATIENCE_SECONDS = 10.0
_READER = "commands"
_NEAR_REFERENCES = 30
_FIRST_REFERENCES = 5


def read_new_mails() -> bool:
    """Take up the commands of mails that came since the last time; True where more are left.

    The mark moves in the transaction that stores what was found, so that nothing is read twice or lost.
    """
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        if not _read_some():
            return False
    return True


def _read_some() -> bool:
    with transaction.atomic():
        ReadingMark.objects.get_or_create(reader=_READER)
        mark = ReadingMark.objects.select_for_update().get(reader=_READER)
        newest = Message.objects.aggregate(Max("pk"))["pk__max"] or 0
        if not Delivery.objects.exists():
            # Nothing can answer us yet; what answers our first mail comes after it.
            mark.up_to = max(mark.up_to, newest)
            mark.save(update_fields=["up_to"])
            return False
        rows = Message.objects.filter(pk__gt=mark.up_to).order_by("pk")
        found = list(rows.values_list("pk", "in_reply_to", "references")[:_AT_ONCE])
        if not found:
            return False
        for pk, delivery in _answering(found).items():
            _take_up_safely(pk, delivery)
        mark.up_to = found[-1][0]
        mark.save(update_fields=["up_to"])
    return len(found) == _AT_ONCE


def _answering(found: Collection[tuple[int, str, list[str]]]) -> dict[int, Delivery]:
    """By mail, the nearest of our mails that it names."""
    parents = {pk: _parents(parent, others) for pk, parent, others in found}
    names = {name for some in parents.values() for name in some}
    parts = ("report__finding__series", "report__finding__culprit")
    ours = {row.message_id: row for row in Delivery.objects.select_related(*parts).filter(message_id__in=names)}
    nearest: dict[int, Delivery] = {}
    for pk, some in parents.items():
        before = next((name for name in some if name in ours), None)
        if before is not None:
            nearest[pk] = ours[before]
    return nearest


def _parents(parent: str, references: list[str]) -> list[str]:
    """What the mail answers, the nearest first. Mailers leave out the middle of long lists."""
    known = [parent, *reversed(references[-_NEAR_REFERENCES:]), *references[:_FIRST_REFERENCES]]
    return [name for name in dict.fromkeys(known) if name]


def _take_up_safely(message_id: int, delivery: Delivery) -> None:
    """One mail that no rule foresaw must not keep all others unread: it stays, and a person can read why."""
    try:
        with transaction.atomic():
            _take_up(message_id, delivery)
    except DataError:
        log.exception("commands_not_storable", message=message_id)
        with transaction.atomic():
            message = Message.objects.defer(*Message.LONG).get(pk=message_id)
            why = Because.UNUSABLE("the database does not take what was read of it")
            row = _row(message, delivery, OwnLine(0, "", ""), why)
            row.save()
            row.record_creation()


def _take_up(message_id: int, delivery: Delivery) -> None:
    """Store what a mail says of commands; those that may be obeyed wait for it."""
    message = Message.objects.select_related("mailing_list").defer("recipients", "paths").get(pk=message_id)
    raw = bytes(message.raw)
    if MARK.encode() not in raw.lower() and not _may_hide(raw):
        return
    reply = read_reply(raw)
    never = _never(message, reply)
    rows = [_row(message, delivery, line, never) for line in reply.lines]
    if reply.more:
        rest = OwnLine(0, f"{reply.more} more", "")
        rows.append(_row(message, delivery, rest, Because.TOO_MANY(f"{reply.more} commands after the first ones")))
    if not rows and reply.elsewhere:
        why = Because.UNUSABLE(reply.broken) if reply.broken else never or Because.NOT_OWN_WORDS()
        rows.append(_row(message, delivery, OwnLine(0, reply.elsewhere, ""), why))
    _note_doubled(rows)
    record_creations(MailCommand.objects.bulk_create(rows))
    if any(row.state == CommandState.WAITING for row in rows):
        enqueue("reports.obey", message.pk)


def _may_hide(raw: bytes) -> bool:
    """Whether the mark may be written otherwise than in its own letters."""
    small = raw.lower()
    return b"base64" in small or b"quoted-printable" in small or b"utf-16" in small or b"=?" in small


def _never(message: Message, reply: Reply) -> Reason | None:
    """Why nothing that this mail says is obeyed, whoever sent it; None where somebody's role decides."""
    own = parseaddr(settings.MAIL_FROM)[1].lower()
    if reply.tidemark or message.sender_address.lower() == own:
        return Because.OWN_MAIL()
    if Delivery.objects.filter(message_id=message.message_id).exists():
        return Because.OWN_MAIL()
    if reply.robot:
        return Because.BY_ROBOT(f"a program sent it: {reply.robot}")
    if reply.broken:
        return Because.UNUSABLE(reply.broken)
    if message.kind == Message.Kind.DELETED:
        return Because.DELETED()
    return Because.NOT_OWN_WORDS("it stands in a patch") if message.kind in POSTED else None


def _row(message: Message, delivery: Delivery, line: OwnLine, never: Reason | None) -> MailCommand:
    verb = ""
    try:
        verb = read_order(line.told).verb if line.number else ""
    except DomainError:
        # Told to whoever may give commands, when it is known who that is.
        verb = ""
    return MailCommand(
        message=message,
        delivery=delivery,
        line=line.number,
        text=line.text,
        verb=verb,
        sender=message.sender_address.lower(),
        state=CommandState.WAITING if never is None else CommandState.IGNORED,
        **(Because.NOT_CHECKED("its sender is not checked yet") if never is None else never).columns(),
    )


def _note_doubled(rows: Iterable[MailCommand]) -> None:
    said: set[str] = set()
    for row in rows:
        words = " ".join(row.text.lower().split())
        if row.state == CommandState.WAITING and words in said:
            row.state = CommandState.IGNORED
            row.reason, row.reason_code = str(Because.DOUBLED()), Because.DOUBLED
        said.add(words)


# --- obeying -------------------------------------------------------------------------


def obey_mail(*, message_id: int, lookup: Lookup = look_up_key) -> None:
    """Prove the sender of a mail whose commands wait, if he could be obeyed, and do what they say.

    Asks name servers, so it must not run inside a transaction. Killed anywhere and repeated, it goes on.
    """
    with advisory_lock(f"reports.command.{message_id}") as free:
        rows = _waiting(message_id) if free else []
        if not rows:
            return
        message, delivery = rows[0].message, rows[0].delivery
        sender = message.sender_address.lower()
        role = role_of(sender, delivery.report)
        reads = is_reader(sender, delivery.report) and not is_of_list(message)
        may = [row for row in rows if role or (reads and row.verb == Verb.STOP)]
        _ignore([row for row in rows if row not in may], Because.NOT_ALLOWED())
        if not may or not _is_proved(message, may, lookup):
            return
        reply = read_reply(bytes(Message.objects.values_list("raw", flat=True).get(pk=message.pk)))
        if not answers_this(message, reply, delivery):
            _ignore(may, Because.TARGET_OPEN())
            return
        _obey_all(message, reply, may, role or Role.READER)


def _waiting(message_id: int) -> list[MailCommand]:
    rows = MailCommand.objects.filter(message=message_id, state=CommandState.WAITING).order_by("line")
    parts = ("message__mailing_list", "delivery__report__finding__series", "delivery__report__finding__culprit")
    return list(rows.select_related(*parts).defer(*(f"message__{name}" for name in Message.LONG)))


def _ignore(rows: Iterable[MailCommand], reason: Reason) -> None:
    for row in rows:
        row.advance(CommandState.IGNORED, reason)


def _is_proved(message: Message, rows: Collection[MailCommand], lookup: Lookup) -> bool:
    now = clock.now()
    last = now - min(row.created_at for row in rows) >= _LONGEST_TRIAL
    proved = prove_answer(mail=message, last=last, lookup=lookup)
    if proved is None:
        MailCommand.objects.filter(pk__in=[row.pk for row in rows]).update(tried_at=now)
    elif not proved:
        _ignore(rows, Because.NOT_PROVED(f"nothing proves its sender: {message.authenticity}"))
    return bool(proved)


def _obey_all(message: Message, reply: Reply, rows: Sequence[MailCommand], role: str) -> None:
    copies = copies_of(message, reply)
    told, last = {line.number: line.told for line in reply.lines}, rows[-1]
    for row in rows:
        with transaction.atomic():
            wait_for_lock(_LOCK, seconds=_PATIENCE_SECONDS)
            held = MailCommand.objects.select_for_update(of=("self",), no_key=True).get(pk=row.pk)
            known = {"by_name": copies.by_name, "by_text": copies.by_text, "role": role}
            if held.state != CommandState.WAITING:
                continue
            if why := _not_now(held, copies):
                held.advance(CommandState.IGNORED, why)
            else:
                _obey_one(row, held, told.get(row.line, ""), known)
            if row is last:
                refused = MailCommand.objects.filter(message=message, state=CommandState.REFUSED, answer=None)
                answer_refusals(message, list(refused.select_related("delivery__report__finding").order_by("line")))


def _not_now(row: MailCommand, copies: Copies) -> Reason | None:
    others = MailCommand.objects.exclude(message=row.message_id)
    if others.filter(by_name=copies.by_name).exists() or others.filter(by_text=copies.by_text).exists():
        return Because.DOUBLED("it was obeyed from another copy of this mail")
    day = MailCommand.objects.filter(sender=row.sender, created_at__gt=clock.now() - timedelta(days=1))
    if day.exclude(role="").exclude(pk=row.pk).count() >= MOST_COMMANDS_A_DAY:
        return Because.TOO_MANY(f"more than {MOST_COMMANDS_A_DAY} commands of one sender in a day")
    return None


def _obey_one(read: MailCommand, held: MailCommand, told: str, known: dict[str, str]) -> None:
    """A refusal of the service takes back what it had begun, and not that it is written down."""
    asked = Asked(held.sender, read.message.message_id, read.delivery)
    try:
        order = read_order(told)
        with transaction.atomic():
            done = obey(order, asked)
    except DomainError as error:
        if not error.permanent:
            raise
        reason = Because.NOT_UNDERSTOOD if error.code == "not-understood" else Because.NOT_DONE
        held.advance(CommandState.REFUSED, reason(error.message), actor=asked.actor, **known)
        return
    state = CommandState.DONE if done.trial is None else CommandState.UNDER_WAY
    held.advance(state, done.reason, actor=asked.actor, trial=done.trial, **known)


# --- what goes on by itself ----------------------------------------------------------


def answer_trial_asked(*, trial_id: int) -> None:
    """Tell those whose mails asked for a trial what came of it, if it is over. Harmless twice."""
    for pk in MailCommand.objects.filter(trial=trial_id, state=CommandState.UNDER_WAY).values_list("pk", flat=True):
        with transaction.atomic():
            rows = MailCommand.objects.select_for_update(of=("self",), no_key=True, skip_locked=True)
            row = rows.select_related("message", "delivery__report__finding", "trial__series").filter(pk=pk).first()
            if row is not None and row.state == CommandState.UNDER_WAY:
                answer_result(row)


def sweep_commands() -> None:
    """What a lost message or a killed process left: mails not read, commands that wait, trials that are over."""
    mark = ReadingMark.objects.filter(reader=_READER).first()
    if Message.objects.filter(pk__gt=mark.up_to if mark else 0).exists():
        enqueue("reports.read_commands")
    waiting = MailCommand.objects.filter(state=CommandState.WAITING).order_by("pk")
    due = {row.message_id: None for row in in_turn(waiting, _MOST_WOKEN) if _is_due(row)}
    for message_id in due:
        enqueue("reports.obey", message_id)
    over = MailCommand.objects.filter(state=CommandState.UNDER_WAY, trial__answered_at__isnull=False).order_by("pk")
    for row in in_turn(over, _MOST_WOKEN):
        enqueue("reports.answer_trial", row.trial_id or 0)


def _is_due(row: MailCommand) -> bool:
    if row.tried_at is None:
        return True
    now = clock.now()
    return now - row.tried_at >= min(max(_FIRST_PAUSE, row.tried_at - row.created_at), _LONGEST_PAUSE)
