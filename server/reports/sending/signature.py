"""DKIM: the site's own keys, the signature of a mail, and whether DNS tells the same keys."""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parseaddr
from pathlib import Path
from typing import Any

import dkim
from django.conf import settings
from django.core.checks import CheckMessage, Warning, register  # noqa: A004 (Django's name)
from dkim.crypto import UnparsableKeyError, parse_pem_private_key, parse_public_key

from server.core.errors import DomainError
from server.sources.trust.dkim_keys import DnsTroubleError, Lookup, look_up_key

# What a receiver must not see changed. Lists put their own List-Id in, so ours is none of it.
_SIGNED = (
    *("from", "to", "cc", "subject", "date", "message-id", "in-reply-to", "references", "reply-to"),
    *("mime-version", "content-type", "content-transfer-encoding", "auto-submitted"),
)
_RSA, _ED25519 = "rsa", "ed25519"
_FEWEST_BITS = 2048
_SEED = 32
# PKCS #8 of an Ed25519 key: all that stands before the seed.
_PKCS8_ED25519 = bytes.fromhex("302e020100300506032b657004220420")
_OID_RSA = bytes.fromhex("300d06092a864886f70d0101010500")
_PEM = re.compile(rb"-----BEGIN ([A-Z ]+)-----\s+(.*?)-----END \1-----", re.DOTALL)
_LABEL = re.compile(r"[a-z0-9]([a-z0-9.-]{0,120}[a-z0-9])?", re.IGNORECASE)
_OTHERS_READ = 0o004


@dataclass(frozen=True)
class SigningKey:
    """`secret` is as dkimpy takes it, `public` as DNS tells it after p=."""

    selector: str
    domain: str
    kind: str
    secret: bytes
    public: str

    @property
    def name(self) -> str:
        return f"{self.selector}._domainkey.{self.domain}"

    @property
    def record(self) -> str:
        """What belongs into DNS as a TXT record."""
        return f"v=DKIM1; k={self.kind}; p={self.public}"


class _Dated(dkim.DKIM):  # type: ignore[misc] # dkimpy has no types
    """Signs as of the date of the mail, so that every try to send it gives the same bytes."""

    when = b""

    def gen_header(self, fields: Any, *arguments: Any, **options: Any) -> Any:
        dated = [(name, self.when if name == b"t" else value) for name, value in fields]
        return super().gen_header(dated, *arguments, **options)


def sign(raw: bytes, when: datetime) -> bytes:
    """The mail with a signature of each configured key; as it is where there is none.

    DomainError `no-signature`, a temporary one, where a key cannot be used: a mail does not leave unsigned by mistake.
    """
    return b"".join(_signature(raw, key, when) for key in signing_keys()) + raw


def _signature(raw: bytes, key: SigningKey, when: datetime) -> bytes:
    mail = _Dated(raw, signature_algorithm=f"{key.kind}-sha256".encode())
    mail.when = str(int(when.timestamp())).encode()
    there = {name.decode("ascii").lower() for name, _value in mail.headers}
    # From once more than it is there: nobody can add a second one.
    names = [name.encode() for name in _SIGNED if name in there] + [b"from"]
    line = mail.sign(key.selector.encode(), key.domain.encode(), key.secret, include_headers=names)
    return bytes(line).replace(b"\r\n", b"\n")


def signing_keys() -> list[SigningKey]:
    """Those of TIDEMARK_DKIM_KEYS. DomainError `no-signature`, which names what is wrong."""
    return [_read(entry) for entry in settings.DKIM_KEYS]


def signing_domain() -> str:
    own = parseaddr(settings.MAIL_FROM)[1].rpartition("@")[2].lower()
    return settings.DKIM_DOMAIN.lower() or own


def _read(entry: str) -> SigningKey:
    selector, equals, name = entry.partition("=")
    if not equals or not name or not _LABEL.fullmatch(selector):
        raise _unusable(f"{entry!r} is not SELECTOR=FILE")
    path = Path(name)
    try:
        if path.stat().st_mode & _OTHERS_READ:
            raise _unusable(f"{path} can be read by every user of this host: chmod o-r, and make a new key")
        kind, secret, public = _parsed(path.read_bytes())
    except OSError as error:
        raise _unusable(f"{path}: {error.strerror or error}") from error
    except (UnparsableKeyError, ValueError, LookupError) as error:
        raise _unusable(f"{path}: {error}") from error
    return SigningKey(selector, signing_domain(), kind, secret, public)


