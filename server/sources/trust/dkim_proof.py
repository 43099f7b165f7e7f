"""Proving a sender by the signature of its domain (DKIM, RFC 6376)."""

import logging
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

import dkim
from dkim.asn1 import ASN1FormatError
from dkim.crypto import UnparsableKeyError
from dkim.util import InvalidTagValueList, parse_tag_value

from server.sources.trust.dkim_keys import DnsTroubleError, Lookup
from server.sources.trust.proofs import (
    BLANKS_OPEN,
    RECIPIENTS_OPEN,
    Proof,
    ReadMail,
    UnprovableError,
    domain_of_sender,
    left_open,
    read_mail,
    speaks_for,
)

# Mails carry one to three. Each costs a look-up and a hash of the whole mail.
_MOST_SIGNATURES = 5
_MOST_SIGNATURE_BYTES = 4096
_MOST_HEADERS = 500
# As large as a mail that is read for patches.
_MOST_BYTES = 4 * 1024 * 1024
# Clocks of senders go wrong.
_SKEW = timedelta(hours=10)
_NAME = re.compile(rb"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
# What decides how the mail is read: twice in a mail, nobody knows which of them the signature means.
_SINGLE = ("subject", "content-type", "content-transfer-encoding", "mime-version", "message-id", "date")
# Reading that changes nothing, so that it need not be signed.
_PLAIN_TYPE = re.compile(
    r"text/plain\s*(;\s*charset\s*=\s*\"?(utf-8|us-ascii|ascii|iso-8859-1|iso-8859-15)\"?)?\s*;?", re.IGNORECASE
)
_PLAIN_ENCODING = re.compile(r"7bit|8bit|binary", re.IGNORECASE)
_ALGORITHMS = frozenset({b"rsa-sha256"})
# Mail servers know one more that holds.
_ALGORITHMS_OF_SERVERS = _ALGORITHMS | {b"ed25519-sha256"}
# It would write what strangers sent into the log.
_SILENT = logging.getLogger("tidemark.dkim")
_SILENT.setLevel(logging.CRITICAL + 1)
_MAIL_AS_SENT = "a list that changes subjects or adds footers breaks signatures"
_BROKEN = (
    *(dkim.DKIMException, ASN1FormatError, UnparsableKeyError, InvalidTagValueList),
    *(ValueError, LookupError, TypeError, ArithmeticError, AttributeError),
)


@dataclass(frozen=True)
class _Signature:
    """`number` counts the signatures of the mail from 0."""

    number: int
    tags: dict[bytes, bytes]

    @property
    def domain(self) -> str:
        return self.tags[b"d"].decode("ascii").lower()

    @property
    def is_relaxed(self) -> bool:
        return self.tags.get(b"c", b"").strip().lower().endswith(b"/relaxed")

    @property
    def signed(self) -> list[bytes]:
        return [name.strip().lower() for name in self.tags[b"h"].split(b":")]


def differ_in_blanks(one: bytes, other: bytes) -> bool:
    """Whether a signature that leaves blanks open holds for the text of both mails, and they are not the same."""
    try:
        texts = [dkim.rfc822_parse(raw)[1] for raw in (one, other)]
    except (dkim.DKIMException, IndexError, ValueError):
        return False
    plain, relaxed = ([kind(text) for text in texts] for kind in (_simple_body, _relaxed_body))
    return relaxed[0] == relaxed[1] and plain[0] != plain[1]


def _simple_body(text: bytes) -> bytes:
    return text.rstrip(b"\r\n")


def _relaxed_body(text: bytes) -> bytes:
    return re.sub(rb" ?\r?\n", b"\n", re.sub(rb"[\t ]+", b" ", text)).rstrip(b"\n ")


def prove_by_dkim(raw: bytes, *, sender: str, received_at: datetime, lookup: Lookup) -> Proof:
    """Whether a signature of the domain of `sender` covers this mail; one that has expired counts as of its arrival."""
    if len(raw) > _MOST_BYTES:
        return Proof(proved=False, how="too large to be checked")
    try:
        mail = read_mail(raw)
        domain = domain_of_sender(mail, sender)
        signatures = _signatures(mail, domain)
    except UnprovableError as error:
        return Proof(proved=False, how=str(error))
    failures = []
    trouble = ""
    for signature in signatures:
        try:
            _verify(mail, raw, signature, received_at=received_at, lookup=lookup)
        except UnprovableError as error:
            failures.append(f"signature of {signature.domain}: {error}")
        except DnsTroubleError as error:
            trouble = str(error)
        else:
            signed = [name.decode("ascii", "replace") for name in signature.signed]
            how = f"signed by {signature.domain} (DKIM){left_open(mail, signed)}"
            return Proof(proved=True, how=how + (BLANKS_OPEN if signature.is_relaxed else ""))
    if trouble:
        return Proof(proved=None, how=trouble)
    return Proof(proved=False, how="; ".join(dict.fromkeys(failures)))


def open_in_any(mail: ReadMail, sender: str) -> str:
    """What the one of the signatures for `sender` that covers least leaves open; which of them held, others know."""
    domain = sender.rpartition("@")[2].lower()
    found = [value for name, value in mail.headers if name == "dkim-signature"]
    readable = (_read(number, value) for number, value in enumerate(found[: 10 * _MOST_SIGNATURES]))
    own = [s for s in readable if s and speaks_for(s.domain, domain)]
    if not own:
        # The server has taken it away; whom it named nobody can tell.
        return "".join(words for name, words in RECIPIENTS_OPEN.items() if mail.values(name))
    covers = [{n.decode("ascii", "replace") for n in s.signed} for s in own]
    return left_open(mail, set.intersection(*covers)) + (BLANKS_OPEN if any(s.is_relaxed for s in own) else "")


def _signatures(mail: ReadMail, domain: str) -> list[_Signature]:
    """Those that may speak for `domain`. UnprovableError, with the reason, if there is none."""
    _check_single(mail)
    found = [value for name, value in mail.headers if name == "dkim-signature"]
    if not found:
        raise UnprovableError("not signed (DKIM)")
    readable = [_read(number, value) for number, value in enumerate(found[: 10 * _MOST_SIGNATURES])]
    aligned = [s for s in readable if s is not None and speaks_for(s.domain, domain)]
    if not aligned:
        others = ", ".join(sorted({s.domain for s in readable if s is not None}))
        raise UnprovableError(f"signed by {others} only, not by {domain}" if others else "its signature is malformed")
    return aligned[:_MOST_SIGNATURES]


def check_vouched(mail: ReadMail, *, sender_domain: str, signer: str, selector: str, beginning: str) -> None:
    """UnprovableError if the signature of `signer` that a server says held leaves open what others may not change.

    `selector` and the `beginning` of the signature tell which one of several it was, as far as the server says. A mail
    in which it does not stand any more has the server's word alone.
    """
    _check_single(mail)
    values = [value for name, value in mail.headers if name == "dkim-signature"]
    if len(values) > 10 * _MOST_SIGNATURES:
        raise UnprovableError("it has too many signatures")
    found = []
    for signature in map(_read, range(len(values)), values):
        if signature is None:
            # The server may have read it all the same.
            raise UnprovableError("one of its signatures is malformed")
        if speaks_for(signature.domain, sender_domain) and signer in {"", signature.domain}:
            found.append(signature)
    meant = [
        signature
        for signature in found
        if selector in {"", signature.tags[b"s"].decode("ascii").lower()}
        and b"".join(signature.tags[b"b"].split()).startswith(beginning.encode())
    ]
    # Where it is not told which one held, each must be good for it.
    for signature in meant or found:
        _check_cover(mail, signature, _ALGORITHMS_OF_SERVERS)


def _check_single(mail: ReadMail) -> None:
    if len(mail.headers) > _MOST_HEADERS:
        raise UnprovableError("it has too many headers")
    if twice := next((name for name in _SINGLE if len(mail.values(name)) > 1), ""):
        raise UnprovableError(f"it has several {twice.title()} headers")


def _read(number: int, value: bytes) -> _Signature | None:
    """A signature that is complete and whose names are names."""
    if len(value) > _MOST_SIGNATURE_BYTES:
        return None
    try:
        tags = parse_tag_value(value)
    except InvalidTagValueList:
        return None
    complete = all(tags.get(tag) for tag in (b"v", b"a", b"b", b"bh", b"d", b"h", b"s"))
    if not complete or not all(_NAME.fullmatch(tags[tag].lower()) for tag in (b"d", b"s")):
        return None
    return _Signature(number, tags)


def _verify(mail: ReadMail, raw: bytes, signature: _Signature, *, received_at: datetime, lookup: Lookup) -> None:
    _check_cover(mail, signature, _ALGORITHMS)
    _check_times(signature, received_at)
    tags = {tag: value for tag, value in signature.tags.items() if tag not in {b"t", b"x"}}
    message = dkim.DKIM(raw, logger=_SILENT)
    if signature.is_relaxed:
        # The same to the signature, and it spares dkimpy a search that takes quadratic time on a long run of blanks.
        message.body = re.sub(rb"[\t ]+", b" ", message.body)

    def answer(name: bytes, timeout: int = 5) -> bytes | None:  # noqa: ARG001 (dkimpy gives it)
        key = lookup(name.decode("ascii").rstrip("."))
        if key is None:
            raise UnprovableError("its domain has no such key (any more)")
        return key

    header = [pair for pair in message.headers if pair[0].lower() == b"dkim-signature"][signature.number]
    try:
        dkim.validate_signature_fields(tags)
        valid = message.verify_sig(tags, signature.signed, header, answer)
    except dkim.ValidationError as error:
        changed = "body hash mismatch" in str(error)
        raise UnprovableError(f"the text was changed ({_MAIL_AS_SENT})" if changed else "it is malformed") from error
    except _BROKEN as error:
        raise UnprovableError(f"it cannot be checked: {type(error).__name__}") from error
    if not valid:
        raise UnprovableError(f"signed headers were changed, or the key is another ({_MAIL_AS_SENT})")


def _check_cover(mail: ReadMail, signature: _Signature, algorithms: frozenset[bytes]) -> None:
    """What must not be changed by others is signed, or leaves no choice."""
    if b"l" in signature.tags:
        raise UnprovableError("it covers only a part of the text")
    if signature.tags[b"a"].lower() not in algorithms:
        raise UnprovableError("its algorithm is too weak or not known")
    signed = signature.signed
    if b"from" not in signed:
        raise UnprovableError("it does not cover From")
    # Large sites sign one of them only: some, so that lists can mark subjects, others, so that ids can be replaced.
    if b"subject" not in signed and b"message-id" not in signed:
        raise UnprovableError("it covers neither Subject nor Message-ID")
    for name, plain in (("content-type", _PLAIN_TYPE), ("content-transfer-encoding", _PLAIN_ENCODING)):
        if name.encode() not in signed and not all(plain.fullmatch(value) for value in mail.values(name)):
            raise UnprovableError(f"it does not cover {name.title()}")


def _check_times(signature: _Signature, received_at: datetime) -> None:
    arrived = received_at.timestamp()
    for tag, after_arrival, reason in (
        (b"t", True, "it is from the future"),
        (b"x", False, "it had expired on arrival"),
    ):
        text = signature.tags.get(tag)
        if text is None:
            continue
        if not re.fullmatch(rb"[0-9]{1,12}", text):
            raise UnprovableError("it is malformed")
        away = int(text) - arrived
        if (away if after_arrival else -away) > _SKEW.total_seconds():
            raise UnprovableError(reason)
