"""Signing mails as a mail domain does (DKIM), and a name server that knows the keys."""

from collections.abc import Sequence

import dkim

from server.core import clock
from server.sources.models import Patch, Series
from server.sources.trust.dkim_keys import DnsTroubleError
from tests.builders import build_list, build_message
from tests.sources.posting import DIFF, mail

SELECTOR = "s1"
# Made for these tests; nothing else was ever signed with it.
_KEY = b"""-----BEGIN RSA PRIVATE KEY-----
MIICXAIBAAKBgQDJtb7Rue8TEOcyJvT5rhZc6ckCFOONI0S5Gv3Q/6By4m6FZakl
bfKgaxPbglGudQA3o7bczLJAmsI9o8jAKhluksd/tV0/XL/EUOnmEuCNJZX6gKdN
mF4U8HRP+RpEvuWEFBO38MxkReo3Mg4YMl6U5HHCVeDlvc64xOQgn/ffOwIDAQAB
AoGBAL/mpwpEyMzs0egG5B3+n8v5p4DResO2ABXTNhL2gCGMhvVmiIvRlHlGJfg6
fZdqPLCykrByFkwccBvQjJc19kZp+iRAvsh3rzsezSqqN8tfweMa+ndsryzLcqQ0
C+4tIO4UfHaiPzeEO7cuzanRGaVigoqsKa55iYQTIl6VukSxAkEA5ZMp0UsnS+Mz
1H98JD00ksgZDk0HC2Efs6CmprXqrmhS8fPmtujnKbc0Zyo3iwBkk9JDFIMEjLF/
jGMbZivUnQJBAODtff5FHdhRJqMPDXI8rTrTtzO9eKuXN4+em2RXnVJ5SVG1erJK
D+en25JAIjAzqqCv/23SzbVr1faP6M39f7cCQF/aIPScv0yFEWfgzpFG6MN8PlHl
QVKz+4uBQPOMMu8c6bzRy/uEpLebIYsNamFkCZpaiN1wkp63oXyZCKCRHlUCQByw
TfyrhiX8G8h6eAWVFadGL7zKsuR38h9AZKOExU0qqR5h3ld1ONgcQdZCldm+DUpX
iGXSmGhGa9D6BACaD7sCQAz/ctre1oHzF+HuMOgrPHpE1Pb3hkh79GLMiizgevrC
09WOkd9JzBpDzbxfLJQRzwX5A6p/tSHBEcbglxYRo+A=
-----END RSA PRIVATE KEY-----
"""
PUBLIC = (
    "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDJtb7Rue8TEOcyJvT5rhZc6ckCFOONI0S5Gv3Q"
    "/6By4m6FZaklbfKgaxPbglGudQA3o7bczLJAmsI9o8jAKhluksd/tV0/XL/EUOnmEuCNJZX6gKdN"
    "mF4U8HRP+RpEvuWEFBO38MxkReo3Mg4YMl6U5HHCVeDlvc64xOQgn/ffOwIDAQAB"
)
RECORD = f"v=DKIM1; k=rsa; p={PUBLIC}".encode()
_HEADERS = ("from", "to", "subject", "date", "from")


class Names:
    """A look-up that knows one key for each of `domains` and remembers what it was asked."""

    def __init__(self, *domains: str, record: bytes | None = RECORD) -> None:
        self.known = {f"{SELECTOR}._domainkey.{domain}" for domain in domains}
        self.record = record
        self.asked: list[str] = []

    def __call__(self, name: str) -> bytes | None:
        self.asked.append(name)
        return self.record if name in self.known else None


def sign(
    raw: bytes,
    domain: str = "example.org",
    *,
    headers: Sequence[str] = _HEADERS,
    length: bool = False,
    canonicalize: tuple[bytes, bytes] = (b"relaxed", b"simple"),
) -> bytes:
    """The mail with a signature on top, lines ended as an archive keeps them."""
    signature = dkim.sign(
        raw,
        SELECTOR.encode(),
        domain.encode(),
        _KEY,
        include_headers=[name.encode() for name in headers],
        length=length,
        canonicalize=canonicalize,
        linesep=b"\n",
    )
    return bytes(signature).replace(b"\r\n", b"\n") + raw


def silent(name: str) -> bytes | None:
    raise DnsTroubleError(f"no answer from the name servers for {name}")


def posted(*raws: bytes, sender: str = "ada@example.org", paths: tuple[str, ...] = ("mm/memory.c",)) -> Series:
    """A held series whose patches are these mails, a cover letter in front of them where there are two and more."""
    mailing_list = build_list()
    rows = [build_message(mailing_list, raw=raw, sender_address=sender, paths=list(paths)) for raw in raws]
    cover = rows.pop(0) if len(rows) > 1 else None
    series = Series.objects.create(
        mailing_list=mailing_list,
        state=Series.State.HELD,
        reason="its senders are not checked yet",
        root_message_id=(cover or rows[0]).message_id,
        subject="mm: Clear pages",
        author_address=sender,
        total=len(rows),
        submitted_at=clock.now(),
        cover=cover,
    ).record_creation()
    for index, row in enumerate(rows, start=1):
        Patch.objects.create(series=series, index=index, message=row, subject=row.subject)
    return series


def signed(domain: str = "example.org", sender: str = "Ada Author <ada@example.org>") -> bytes:
    return sign(mail("[PATCH] mm: Clear pages", DIFF, sender=sender), domain)