def _unusable(why: str) -> DomainError:
    return DomainError("no-signature", f"TIDEMARK_DKIM_KEYS: {why}", permanent=False)


def _parsed(content: bytes) -> tuple[str, bytes, str]:
    """Kind, secret and public half of a private key: PEM of RSA or Ed25519, or the 32 bytes of Ed25519 in base64."""
    found = _PEM.search(content)
    if found and b"PRIVATE KEY" not in found[1]:
        raise ValueError(f"holds a {found[1].decode().lower()}, not a private key")
    der = base64.b64decode(found[2]) if found else b""
    if found and not der.startswith(_PKCS8_ED25519):
        return _RSA, content, _public_rsa(content)
    try:
        seed = der[len(_PKCS8_ED25519) :] if found else base64.b64decode(content.strip(), validate=True)
    except binascii.Error as error:
        raise ValueError("is neither PEM nor an Ed25519 key in base64") from error
    if len(seed) != _SEED:
        raise ValueError("is neither PEM nor an Ed25519 key in base64")
    from nacl.signing import SigningKey as Nacl  # noqa: PLC0415 (only sites with such a key load it)

    return _ED25519, base64.b64encode(seed), base64.b64encode(bytes(Nacl(seed).verify_key)).decode("ascii")


def _public_rsa(pem: bytes) -> str:
    key = parse_pem_private_key(pem)
    modulus = key["modulus"]
    if modulus.bit_length() < _FEWEST_BITS:
        raise ValueError(f"an RSA key of {modulus.bit_length()} bits: receivers want {_FEWEST_BITS}")
    inner = _der(0x30, _number(modulus) + _number(key["publicExponent"]))
    return base64.b64encode(_der(0x30, _OID_RSA + _der(0x03, b"\0" + inner))).decode("ascii")


def _number(value: int) -> bytes:
    # One bit more than it has: the first one is the sign.
    return _der(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:  # noqa: PLR2004 (the longest that one byte tells)
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def told_by_dns(key: SigningKey, lookup: Lookup | None = None) -> str:
    """What is wrong with the key's record in DNS; empty when it tells this very key."""
    try:
        record = (lookup or look_up_key)(key.name)
    except DnsTroubleError as error:
        return str(error)
    if record is None:
        return f"there is no TXT record {key.name}"
    tags = dict(part.strip().partition(b"=")[::2] for part in record.split(b";") if b"=" in part)
    tags = {name.strip(): b"".join(value.split()) for name, value in tags.items()}
    if not tags.get(b"p"):
        return f"{key.name} says that the key was revoked"
    if tags.get(b"k", b"rsa").decode("ascii", "replace").lower() != key.kind:
        return f"{key.name} tells a key of another kind than the file"
    return "" if _same(key, tags[b"p"]) else f"{key.name} tells another key than the file"


def _same(key: SigningKey, told: bytes) -> bool:
    try:
        theirs, ours = base64.b64decode(told), base64.b64decode(key.public)
        return theirs == ours or (key.kind == _RSA and bool(parse_public_key(theirs) == parse_public_key(ours)))
    except (UnparsableKeyError, ValueError):
        return False


@register
def check_keys(**_options: Any) -> Sequence[CheckMessage]:
    """What can be told without the network; `manage.py dkim` asks DNS, too."""
    return list(_problems())


def _problems() -> Iterator[CheckMessage]:
    try:
        keys = signing_keys()
    except DomainError as error:
        yield Warning(error.message, hint="No mail leaves before it is put right.", id="reports.W001")
        return
    own = parseaddr(settings.MAIL_FROM)[1].rpartition("@")[2].lower()
    for domain in {key.domain for key in keys}:
        if own != domain and not own.endswith(f".{domain}"):
            yield Warning(
                f"TIDEMARK_DKIM_DOMAIN {domain} is not the domain of TIDEMARK_MAIL_FROM, nor one above it",
                hint="Receivers take the mails for unsigned (DMARC).",
                id="reports.W002",
            )
