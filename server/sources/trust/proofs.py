"""What proves that a mail is from the address in its From header: a trusted server's word, or DKIM."""

import logging
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from email.errors import MessageError

import dkim
from dkim.asn1 import ASN1FormatError
from dkim.crypto import UnparsableKeyError
from dkim.util import InvalidTagValueList, parse_tag_value

from server.sources.models import Open
from server.sources.trust.dkim_keys import DnsTroubleError, Lookup

# Real headers are a few KB; much more is an attack on whoever hashes or scans them.
_MOST_HEADER_BYTES = 256 * 1024
_MOST_HEADER_LINES = 3000
_END_OF_HEADERS = re.compile(rb"\r?\n\r?\n")
# Two readers could see two mails in one with these: control characters, lines of blanks, an envelope line further down,
# a header without a name.
_AMBIGUOUS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|\n[ \t]+\r?\n|\nFrom |(?:^|\n):")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
# As much of it as the parser reads. What takes longer to read than its length says is short then.
_MOST_FROM = 4_000
_DOMAIN = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.(?!-)[a-z0-9-]{1,63}){1,10}")


# What may be open of a proved mail, and its words. Anybody can post one again whose subject is, as a version that its
# author never made. Of blanks runs count as one: in a Makefile or a string that is another text. Whoever posts the mail
# again chooses whom it names in an open To or Cc.
_WORDS = {
    Open.SUBJECT: "its subject is not signed",
    Open.TO: "its To is not signed",
    Open.CC: "its Cc is not signed",
    Open.BLANKS: "its blanks are not signed",
}


def _told(found: Collection[Open]) -> str:
    words = {**_WORDS, Open.SUBJECT: "neither its subject nor its date is signed"} if Open.DATE in found else _WORDS
    return "".join(f"; {said}" for name, said in words.items() if name in found)


def left_open(mail: "ProvableMail", signed: Collection[str]) -> frozenset[Open]:
    """What a signature of the headers `signed` (lower case) does not prove of `mail`."""
    found = set()
    if "subject" not in signed:
        found = {Open.SUBJECT} if "date" in signed else {Open.SUBJECT, Open.DATE}
    for name in (Open.TO, Open.CC):
        # Of several with one name a signature covers the last, unless it names it as often.
        if len(mail.values(name)) > list(signed).count(name):
            found.add(name)
    return frozenset(found)


@dataclass(frozen=True)
class Proof:
    """`proved` is None when it could not be found out now; `how` says what proved the sender, or why nothing did.

    `unsigned` is what the proof leaves open.
    """

    proved: bool | None
    how: str
    unsigned: frozenset[Open] = frozenset()

    def leaving(self, unsigned: frozenset[Open]) -> "Proof":
        """The proof that leaves these open, and says so."""
        return replace(self, how=self.how + _told(unsigned), unsigned=unsigned)


class UnprovableError(Exception):
    """Nothing about this mail can be proved; the text says why."""


@dataclass(frozen=True)
class ProvableMail:
    """Headers in their order, names in lower case, values folded as they came; and the body with CRLF lines."""

    headers: tuple[tuple[str, bytes], ...]
    body: bytes

    def values(self, name: str) -> list[str]:
        found = [value for header, value in self.headers if header == name]
        return [" ".join(value.decode("utf-8", "replace").split()) for value in found]


def read_provable(raw: bytes) -> ProvableMail:
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
    return ProvableMail(tuple((name.decode("ascii").lower(), value) for name, value in headers), body)


def domain_of_sender(mail: ProvableMail, sender: str) -> str:
    """The domain of `sender`, once it is sure that the mail names this address and no other as its sender."""
    found = mail.values("from")
    if len(found) != 1:
        raise UnprovableError("it has no From header" if not found else "it has several From headers")
    if len(found[0]) > _MOST_FROM:
        raise UnprovableError("its From header is too long")
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
        texts = [read_provable(raw).body for raw in (one, other)]
    except UnprovableError:
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
        mail = read_provable(raw)
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
            proof = Proof(proved=True, how=f"signed by {signature.domain} (DKIM)")
            return proof.leaving(left_open(mail, signed) | _blanks([signature]))
    if trouble:
        return Proof(proved=None, how=trouble)
    return Proof(proved=False, how="; ".join(dict.fromkeys(failures)))


def open_in_any(mail: ProvableMail, sender: str) -> frozenset[Open]:
    """What the one of the signatures for `sender` that covers least leaves open; which of them held, others know."""
    domain = sender.rpartition("@")[2].lower()
    found = [value for name, value in mail.headers if name == "dkim-signature"]
    readable = (_read(number, value) for number, value in enumerate(found[: 10 * _MOST_SIGNATURES]))
    own = [s for s in readable if s and speaks_for(s.domain, domain)]
    if not own:
        # The server has taken it away; whom it named nobody can tell.
        return frozenset(name for name in (Open.TO, Open.CC) if mail.values(name))
    covers = [{n.decode("ascii", "replace") for n in s.signed} for s in own]
    return left_open(mail, set.intersection(*covers)) | _blanks(own)


