"""What a signature proves is what the service reads: no change of a proved mail changes its sender or its patch."""

import random
from datetime import UTC, datetime

from server.sources.mail.parser import ParsedMail, parse_mail
from server.sources.trust.proofs import prove_by_dkim
from tests.sources.posting import DIFF, mail
from tests.sources.signing import Names, sign

NOW = datetime.now(UTC)
_MUTATIONS = 3000
_PIECES = (
    *(b"\r", b"\n", b"\r\n\r\n", b"\n\n", b"\x0c", b"\x1c", b"\x85", b"\xe2\x80\xa8", b" ", b"\t", b":", b"\x00"),
    *(b"From ", b"From: eve@example.org\n", b"\nFrom: eve@example.org", b"Subject: x\n", b"X: y\n", b"\n \n"),
    *(b'Content-Type: multipart/mixed; boundary="---"\n', b"Content-Type: text/plain; charset=utf-8\n"),
    *(b"Content-Transfer-Encoding: base64\n", b"MIME-Version: 1.0\n", b"X: a\x85\x85diff --git a/x b/x\n"),
    *(b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", b"Content-Disposition: attachment; filename=x.patch\n"),
)


def mutated(raw: bytes, chance: random.Random) -> bytes:
    changed = bytearray(raw)
    head = changed.find(b"\n\n")
    for _ in range(chance.choice((1, 1, 2, 3))):
        line = changed.rfind(b"\n", 0, chance.randrange(1, head)) + 1
        place = chance.choice((chance.randrange(len(changed)), chance.randrange(head), line, 0))
        kind = chance.random()
        if kind < 0.6:
            changed[place:place] = chance.choice(_PIECES)
        elif kind < 0.8:
            del changed[place : place + chance.randrange(1, 6)]
        else:
            changed[place] = chance.randrange(256)
    return bytes(changed)


def read(raw: bytes) -> ParsedMail:
    return parse_mail(raw, blob="0" * 40, received_at=NOW)


def essence(mail: ParsedMail) -> tuple[str, str, tuple[str, ...]]:
    """Blanks may differ: the signatures used here allow it, and so does git."""
    return mail.sender_address, "".join(mail.body.split()), tuple(mail.diff.paths)


def test_no_change_of_a_proved_mail_changes_what_is_read() -> None:
    chance = random.Random(20261122)  # noqa: S311 (the same mails in every run)
    patch = mail("[PATCH 1/2] mm: Clear pages", DIFF)
    signed = [
        sign(patch, canonicalize=(way, way), headers=headers)
        for way in (b"relaxed", b"simple")
        for headers in (("from", "to", "subject", "date", "from"), ("from", "message-id", "from"))
    ]
    proved = 0
    for _ in range(_MUTATIONS):
        raw = mutated(chance.choice(signed), chance)
        found = read(raw)
        proof = prove_by_dkim(raw, sender=found.sender_address, received_at=NOW, lookup=Names("example.org"))
        if proof.proved:
            proved += 1
            assert essence(found) == essence(read(patch)), raw
    assert proved > _MUTATIONS / 50, "too few to tell"
