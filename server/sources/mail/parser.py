"""From the bytes of a mail to what the service needs to know of it. Mails are hostile; nothing here raises."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from server.core.reasons import NONE, Because, Reason
from server.sources.mail.diffs import NO_DIFF, Diff, may_hold_diff, read_diff
from server.sources.mail.mime import (
    OLDEST,
    Headers,
    TextPart,
    UnreadableMailError,
    addresses,
    author_of,
    date,
    decoded,
    list_ids,
    message_ids,
    person,
    plain,
    split_headers,
    text_parts,
)
from server.sources.mail.postings import Marks, parse_subject

Kind = Literal["cover", "patch", "other", "unusable"]
_PULL_SUBJECT = re.compile(r"(?:git )?pull\b|please pull", re.IGNORECASE)
_PULL_TEXT = ("are available in the git repository at", "are available in the Git repository at")


def kind_of(marks: Marks, body: str, *, has_diff: bool) -> tuple[Kind, Reason]:
    """The kind of a mail, with the reason where it is not what it looks like."""
    if marks.reply or not (marks.patch or has_diff):
        return "other", NONE
    if not marks.patch and _asks_to_pull(marks, body):
        # Some show all that they ask to pull: that can be tried like a patch.
        told = Because.PULL_REQUEST("a pull request: its diff is one patch" if has_diff else "a pull request")
        return ("patch" if has_diff else "other"), told
    if marks.index == 0 and marks.total:
        return "cover", Because.COVER_WITH_DIFF() if has_diff else NONE
    return ("patch", NONE) if has_diff else ("other", Because.NO_DIFF())


def _asks_to_pull(marks: Marks, body: str) -> bool:
    words = " ".join(marks.tags)
    return bool(_PULL_SUBJECT.search(words) or _PULL_SUBJECT.match(marks.title)) or any(t in body for t in _PULL_TEXT)


# Patches are far smaller.
MAX_BYTES = 4 * 1024 * 1024
# So much of a larger mail is read to know what it is: its headers.
_HEAD_BYTES = 64 * 1024
# What the standard library raises on texts that only an attacker or a broken program writes.
_HOSTILE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, AssertionError, OverflowError)


@dataclass(frozen=True)
class ParsedMail:
    """What a mail says.

    `sender` is the From header, `author` the in-body From of a patch where there is one. `recipients` are the addresses
    of To and Cc, `list_ids` those of List-Id, all lower case. `prerequisites` are "patch-id:HEX", "change-id:ID" and
    "message-id:ID". `trailers` are those of the commit message for a patch, of what the sender wrote for other mails.
    `whole` tells that `body` holds all parts.
    """

    message_id: str
    kind: Kind
    reason: Reason
    marks: Marks
    subject: str = ""
    sender_name: str = ""
    sender_address: str = ""
    author_name: str = ""
    author_address: str = ""
    sent_at: datetime = OLDEST
    in_reply_to: str = ""
    references: tuple[str, ...] = ()
    body: str = ""
    whole: bool = True
    automatic: bool = False
    base_commit: str = ""
    change_id: str = ""
    recipients: tuple[str, ...] = ()
    list_ids: tuple[str, ...] = ()
    prerequisites: tuple[str, ...] = ()
    trailers: tuple[str, ...] = ()
    diff: Diff = NO_DIFF

    @property
    def has_diff(self) -> bool:
        return bool(self.diff)

    @property
    def may_be_cover(self) -> bool:
        """Whether this may be a cover letter that is not marked as one: patches that answer it decide."""
        starts = not (self.in_reply_to or self.references) or self.marks.patch
        return self.kind == "other" and starts and not (self.marks.reply or self.automatic or self.diff)


def parse_mail(raw: bytes, *, blob: str, received_at: datetime) -> ParsedMail:
    """Read one mail. `blob` names it where it brings no usable Message-ID; an impossible date becomes `received_at`.

    Of a mail larger than MAX_BYTES only the headers are read: it is "unusable", but its place in its thread is known.
    """
    nothing = ParsedMail(f"{blob}@no-message-id.invalid", "unusable", NONE, Marks(""), sent_at=received_at)
    known = nothing
    try:
        headers, start = split_headers(raw if len(raw) <= MAX_BYTES else raw[:_HEAD_BYTES])
        known = _with_headers(nothing, headers, received_at)
        if len(raw) > MAX_BYTES:
            raise UnreadableMailError(f"larger than {MAX_BYTES // 2**20} MB")
        if headers.too_long:
            raise UnreadableMailError(headers.too_long)
        return _with_text(known, headers, raw[start:])
    except UnreadableMailError as error:
        return replace(known, reason=Because.UNUSABLE(plain(str(error))))
    except _HOSTILE as error:
        return replace(
            known, reason=Because.UNUSABLE(plain(f"cannot be parsed: {type(error).__name__}: {error}"[:500]))
        )


def text_of_mail(raw: bytes) -> str:
    """The `body` of a mail alone, "" where nothing can be read. For pages: decoding is all that it costs."""
    try:
        headers, start = split_headers(raw if len(raw) <= MAX_BYTES else raw[:_HEAD_BYTES])
        return "" if len(raw) > MAX_BYTES or headers.too_long else _joined(text_parts(headers, raw[start:])[0])
    except (UnreadableMailError, *_HOSTILE):
        return ""


def _joined(parts: Iterable[TextPart]) -> str:
    return "\n".join(part.text for part in parts)


def _with_headers(nothing: ParsedMail, headers: Headers, received_at: datetime) -> ParsedMail:
    own_ids = message_ids(headers.every("message-id")[:1])
    parents = message_ids(headers.every("in-reply-to")[:1])
    name, address = person(headers.first("from"))
    subject = decoded(headers.first("subject"))
    return replace(
        nothing,
        message_id=own_ids[0] if own_ids else nothing.message_id,
        reason=NONE if own_ids else Because.NAMED_BY_US("no usable Message-ID: named after its content"),
        marks=parse_subject(subject),
        subject=subject,
        sender_name=name,
        sender_address=address,
        author_name=name,
        author_address=address,
        sent_at=date(headers.first("date"), received_at),
        in_reply_to=parents[0] if parents else "",
        references=message_ids(headers.every("references")),
        automatic=headers.first("auto-submitted").lower() not in {"", "no"} or bool(headers.first("x-tidemark")),
        recipients=addresses([*headers.every("to"), *headers.every("cc")]),
        list_ids=list_ids(headers.every("list-id")),
    )


def _with_text(known: ParsedMail, headers: Headers, content: bytes) -> ParsedMail:
    parts, whole = text_parts(headers, content)
    body = _joined(parts)
    diff = read_diff(body)
    sender = (known.sender_name, known.sender_address)
    kind, reason = kind_of(known.marks, body, has_diff=bool(diff))
    if kind in {"patch", "cover"} and known.automatic:
        kind, reason = "other", Because.BY_PROGRAM()
    elif kind in {"patch", "cover"} and not known.sender_address:
        kind, reason = "unusable", Because.NO_SENDER()
    is_patch = kind == "patch"
    # An attached patch brings its author along.
    beginning = next((p.text for p in parts if is_patch and may_hold_diff(p.text)), body)
    author = author_of(beginning, sender, headers)
    needs = needs_of(body)
    return replace(
        known,
        kind=kind,
        reason=reason or known.reason,
        author_name=author[0],
        author_address=author[1],
        body=body,
        whole=whole,
        base_commit=needs.base_commit,
        change_id=needs.change_id,
        prerequisites=needs.prerequisites,
        trailers=trailers_of_patch(body) if is_patch else trailers_of_reply(body, sender),
        diff=diff,
    )


# What people and programs write into the text: trailers, and what the author says that his patch stands on.

_TRAILER = re.compile(r"[ \t]{0,8}([A-Za-z][A-Za-z0-9-]{1,40}):[ \t]{1,99}(\S.*)")
# Trailers without a person.
_FACTS = frozenset({"fixes", "link", "closes", "buglink", "obsoleted-by"})
# A person may follow, but it says nothing of the patch.
_NO_TRAILERS = frozenset({"from", "author", "to", "date", "subject", "email", "e-mail", "mail", "phone", "message-id"})
_NOT_IN_REPLIES = _NO_TRAILERS | {"cc"}
_PERSON = re.compile(r"[^\s@<>]@[^\s@<>]")
_ADDRESS_ALONE = re.compile(r"\s{0,8}<[^<>\s@]+@[^<>\s]+>\s*")
_COMMIT = re.compile(r"[0-9a-f]{6,40}\b")
# What mailers make of an address when they turn HTML into text: <ada@example.org<mailto:ada@example.org>>.
_MADE_OF_HTML = re.compile(r"<mailto:[^<>\s]{1,320}>(?=>)")
_LONGEST = 1_000
_MOST = 500


def trailers_of_patch(text: str) -> tuple[str, ...]:
    """The trailers of a commit message, as written: those at its end, where whole paragraphs may be trailers."""
    found: list[list[str]] = []
    for lines in reversed(_paragraphs(text)):
        trailers = list(_trailers(lines, _NO_TRAILERS))
        found.append(trailers)
        if len(trailers) < len(lines) and any(found):
            break
        if not trailers:
            break
    return tuple(dict.fromkeys(chain.from_iterable(reversed(found))))[:_MOST]


def trailers_of_reply(text: str, sender: tuple[str, str]) -> tuple[str, ...]:
    """The trailers that `sender` gives in an answer, as written. Quoted lines and signatures do not count, nor what
    one person says in the name of another.
    """
    lines = (line for line in text.partition("\n-- \n")[0].split("\n") if not line.startswith(">"))
    name, address = sender[0].lower(), sender[1].lower()
    found: dict[str, None] = {}
    for trailer in _trailers(lines, _NOT_IN_REPLIES):
        key, _, value = trailer.partition(":")
        if key.lower() not in _FACTS:
            said_name, said_address = person(value)
            if said_address.lower() != address and not (name and said_name.lower() == name):
                continue
        found[trailer] = None
    return tuple(found)[:_MOST]


def _paragraphs(text: str) -> list[list[str]]:
    """The paragraphs of a patch's commit message: all before the line `---` or the diff."""
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.startswith(("--- ", "diff -", "Index: ")) or line.rstrip() == "---":
            break
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [paragraph for paragraph in found if paragraph]


