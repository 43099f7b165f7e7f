"""Answers to our mails, honest and hostile, of which it is known what may be obeyed: signed, forged, spoiled, quoted,
sent again, written by programs.
"""

import base64
import quopri
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from django.db.models import Q

from server.core import clock
from server.detection.models import Finding, Verdict
from server.lab.models import Session, Trial
from server.reports.commands.inbox import obey_mail, read_new_mails
from server.reports.models import CommandState, Delivery, DeliveryState, MailCommand, Report, ReportState
from server.sources.messages.storage import store_message
from server.sources.models import MailingList, Message, TrustedSender
from tests.builders import (
    build_comparison,
    build_finding,
    build_list,
    build_machine,
    build_series,
    build_session,
    series_trial,
)
from tests.fuzz.mutations import chance_of, mutated
from tests.sources.signing import Names, sign

# Come between two looks of the worker.
_TOGETHER = 10
COVERED = ("from", "to", "subject", "date", "message-id", "in-reply-to", "references", "content-type",
           "content-transfer-encoding", "from")  # fmt: skip
OURS = "tidemark@perf.example.org"
LOOKUP = Names("example.org", "trusted.example", "evil.example", "perf.example.org")
OBEYED = (CommandState.DONE, CommandState.UNDER_WAY, CommandState.REFUSED)

_PARTS = 'multipart/mixed; boundary="b"'
HONEST = (
    "retest",
    "test on haswell",
    "test bench mm-basic",
    "test on haswell bench mm-basic/fault-4k",
    "accept: known, the bulk path pays for it",
    "invalid: the machine was being updated",
    "fix: mm: Clear pages once more",
    "stop",
)
WRONG = (
    "reboot",
    "",
    "test on nowhere",
    "test bench",
    "accept",
    "accept: REASON",
    "dup: MESSAGE-ID",
    "retest; rm -rf /",
    "fix: x",
    "test on " + ",".join(f"u{number}" for number in range(40)),
    "accept: \u202egnorw",
    "invalid:",
    "\U0001f600",
    "retest " + "x" * 3000,
)
_BEFORE = ("", "Thanks.\n\n", "On Mon, Tidemark wrote:\n> Split: 41 % slower\n>\n> #tidemark stop\n\n", "Hello,\n")
_AFTER = (
    "",
    "\n\n-- \nAda\n#tidemark stop\n",
    "\n-----Original Message-----\nFrom: x\n#tidemark stop\n",
    "\n\nFrom: Tidemark\nSent: today\n#tidemark invalid: quoted whole\n",
    "\n> #tidemark retest\n",
    "\n________________________________\n#tidemark stop\n",
    "\n  #tidemark stop\n",
)


@dataclass(frozen=True)
class Told:
    """One of our mails that was sent, and who it is about."""

    delivery: Delivery
    author: str


@dataclass
class Intent:
    """What the holder of a key has really written: each line once."""

    sender: str
    delivery: int
    lines: tuple[str, ...]


@dataclass
class Outcome:
    mails: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    troubles: Counter[str] = field(default_factory=Counter)


def tell(author: str, mailing_list: MailingList) -> Told:
    """A finding of a series that regressed, and the mail about it that its author got."""
    series = build_series(mailing_list, author_address=author)
    session = build_session(series, build_machine("box-haswell"), state=Session.State.DONE)
    build_comparison(session, Verdict.REGRESSED)
    trial = series_trial(series)
    Trial.objects.filter(pk=trial.pk).update(state=Trial.State.DONE, answered_at=clock.now())
    finding = build_finding(series, state=Finding.State.REPORTED, trial=trial)
    report = Report.objects.create(
        finding=finding,
        first_of=finding,
        state=ReportState.SENT,
        subject="Re: [PATCH 0/2] mm: Clear pages twice",
        body="Split: 41 % slower\n",
        in_reply_to=series.root_message_id,
        references=[series.root_message_id],
        to=[author],
        cc=["linux-mm@example.org", "reader@evil.example"],
    )
    delivery = Delivery.objects.create(
        report=report, message_id=f"tidemark.{report.pk}.abc@perf.example.org", state=DeliveryState.SENT
    )
    return Told(delivery, author)


