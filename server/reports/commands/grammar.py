"""What a line asks for: its verb and what follows it."""

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from server.core.errors import DomainError
from server.reports.models import Verb
from server.sources.mail.mime import message_ids

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}(?:/[A-Za-z0-9][A-Za-z0-9._+-]{0,59})?")
_MOST_NAMES = 20
_LONGEST_REASON = 500
_LONGEST_SUBJECT = 300
_SHORTEST_SUBJECT = 8
_VERB = re.compile(r"([A-Za-z]{1,20})\s*(:?)\s*(.*)", re.DOTALL)
# What our own mails write where something is to be filled in.
_PLACEHOLDERS = frozenset({"REASON", "SUBJECT", "MESSAGE-ID", "<MESSAGE-ID>", "UARCH", "NAME", "..."})
# Indented where it is told, so that nobody who quotes it without marks gives a command.
HELP = (
    "retest",
    "test [on UARCH,...] [bench NAME,...]",
    "accept: REASON",
    "invalid: REASON",
    "dup: MESSAGE-ID",
    "fix: SUBJECT",
    "stop",
)


@dataclass(frozen=True)
class Order:
    """`text` is the reason, the Message-ID or the subject, as its verb wants."""

    verb: Verb
    text: str = ""
    uarchs: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ()


def read_order(told: str) -> Order:
    """What follows the mark of a line. DomainError `not-understood`, with words for its sender."""
    found = _VERB.fullmatch(told.strip())
    word = found[1].lower() if found else ""
    if found is None or word not in Verb.values:
        raise _not_understood(f"{told[:40]!r} is no command" if told.strip() else "no command follows")
    verb, colon, rest = Verb(word), found[2], found[3].strip()
    if verb in {Verb.RETEST, Verb.STOP}:
        if rest.strip(". !"):
            raise _not_understood(f"nothing follows `{verb}`")
        return Order(verb)
    if verb == Verb.TEST:
        return _test(rest)
    if not colon or not rest:
        raise _not_understood(f"`{verb}` is followed by a colon and its {_WANTED[verb]}")
    if rest in _PLACEHOLDERS:
        raise _not_understood(f"{rest} stands for what you mean")
    return Order(verb, text=_read_text(verb, rest))


_WANTED = {Verb.ACCEPT: "reason", Verb.INVALID: "reason", Verb.DUP: "Message-ID", Verb.FIX: "subject"}


def _not_understood(why: str) -> DomainError:
    return DomainError("not-understood", why)


def _read_text(verb: Verb, rest: str) -> str:
    if verb == Verb.DUP:
        return _message_id(rest)
    if verb == Verb.FIX:
        subject = rest.strip('"“”').strip()
        if not _SHORTEST_SUBJECT <= len(subject) <= _LONGEST_SUBJECT:
            raise _not_understood(
                f"the subject of a commit has from {_SHORTEST_SUBJECT} to {_LONGEST_SUBJECT} characters"
            )
        return subject
    return rest[:_LONGEST_REASON]


def _message_id(rest: str) -> str:
    """Of a mail, or of its address in an archive."""
    word = rest.split(maxsplit=1)[0]
    if "://" in word:
        try:
            parts = [unquote(part) for part in urlsplit(word.strip("<>")).path.split("/")]
        except ValueError:
            parts = []
        word = next((part for part in parts if "@" in part.strip("@")), "")
    named = message_ids([word if not rest.startswith("<") else rest])
    if not named or "@" not in named[0].strip("@"):
        raise _not_understood("`dup` is followed by a colon and the Message-ID of a mail about the other finding")
    return named[0]


def _test(rest: str) -> Order:
    """`on` and `bench`, each with names; either may come first."""
    names: dict[str, list[str]] = {}
    into: list[str] | None = None
    for word in rest.replace(",", " ").split():
        if word.lower() in ("on", "bench"):
            if word.lower() in names:
                raise _not_understood(f"`{word.lower()}` stands there twice")
            into = names.setdefault(word.lower(), [])
        elif into is None:
            raise _not_understood(f"`test` is followed by `on` or `bench`, not by {word[:40]!r}")
        elif word in _PLACEHOLDERS or not _NAME.fullmatch(word):
            raise _not_understood(f"{word[:40]!r} is no name")
        elif len(into) == _MOST_NAMES:
            raise _not_understood(f"more than {_MOST_NAMES} names")
        else:
            into.append(word)
    if empty := [word for word, found in names.items() if not found]:
        raise _not_understood(f"names follow `{empty[0]}`")
    return Order(
        Verb.TEST,
        uarchs=tuple(dict.fromkeys(name.lower() for name in names.get("on", ()))),
        benchmarks=tuple(dict.fromkeys(names.get("bench", ()))),
    )