def _trailers(lines: Iterable[str], unwanted: frozenset[str]) -> Iterator[str]:
    for line in _unwrapped(lines):
        found = _matched(line)
        if found and (name := found[1].lower()) not in unwanted and _is_trailer(name, found[2]):
            trailer = f"{found[1]}: {_MADE_OF_HTML.sub('', found[2]).rstrip()}"
            if len(trailer) <= _LONGEST:
                yield trailer


def _matched(line: str) -> re.Match[str] | None:
    return _TRAILER.fullmatch(line) if ": " in line and len(line) <= _LONGEST else None


def _unwrapped(lines: Iterable[str]) -> Iterator[str]:
    """Mailers break long lines: before the address of a person, or in the title of the commit that is mended."""
    broken = ""
    for line in lines:
        if broken and (_ADDRESS_ALONE.fullmatch(line) or (broken.startswith("Fixes:") and line.rstrip().endswith(")"))):
            yield f"{broken} {line.strip()}"
            broken = ""
            continue
        if broken:
            yield broken
        broken = line.rstrip() if _is_broken(line) else ""
        if not broken:
            yield line
    if broken:
        yield broken


def _is_broken(line: str) -> bool:
    found = _matched(line)
    if not found:
        return False
    if found[1] == "Fixes":
        return "(" in line and not line.rstrip().endswith(")")
    return found[1].lower().endswith("-by") and "@" not in line


