"""What mail servers write back: notices after RFC 3464, and what exim, qmail, Exchange and others wrote before it.

Anybody can write such a mail: what it says counts where it knows what only those know whom we wrote to.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from email.utils import getaddresses, parseaddr
from itertools import takewhile

# A notice quotes a mail of ours, which is short. What is longer says nothing new.
_MOST_BYTES = 256 * 1024
_MOST_RECIPIENTS = 100
_MOST_WORDS = 500
# What the standard library raises on texts that only an attacker or a broken program writes.
_HOSTILE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, AssertionError)
_DAEMONS = re.compile(r"(mailer-daemon|postmaster|mail-daemon|microsoftexchange[0-9a-f]{8,64})@?", re.IGNORECASE)
_ID = re.compile(r"<([!-;=?-~]{3,400})>")
_ID_LINE = re.compile(
    r"^[> \t]{0,8}(?:Message-ID|References|In-Reply-To):([^\n]{1,1000})", re.IGNORECASE | re.MULTILINE
)
_STATUS = re.compile(r"(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?![\d.])")
_SMTP_CODE = re.compile(r"(?<![\d.])([45])\d\d(?=[ -])")
_ADDRESS = r"[^\s<>@:;,]{1,64}@[^\s<>@:;,]{1,255}"
# A line that names whom it failed for: `<a@b>:`, or the address alone, or as Exchange told it: `a@b on DATE`.
_FAILED = re.compile(rf"^[ \t]{{0,8}}(?:<({_ADDRESS})>:?|({_ADDRESS}):?(?:[ \t]+on[ \t][^\n]{{1,60}})?)[ \t]*(.*)$")
# Below such a line stands the mail that came back.
_COPY = ("copy of the message", "copy of your message", "original message", "returned message", "below this line")
_LONGEST_RULE = 200
_LATE = re.compile(
    r"has not (?:yet )?been (?:collected|delivered)|will continue to (?:try|retry)|delayed|still being retried",
    re.IGNORECASE,
)
_GIVEN_UP = re.compile(
    r"could not be delivered|permanent|given up|did not reach|undeliverable|not be delivered", re.IGNORECASE
)
_AUTOMATIC = ("x-autoreply", "x-autorespond", "x-auto-response-suppress")


@dataclass(frozen=True)
class Undelivered:
    """`also` is the address as it was before somebody forwarded the mail; `given_up` is False while it is only late."""

    address: str
    also: str
    given_up: bool
    status: str
    said: str


@dataclass(frozen=True)
class Notice:
    """`message_ids` are those of the mails that it may be about; `addressed` is where it came to.

    `automatic`: a program wrote it, whatever it says.
    """

    failures: tuple[Undelivered, ...]
    message_ids: tuple[str, ...]
    addressed: tuple[str, ...]
    automatic: bool


NOTHING = Notice((), (), (), automatic=False)


def read_notice(raw: bytes) -> Notice:
    """What a mail tells of the delivery of others. Nothing here raises."""
    try:
        mail = message_from_bytes(raw[:_MOST_BYTES])
        failures = tuple(_failures(mail))[:_MOST_RECIPIENTS]
        return Notice(
            failures=failures,
            message_ids=tuple(dict.fromkeys(_ids(mail)))[:_MOST_RECIPIENTS] if failures else (),
            addressed=tuple(dict.fromkeys(_addressed(mail))),
            automatic=_is_automatic(mail),
        )
    except _HOSTILE:
        return NOTHING


def _failures(mail: Message) -> Iterator[Undelivered]:
    if mail.get_content_type() == "multipart/report":
        for part in mail.walk():
            if part.get_content_type() == "message/delivery-status":
                blocks = part.get_payload()
                yield from (found for block in blocks if isinstance(block, Message) and (found := _told(block)))
                return
    elif _is_of_daemon(mail):
        yield from _in_words(mail)


def _told(block: Message) -> Undelivered | None:
    """One recipient of RFC 3464."""
    action = str(block.get("Action", "")).strip().lower()
    final, original = (_typed(block.get(name)) for name in ("Final-Recipient", "Original-Recipient"))
    if action not in {"failed", "delayed"} or not (final or original):
        return None
    said = " ".join(str(block.get("Diagnostic-Code", "")).split()).partition(";")[2].strip()
    found = _STATUS.search(str(block.get("Status", ""))) or _STATUS.search(said)
    # Exchange writes 5.0.0 where its words say more.
    exact = _STATUS.search(said)
    status = exact[1] if exact and found and found[1].endswith(".0.0") else found[1] if found else ""
    return Undelivered(final or original, original, action == "failed", status, said[:_MOST_WORDS])


def _typed(value: object) -> str:
    """The address of `rfc822; a@b`, in lower case; empty where it is none."""
    kind, semicolon, rest = str(value or "").partition(";")
    told = rest if semicolon and kind.strip().lower() in {"rfc822", "utf-8"} else ""
    address = parseaddr(told.strip())[1] or told.strip().strip("<>")
    return address.lower() if re.fullmatch(_ADDRESS, address) else ""


def _is_of_daemon(mail: Message) -> bool:
    sender = parseaddr(str(mail.get("From", "")))[1]
    return str(mail.get("Return-Path", "")).strip() == "<>" or bool(_DAEMONS.match(sender))


def _in_words(mail: Message) -> Iterator[Undelivered]:
    """As servers told it before RFC 3464: an address, and below it what the other server said."""
    words = "\n".join(takewhile(lambda line: not _begins_copy(line), _text(mail).splitlines()))
    late, over = bool(_LATE.search(words)), bool(_GIVEN_UP.search(words))
    failed = {address.lower() for _, address in getaddresses(mail.get_all("X-Failed-Recipients", []))}
    if not (failed or late or over):
        return
    for address, said in _paragraphs(words):
        if failed and address not in failed:
            continue
        failed.discard(address)
        yield _in_paragraph(address, said, given_up=over or not late)
    for address in sorted(failed):
        yield Undelivered(address, "", True, "", "")


def _begins_copy(line: str) -> bool:
    return line.startswith("---") and len(line) <= _LONGEST_RULE and any(words in line.lower() for words in _COPY)


def _in_paragraph(address: str, said: str, *, given_up: bool) -> Undelivered:
    status, code = _STATUS.search(said), _SMTP_CODE.search(said)
    told = status[1] if status else f"{code[1]}.0.0" if code else ""
    return Undelivered(address, "", given_up, told, " ".join(said.split())[:_MOST_WORDS])


def _paragraphs(words: str) -> Iterator[tuple[str, str]]:
    """Each address that stands at the beginning of a line, and what is said below it up to an empty line."""
    address, said = "", list[str]()
    for line in [*words.splitlines(), ""]:
        found = _FAILED.match(line)
        if address and (found or not line.strip()):
            yield address, "\n".join(said)
            address, said = "", []
        if found:
            address, said = (found[1] or found[2]).lower(), [found[3]]
        elif address:
            said.append(line)


def _text(mail: Message) -> str:
    """The first part that is text."""
    for part in mail.walk():
        if part.get_content_maintype() == "text":
            content = part.get_payload(decode=True)
            return content.decode("utf-8", "replace") if isinstance(content, bytes) else ""
    return ""


def _ids(mail: Message) -> Iterator[str]:
    """Of the mail that came back, as far as it is there, and of what the notice says that it answers."""
    for part in mail.walk():
        if part is not mail:
            yield from _ID.findall(str(part.get("Message-ID", "")))
        if part.get_content_type() in {"text/rfc822-headers", "text/plain"}:
            content = part.get_payload(decode=True)
            text = content.decode("utf-8", "replace") if isinstance(content, bytes) else ""
            for line in _ID_LINE.findall(text):
                yield from _ID.findall(line)
    for name in ("In-Reply-To", "References"):
        yield from _ID.findall(str(mail.get(name, "")))


def _addressed(mail: Message) -> Iterator[str]:
    for name in ("Delivered-To", "X-Original-To", "Envelope-To", "To"):
        for _, address in getaddresses([str(value) for value in mail.get_all(name, [])][:10]):
            yield address.lower()


def _is_automatic(mail: Message) -> bool:
    submitted = str(mail.get("Auto-Submitted", "no")).strip().lower()
    bulk = str(mail.get("Precedence", "")).strip().lower() in {"auto_reply", "bulk", "junk"}
    return not submitted.startswith("no") or bulk or _is_of_daemon(mail) or any(name in mail for name in _AUTOMATIC)