def covered(mail: ProvableMail, sender: str, names: Iterable[str]) -> frozenset[str]:
    """Those headers of `names` that each signature for `sender` names, as often as they stand there.

    Which of the signatures held, others know. None, where none is left that says what it covers.
    """
    domain = sender.rpartition("@")[2].lower()
    found = [value for name, value in mail.headers if name == "dkim-signature"]
    readable = (_read(number, value) for number, value in enumerate(found[: 10 * _MOST_SIGNATURES]))
    own = [
        [name.decode("ascii", "replace") for name in s.signed] for s in readable if s and speaks_for(s.domain, domain)
    ]
    return frozenset(
        name for name in names if own and all(signed.count(name) >= max(1, len(mail.values(name))) for signed in own)
    )


def _blanks(signatures: Iterable["_Signature"]) -> frozenset[Open]:
    return frozenset({Open.BLANKS} if any(signature.is_relaxed for signature in signatures) else ())


def _signatures(mail: ProvableMail, domain: str) -> list[_Signature]:
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


def check_vouched(mail: ProvableMail, *, sender_domain: str, signer: str, selector: str, beginning: str) -> None:
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


def _check_single(mail: ProvableMail) -> None:
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


def _verify(mail: ProvableMail, raw: bytes, signature: _Signature, *, received_at: datetime, lookup: Lookup) -> None:
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


def _check_cover(mail: ProvableMail, signature: _Signature, algorithms: frozenset[bytes]) -> None:
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


_HEADER = "authentication-results"
_UNSAFE = re.compile(r"[^\w.@+/-]")
_AROUND_SIGN = re.compile(r"(?:(?<! ) +)?([=.]) *")
_METHOD = re.compile(r"dkim(?:/1)?", re.IGNORECASE)


def servers_for(mailing_list: str, named: Iterable[str]) -> frozenset[str]:
    """The servers that count for the mails of one list. `named` are SERVER, for all lists, and LIST=SERVER, lower case.

    A mail of another list need not have come through a server that only one list is behind: what stands there in the
    server's name, its sender can have written.
    """
    split = [name.rpartition("=") for name in named]
    return frozenset(server for taker, _, server in split if taker in {"", mailing_list.lower()})


def prove_by_results(mail: ProvableMail, *, sender: str, servers: frozenset[str]) -> Proof:
    """Whether one of `servers` (lower case) says that a signature of the domain of `sender` held when the mail came.

    The server says that it held, not what it covers: that is asked of the signature itself, as long as it is there.
    Only the topmost header of theirs counts: those below may have come with the mail. They must remove, as RFC 8601
    asks, those that claim to be their own.
    """
    domain = domain_of_sender(mail, sender)
    for value in mail.values(_HEADER):
        try:
            server, *results = _plain(value).split(";")
        except ValueError:
            # It cannot be told whose it is; a forged one may hide the true one so, and wins nothing by it.
            continue
        name = (server.split() or [""])[0].lower()
        if name in servers:
            return _judged(mail, name, results, domain)
    return Proof(proved=False, how="")


def _judged(mail: ProvableMail, server: str, results: list[str], domain: str) -> Proof:
    said = []
    for result in results:
        words = [word.partition("=") for word in _AROUND_SIGN.sub(r"\1", result).split()]
        if not words or not _METHOD.fullmatch(words[0][0]):
            continue
        verdict = words[0][2].lower()
        properties = {name.lower(): value for name, _sign, value in words[1:]}
        signer = _signer(properties)
        doubt = ""
        if verdict == "pass" and speaks_for(signer, domain):
            doubt = _doubt(mail, properties, domain)
            if not doubt:
                return Proof(proved=True, how=f"signed by {signer} (DKIM), {server} says")
        said.append(f"dkim={verdict} of {signer or 'an unnamed domain'}{doubt}")
    return Proof(proved=False, how=f"{server} says {', '.join(said[:5]) or 'nothing of DKIM'}")


def _doubt(mail: ProvableMail, properties: dict[str, str], domain: str) -> str:
    try:
        check_vouched(
            mail,
            sender_domain=domain,
            signer=properties.get("header.d", "").lower(),
            selector=properties.get("header.s", "").lower(),
            beginning=properties.get("header.b", ""),
        )
    except UnprovableError as error:
        return f" ({error})"
    return ""


def _signer(properties: dict[str, str]) -> str:
    return (properties.get("header.d") or properties.get("header.i", "").rpartition("@")[2]).lower()


def _plain(value: str) -> str:
    """Without comments, which may hold comments, and with what is quoted as one word. ValueError if it never ends."""
    kept: list[str] = []
    depth, quoted, position = 0, False, 0
    while position < len(value):
        sign = value[position]
        if sign == "\\" and (quoted or depth):
            position += 1
        elif quoted:
            quoted = sign != '"'
            if quoted:
                kept.append(_UNSAFE.sub("_", sign))
        elif sign == "(":
            depth += 1
        elif sign == ")" and depth:
            depth -= 1
            kept.append(" ")
        elif not depth and sign == '"':
            quoted = True
        elif not depth:
            kept.append(sign)
        position += 1
    if depth or quoted:
        raise ValueError("a comment or quotation that does not end")
    return "".join(kept)