def _is_trailer(name: str, value: str) -> bool:
    if name in _FACTS:
        return name != "fixes" or bool(_COMMIT.match(value))
    return bool(_PERSON.search(value)) and "://" not in value


# What names something that cannot be looked up is kept under this name: a series must not lose it without a word.
UNKNOWN = "unknown"
# People write tags and short ids by hand: what cannot be found is told as such, and not lost.
_BASE_COMMIT = re.compile(r"^base-commit:[ \t]*([!-~]{1,40})", re.MULTILINE)
_CHANGE_ID = re.compile(r"^change-id:[ \t]*(\S{1,200})[ \t]*$", re.MULTILINE)
_PREREQUISITE = re.compile(
    r"^(?:prerequisite-(patch-id|change-id|message-id)|depends-on|based-on):[ \t]*(\S[^\n]{0,1000})$",
    re.MULTILINE | re.IGNORECASE,
)
_PATCH_ID = re.compile(r"[0-9a-f]{40}\b")
_URL = re.compile(r"https?://[^\s<>\"]+", re.IGNORECASE)
# So much can be stored of one.
_LONGEST_NEED = 300
# An author names a handful. Each is looked up before a series is applied.
_MOST_NEEDS = 200


@dataclass(frozen=True)
class StatedNeeds:
    """`base_commit` is as it was written, of at most 40 characters.

    `prerequisites` are "patch-id:HEX", "change-id:ID", "message-id:ID" and "unknown:TEXT", in the order of the text.
    """

    base_commit: str = ""
    change_id: str = ""
    prerequisites: tuple[str, ...] = ()


