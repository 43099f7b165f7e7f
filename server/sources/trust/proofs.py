"""What proves that a mail is from the address in its From header, and the reading of headers that proofs rest on."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from email.errors import MessageError

import dkim

# Real headers are a few KB; much more is an attack on whoever hashes or scans them.
_MOST_HEADER_BYTES = 256 * 1024
_MOST_HEADER_LINES = 3000
_END_OF_HEADERS = re.compile(rb"\r?\n\r?\n")
# Two readers could see two mails in one with these: control characters, lines of blanks, an envelope line further down,
# a header without a name.
_AMBIGUOUS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|\n[ \t]+\r?\n|\nFrom |(?:^|\n):")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_DOMAIN = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.(?!-)[a-z0-9-]{1,63}){1,10}")


# Said at the end of what proved a mail. Anybody can post such a mail again as a version that its author never made.
SUBJECT_OPEN = "; its subject is not signed"
SUBJECT_AND_DATE_OPEN = "; neither its subject nor its date is signed"


# Runs of blanks count as one: in a Makefile or a string that is another text.
BLANKS_OPEN = "; its blanks are not signed"
# Whoever posts the mail again chooses whom it names there.
RECIPIENTS_OPEN = {"to": "; its To is not signed", "cc": "; its Cc is not signed"}


def left_open(mail: "ReadMail", signed: Collection[str]) -> str:
    """What a signature of the headers `signed` (lower case) does not prove of `mail`, in words."""
    found = ""
    if "subject" not in signed:
        found = SUBJECT_OPEN if "date" in signed else SUBJECT_AND_DATE_OPEN
    for name, words in RECIPIENTS_OPEN.items():
        # Of several with one name a signature covers the last, unless it names it as often.
        if len(mail.values(name)) > list(signed).count(name):
            found += words
    return found


@dataclass(frozen=True)
class Proof:
    """`proved` is None when it could not be found out now; `how` says what proved the sender, or why nothing did."""

    proved: bool | None
    how: str


class UnprovableError(Exception):
    """Nothing about this mail can be proved; the text says why."""


@dataclass(frozen=True)
class ReadMail:
    """Headers in their order, names in lower case, values folded as they came; and the body with CRLF lines."""

    headers: tuple[tuple[str, bytes], ...]
    body: bytes

    def values(self, name: str) -> list[str]:
        found = [value for header, value in self.headers if header == name]
        return [" ".join(value.decode("utf-8", "replace").split()) for value in found]


def read_mail(raw: bytes) -> ReadMail:
    """Headers and body of a mail that every reader splits in the same way; UnprovableError for any other."""
    end = _END_OF_HEADERS.search(raw, 0, _MOST_HEADER_BYTES)
    head = raw[: end.end()] if end else raw
    if len(head) >= _MOST_HEADER_BYTES or head.count(b"\n") > _MOST_HEADER_LINES:
        raise UnprovableError("its headers are too long")
    if _AMBIGUOUS.search(head):
        raise UnprovableError("its headers can be read in two ways")
    try:
        headers, body = dkim.rfc822_parse(raw)
    except (dkim.DKIMException, MessageError, IndexError, ValueError) as error:
        raise UnprovableError("its headers cannot be read") from error
    return ReadMail(tuple((name.decode("ascii").lower(), value) for name, value in headers), body)


def domain_of_sender(mail: ReadMail, sender: str) -> str:
    """The domain of `sender`, once it is sure that the mail names this address and no other as its sender."""
    found = mail.values("from")
    if len(found) != 1:
        raise UnprovableError("it has no From header" if not found else "it has several From headers")
    plain = _QUOTED.sub("", found[0]).lower()
    domain = sender.rpartition("@")[2].lower()
    if plain.count("@") != 1 or not re.search(rf"(?:^|[<\s]){re.escape(sender.lower())}(?:$|[>\s])", plain):
        raise UnprovableError("its From header does not plainly name one address")
    if not _DOMAIN.fullmatch(domain):
        raise UnprovableError("the domain of its sender is no name")
    return domain


def speaks_for(signer: str, domain: str) -> bool:
    """Whether `signer` is the domain of the address, or one above it.

    One below it is not enough: under many domains anyone can rent a name. Nor is a name without a dot.
    """
    return signer == domain or (domain.endswith(f".{signer}") and "." in signer)