def letter(
    told: Told,
    text: str,
    *,
    sender: str,
    name: str,
    more: Sequence[str] = (),
    reply_to: str | None = None,
    references: Sequence[str] = (),
    encode: str = "7bit",
    kind: str = "text/plain; charset=utf-8",
) -> bytes:
    """A mail of a person, unsigned."""
    parent = told.delivery.message_id if reply_to is None else reply_to
    body = text.encode("utf-8", "surrogateescape")
    if encode == "base64":
        body = base64.encodebytes(body)
    elif encode == "quoted-printable":
        body = quopri.encodestring(body)
    head = [
        f"From: Somebody <{sender}>",
        "To: linux-mm@example.org",
        "Subject: Re: [PATCH 0/2] mm: Clear pages twice",
        "Date: Sun, 29 Nov 2026 12:00:00 +0000",
        f"Message-ID: <{name}>",
        *([f"In-Reply-To: <{parent}>"] if parent else []),
        *([f"References: {' '.join(f'<{one}>' for one in references)}"] if references else []),
        "MIME-Version: 1.0",
        f"Content-Type: {kind}",
        f"Content-Transfer-Encoding: {encode}",
        *more,
    ]
    return "\n".join(head).encode() + b"\n\n" + body


class Attack:
    """`count` mails of one seed, stored one after the other as lists bring them."""

    def __init__(self, seed: int, *, threads: int = 20) -> None:
        self.chance = chance_of(seed)
        self.lists = [build_list(), build_list("linux-kernel")]
        self.trusted = [f"tree{number}@trusted.example" for number in range(max(1, threads // 5))]
        TrustedSender.objects.bulk_create(TrustedSender(address=address) for address in self.trusted)
        self.told = [tell(f"author{number}@example.org", self.lists[0]) for number in range(threads)]
        self.intents: list[Intent] = []
        self.sent: list[bytes] = []
        self.outcome = Outcome()
        self._number = 0

    def run(self, count: int) -> Outcome:
        for begin in range(0, count, _TOGETHER):
            stored = [self._store() for _ in range(min(_TOGETHER, count - begin))]
            self._try(read_new_mails)
            for mail in stored:
                self._try(partial(obey_mail, message_id=mail, lookup=LOOKUP))
        self._check()
        return self.outcome

    def _store(self) -> int:
        kind, raw = self._next()
        self.outcome.mails += 1
        self.outcome.kinds[kind] += 1
        return store_message(mailing_list=self.chance.choice(self.lists), raw=raw).pk

    def _try(self, work: Callable[[], object]) -> None:
        """As the workers do it; what raises is a trouble."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 (every one is a finding)
            self.outcome.troubles[f"{type(error).__name__}: {str(error)[:120]}"] += 1

    def _next(self) -> tuple[str, bytes]:
        self._number += 1
        ways = (
            (20, "honest", self._honest),
            (10, "wrong line", self._wrong),
            (10, "stranger", self._stranger),
            (10, "forged", self._forged),
            (8, "sent again", self._again),
            (8, "other target", self._redirected),
            (8, "spoiled", self._spoiled),
            (8, "program", self._program),
            (8, "not own words", self._not_own),
            (5, "own mail", self._own),
            (5, "other thread", self._elsewhere),
        )
        way = self.chance.choices(ways, weights=[weight for weight, *_ in ways])[0]
        return way[1], way[2]()

    def _name(self) -> str:
        return f"reply{self._number}.{self.chance.randrange(10**6)}@example.org"

    def _text(self, commands: Sequence[str]) -> str:
        # A blank at its end would make a line go on in the next.
        lines = "\n".join(f"#tidemark {command}".rstrip() for command in commands)
        return self.chance.choice(_BEFORE) + lines + "\n" + self.chance.choice(_AFTER)

    def _honest(self, commands: Sequence[str] | None = None) -> bytes:
        """Signed by whoever may give commands, wholly."""
        told, chance = self.chance.choice(self.told), self.chance
        commands = commands or chance.sample(HONEST, chance.choice((1, 1, 1, 2, 3)))
        sender = chance.choice((told.author, told.author, chance.choice(self.trusted)))
        encode = chance.choice(("7bit", "7bit", "8bit", "base64", "quoted-printable"))
        text = self._text(commands)
        encode = "8bit" if encode == "7bit" and not text.isascii() else encode
        before = chance.random() < 0.2
        raw = letter(
            told,
            text,
            sender=sender,
            name=self._name(),
            encode=encode,
            reply_to="person@example.org" if before else None,
            references=[told.delivery.message_id, "person@example.org"] if before else [],
            kind=chance.choice(("text/plain; charset=utf-8", "text/plain; charset=utf-8; format=flowed")),
        )
        return self._signed(raw, sender, told, commands)

    def _signed(self, raw: bytes, sender: str, told: Told, commands: Sequence[str]) -> bytes:
        covered = COVERED if self.chance.random() < 0.7 else tuple(name for name in COVERED if name != "message-id")
        there = [name for name in covered if f"\n{name}:".encode() in b"\n" + raw.lower()]
        raw = sign(raw, sender.partition("@")[2], headers=there, canonicalize=self.chance.choice(
            ((b"relaxed", b"simple"), (b"relaxed", b"relaxed"))
        ))  # fmt: skip
        self.intents.append(Intent(sender, told.delivery.pk, tuple(commands)))
        self.sent.append(raw)
        return raw

    def _wrong(self) -> bytes:
        return self._honest(self.chance.sample(WRONG, 2))

    def _stranger(self) -> bytes:
        told = self.chance.choice(self.told)
        sender = self.chance.choice(("eve@evil.example", "mallory@evil.example", "tree@evil.example"))
        text = self._text([command for command in self.chance.sample(HONEST, 2) if command != "stop"] or ["retest"])
        return sign(letter(told, text, sender=sender, name=self._name()), "evil.example", headers=["from", "subject"])

    def _forged(self) -> bytes:
        """In the name of whoever may, without his key."""
        told, chance = self.chance.choice(self.told), self.chance
        sender = chance.choice((told.author, self.trusted[0], "reader@evil.example"))
        raw = letter(told, self._text(chance.sample(HONEST, 2)), sender=sender, name=self._name())
        way = chance.randrange(6)
        if way == 0:
            return raw
        if way == 1:
            return sign(raw, "evil.example", headers=["from", "subject"]).replace(b"reader@evil", b"other@evil")
        if way == 2:
            return sign(raw, "example.org" if "trusted" in sender else "trusted.example", headers=["from", "subject"])
        if way == 3:
            true = sign(raw, sender.partition("@")[2], headers=["from", "subject"], length=True)
            return true + b"#tidemark invalid: appended\n"
        if way == 4:
            return b"From: Eve <eve@evil.example>\n" + raw
        return raw.replace(b"From: Somebody", f"From: {sender} via List <list@evil.example>\nX-From: x".encode())

    def _again(self) -> bytes:
        """A mail that was sent, as it was, or under another name where its signature leaves that open."""
        if not self.sent:
            return self._honest()
        raw = self.chance.choice(self.sent)
        way = self.chance.randrange(3)
        if way == 0:
            return raw
        if way == 1:
            return raw.replace(b"Message-ID: <reply", f"Message-ID: <again{self._number}".encode())
        return b"X-Mailing-List: other\nList-Id: <other.example.org>\nPrecedence: bulk\n" + raw

    def _redirected(self) -> bytes:
        """Somebody's mail as an answer to another of ours: its signature covers what it answers, or nobody can tell."""
        if self.sent and self.chance.random() < 0.5:
            other = self.chance.choice(self.told).delivery.message_id.encode()
            raw = self.chance.choice(self.sent)
            at = raw.find(b"In-Reply-To: <")
            end = raw.find(b">", at)
            renamed = raw.replace(b"Message-ID: <", f"Message-ID: <r{self._number}".encode())
            return raw if at < 0 else renamed[: renamed.find(b"In-Reply-To: <")] + b"In-Reply-To: <" + other + raw[end:]
        told = self.chance.choice(self.told)
        raw = letter(told, self._text(["retest"]), sender=told.author, name=self._name())
        return sign(raw, "example.org", headers=["from", "to", "subject", "date"])

    def _spoiled(self) -> bytes:
        raw = self.chance.choice(self.sent) if self.sent else self._honest()
        return mutated([raw], self.chance)

    def _program(self) -> bytes:
        told, chance = self.chance.choice(self.told), self.chance
        more = chance.choice(
            (
                "Auto-Submitted: auto-replied",
                "Auto-Submitted: auto-generated; x=y",
                "Precedence: bulk",
                "Precedence: junk\nList-Id: <a.b>",
                "X-Autoreply: yes",
                "Return-Path: <>",
                "X-Tidemark: series/3",
            )
        )
        raw = letter(told, self._text(["retest"]), sender=told.author, name=self._name(), more=more.split("\n"))
        return sign(raw, "example.org", headers=COVERED[:6])

    def _not_own(self) -> bytes:
        """Signed, but nowhere a line of the sender's own."""
        told, chance = self.chance.choice(self.told), self.chance
        order = "#tidemark invalid: not my words"
        text, kind = chance.choice(
            (
                (f"> {order}\n", "text/plain; charset=utf-8"),
                (f"  {order}\n", "text/plain; charset=utf-8"),
                (f"I mean {order}\n", "text/plain; charset=utf-8"),
                (f"yes\n-- \n{order}\n", "text/plain; charset=utf-8"),
                (f"<p>\n{order}\n</p>", "text/html; charset=utf-8"),
                (
                    f"--b\nContent-Disposition: attachment; filename=a.txt\n\n{order}\n--b--\n",
                    'multipart/mixed; boundary="b"',
                ),
                (
                    f"--b\nContent-Type: message/rfc822\n\nFrom: a@b.c\n\n{order}\n--b--\n",
                    'multipart/mixed; boundary="b"',
                ),
                (f"--b\nContent-Type: text/html\n\n{order}\n--b--\n", 'multipart/alternative; boundary="b"'),
                (f"mm: x\n\n{order}\n---\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "text/x-patch"),
            )
        )
        raw = letter(told, text, sender=told.author, name=self._name(), kind=kind)
        return sign(raw, "example.org", headers=[name for name in COVERED if name != "references"])

    def _own(self) -> bytes:
        """Our own answer and report come back, with or without what marks them."""
        told = self.chance.choice(self.told)
        sender = self.chance.choice((OURS, self.trusted[-1]))
        text = "> #tidemark retest\nNot done: no.\n\nKnown:\n    retest\n    stop\n  #tidemark retest\n"
        raw = letter(told, text, sender=sender, name=self._name())
        return sign(raw, sender.partition("@")[2], headers=COVERED[:6])

    def _elsewhere(self) -> bytes:
        """Commands that answer nothing of ours."""
        told = self.chance.choice(self.told)
        raw = letter(told, self._text(["retest"]), sender=told.author, name=self._name(), reply_to="x@example.org")
        return sign(raw, "example.org", headers=COVERED[:6])

    # --- what must hold ---------------------------------------------------------------

    def _check(self) -> None:
        for problem in [*self._unauthorised(), *self._unexplained(), *self._answers(), *self._forgotten()]:
            self.outcome.troubles[problem] += 1
        self.outcome.codes.update(MailCommand.objects.values_list("reason_code", flat=True))

    def _unauthorised(self) -> Iterator[str]:
        """Each line that was obeyed was written by the holder of a key, to that mail of ours, and is obeyed once."""
        meant = Counter(
            (intent.sender, intent.delivery, _key(line)) for intent in self.intents for line in intent.lines
        )
        done = MailCommand.objects.filter(state__in=OBEYED).values_list("sender", "delivery", "text")
        for (sender, delivery, text), number in Counter((s, d, _key(t[9:])) for s, d, t in done).items():
            if number > meant[sender, delivery, text]:
                yield f"obeyed {number} times, meant {meant[sender, delivery, text]} times: {text[:60]!r} of {sender}"

    def _unexplained(self) -> Iterator[str]:
        if MailCommand.objects.filter(reason_code="").exists():
            yield "a command without a reason"
        if waiting := MailCommand.objects.filter(state=CommandState.WAITING).count():
            yield f"{waiting} commands wait still"
        names = set(Delivery.objects.values_list("message_id", flat=True))
        for mail in Message.objects.exclude(commands__isnull=False).defer("recipients", "paths"):
            if names & {mail.in_reply_to, *mail.references} and b"#tidemark" in bytes(mail.raw):
                yield f"a mail without a trace: {bytes(mail.raw)[:60]!r}"

    def _answers(self) -> Iterator[str]:
        """Only to those whose mails were proved, and few."""
        senders = {intent.sender for intent in self.intents}
        for report in Report.objects.filter(kind=Report.Kind.ANSWER):
            if not set(report.to) <= senders or report.cc:
                yield f"answered to {report.to}"
            if any(line.startswith("#tidemark") for line in report.body.splitlines()):
                yield "an answer gives a command"
        each = Counter(Report.objects.filter(kind=Report.Kind.ANSWER).values_list("finding", "to__0"))
        if each and max(each.values()) > 5:
            yield f"{max(each.values())} answers to one sender in a day"

    def _forgotten(self) -> Iterator[str]:
        """What is signed and whole is obeyed or refused, up to what a sender may in a day."""
        rows = MailCommand.objects.filter(Q(state__in=OBEYED) | Q(reason_code__in=["too-many", "doubled"]))
        known = {
            (sender, about, _key(text[9:])) for sender, about, text in rows.values_list("sender", "delivery", "text")
        }
        for intent in self.intents:
            for line in intent.lines:
                if (intent.sender, intent.delivery, _key(line)) not in known:
                    yield f"not obeyed: {line[:60]!r} of {intent.sender}"


def _key(text: str) -> str:
    return " ".join("".join(letter for letter in text if letter.isprintable() or letter.isspace()).split())[:900]