def needs_of(text: str) -> StatedNeeds:
    """Read the lines that `git format-patch --base`, b4 and people write; quoted lines do not count."""
    lower = text.lower()
    base = _BASE_COMMIT.search(text) if "base-commit:" in lower else None
    change = _CHANGE_ID.search(text) if "change-id:" in lower else None
    found: dict[str, None] = {}
    if "prerequisite-" in lower or "depends-on:" in lower or "based-on:" in lower:
        for line in _PREREQUISITE.finditer(text):
            told = line[2].strip()
            needed = _needed((line[1] or "message-id").lower(), told)
            if not 0 < len(needed) <= _LONGEST_NEED:
                needed = f"{UNKNOWN}:{' '.join(told.split())}"[:_LONGEST_NEED]
            found[needed] = None
    return StatedNeeds(base[1] if base else "", change[1] if change else "", few_needs(found))


def few_needs(needs: Iterable[str]) -> tuple[str, ...]:
    """As many as are looked up, each once; the last says how many more there were."""
    known = list(dict.fromkeys(needs))
    more = len(known) - _MOST_NEEDS + 1
    return tuple(known) if more <= 1 else (*known[: _MOST_NEEDS - 1], f"{UNKNOWN}:{more} more")


def is_unknown(need: str) -> bool:
    """Whether nothing that is stored here can be found by it."""
    return need.startswith(f"{UNKNOWN}:")


def _needed(kind: str, value: str) -> str:
    """The name under which it can be looked up; "" where there is none."""
    word = value.split(maxsplit=1)[0]
    if kind == "patch-id":
        return f"patch-id:{word}" if _PATCH_ID.fullmatch(word) else ""
    if kind == "change-id":
        return f"change-id:{word}"
    if url := _URL.search(value):
        named = _id_in(url[0])
    else:
        named = next(iter(message_ids([value if value.startswith("<") else word])), "")
    return f"message-id:{named}" if "@" in named.strip("@") else ""


def _id_in(url: str) -> str:
    """The Message-ID that the address of a mail holds, in an archive or at patchwork; "" where it holds none.

    /r/ID, /LIST/ID/T/, /project/NAME/patch/ID/, ?i=ID: a part with an @, whatever stands around it. Patchwork's own
    numbers mean nothing elsewhere.
    """
    try:
        parts = urlsplit(url)
        words = [*map(unquote, parts.path.split("/")), *parse_qs(parts.query).get("i", [])]
    except ValueError:
        return ""
    return next(iter(message_ids(word for word in words if "@" in word.strip("@"))), "")
