"""Real signatures made by dkimpy, and what an attacker could make of signed mails."""

import re
import time
from datetime import UTC, datetime, timedelta

import pytest

from server.sources.models import Open
from server.sources.trust.dkim_keys import DnsTroubleError
from server.sources.trust.proofs import Proof, prove_by_dkim
from tests.sources.posting import DIFF, mail
from tests.sources.signing import RECORD, Names, sign

NOW = datetime.now(UTC)
PATCH = mail("[PATCH] mm: Clear pages", DIFF)


def prove(
    raw: bytes, names: Names | None = None, *, sender: str = "ada@example.org", received_at: datetime = NOW
) -> Proof:
    return prove_by_dkim(raw, sender=sender, received_at=received_at, lookup=names or Names("example.org"))


@pytest.mark.parametrize("body", [b"simple", b"relaxed"])
@pytest.mark.parametrize("headers", [b"simple", b"relaxed"])
def test_signature_of_the_sender_s_domain_proves_the_mail(headers: bytes, body: bytes) -> None:
    proof = prove(sign(PATCH, canonicalize=(headers, body)))
    open_blanks = "; its blanks are not signed" if body == b"relaxed" else ""
    unsigned = frozenset({Open.BLANKS} if body == b"relaxed" else ())
    assert proof == Proof(proved=True, how=f"signed by example.org (DKIM){open_blanks}", unsigned=unsigned)


@pytest.mark.parametrize(
    ("change", "signed", "unsigned", "how"),
    [
        (b"", ("from", "subject", "to"), [], ""),
        (b"", ("from", "subject"), [Open.TO], "; its To is not signed"),
        (b"Cc: victim@example.org\n", ("from", "subject", "to"), [Open.CC], "; its Cc is not signed"),
        (b"To: victim@example.org\n", ("from", "subject", "to"), [Open.TO], "; its To is not signed"),
    ],
)
def test_proof_tells_which_recipients_others_may_have_chosen(
    change: bytes, signed: tuple[str, ...], unsigned: list[Open], how: str
) -> None:
    proof = prove(change + sign(PATCH, headers=signed))
    assert proof == Proof(proved=True, how=f"signed by example.org (DKIM){how}", unsigned=frozenset(unsigned))


def test_lines_may_end_either_way() -> None:
    assert prove(sign(PATCH).replace(b"\n", b"\r\n")).proved


def test_domain_above_the_sender_s_may_sign_for_it() -> None:
    raw = sign(mail("[PATCH] x", DIFF, sender="ada@mm.example.org"))
    assert prove(raw, sender="ada@mm.example.org").proved


@pytest.mark.parametrize("domain", ["evil.example", "mm.example.org", "xample.org", "org"])
def test_other_domains_may_not(domain: str) -> None:
    names = Names(domain)
    proof = prove(sign(PATCH, domain), names)
    assert not proof.proved
    assert names.asked == [], "nobody's name server is asked for a signature that proves nothing"
    assert proof.how == f"signed by {domain} only, not by example.org"


def test_second_signature_counts_when_the_first_is_another_s() -> None:
    assert prove(sign(sign(PATCH), "lists.example.net"), Names("example.org", "lists.example.net")).proved


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((b"A large tree.", b"An evil tree."), "the text was changed"),
        ((b"Subject: [PATCH]", b"Subject: [list] [PATCH]"), "signed headers were changed"),
        ((b"From: Ada Author", b"From: Eve Author"), "signed headers were changed"),
        ((b"2.39.5\n", b"2.39.5\n_____\nlist footer\n"), "the text was changed"),
        ((b" s=s1;", b" s=s2;"), "no such key"),
        ((b"Subject:", b"From: Eve <eve@example.org>\nSubject:"), "several From headers"),
        ((b"Subject:", b"Subject: [PATCH 1/2] x\nSubject:"), "several Subject headers"),
        ((b"Subject:", b"X-A: a\r\rdiff --git\nSubject:"), "read in two ways"),
        ((b"Subject:", b"X-A: a\n \nSubject:"), "read in two ways"),
        ((b"Subject:", b":X: a\nSubject:"), "read in two ways"),
        ((b"Subject:", b"no header at all\nSubject:"), "cannot be read"),
        ((b"Subject:", b"Content-Type: multipart/mixed; boundary=-\nSubject:"), "does not cover Content-Type"),
        ((b"Subject:", b"Content-Type: text/plain; charset=utf-7\nSubject:"), "does not cover Content-Type"),
        ((b"Subject:", b"Content-Transfer-Encoding: base64\nSubject:"), "does not cover Content-Transfer-Encoding"),
        ((b"a=rsa-sha256", b"a=rsa-sha1"), "too weak"),
        ((b" v=1;", b" v=1; x=12;"), "expired on arrival"),
        ((b" q=dns/txt;", b" q=dns/txt; l=0;"), "only a part"),
    ],
)
def test_changed_mail_is_not_proved(change: tuple[bytes, bytes], reason: str) -> None:
    raw = sign(PATCH)
    assert change[0] in raw
    proof = prove(raw.replace(*change, 1))
    assert not proof.proved
    assert reason in proof.how


@pytest.mark.parametrize("header", ["subject", "message-id"])
def test_subject_or_message_id_must_be_signed(header: str) -> None:
    assert prove(sign(PATCH, headers=["from", header])).proved


def test_plain_text_need_not_be_signed_as_such() -> None:
    headers = b"Content-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\nSubject:"
    assert prove(sign(PATCH).replace(b"Subject:", headers, 1)).proved


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (PATCH, "not signed"),
        (sign(PATCH, length=True), "only a part"),
        (sign(PATCH, headers=["from", "to"]), "neither Subject nor Message-ID"),
        (b"DKIM-Signature: v=1; a=b\n" + PATCH, "malformed"),
        (b"DKIM-Signature: %s\n" % (b"x" * 5000) + PATCH, "malformed"),
        (PATCH + b"x" * 5_000_000, "too large"),
        (b"X: " + b"y" * 300_000 + b"\n" + PATCH, "too long"),
        (b"X: y\n" * 4000 + PATCH, "too long"),
        (b"", "no From header"),
        (b" \n", "cannot be read"),
    ],
)
def test_unsigned_or_odd_mail_is_not_proved(raw: bytes, reason: str) -> None:
    proof = prove(raw)
    assert not proof.proved
    assert reason in proof.how


@pytest.mark.parametrize(
    "sender",
    [
        "ada@example.org, eve@example.org",
        '"ada@example.org" <eve@example.org>',
        "ada@example.org <eve@example.org>",
        "eve+ada@example.org",
    ],
)
def test_from_header_that_names_others_proves_nobody(sender: str) -> None:
    assert not prove(sign(mail("[PATCH] x", DIFF, sender=sender))).proved


def test_expiry_is_judged_at_the_arrival() -> None:
    raw = sign(PATCH)
    signed_at = int(re.findall(rb"t=(\d+)", raw)[0])
    assert abs(signed_at - time.time()) < 60
    proof = prove(raw, received_at=NOW - timedelta(days=2))
    assert proof.how.endswith("it is from the future")
    assert prove(raw, received_at=NOW + timedelta(days=3000)).proved


def test_name_servers_that_do_not_answer_leave_it_open() -> None:
    def silent(name: str) -> bytes | None:
        raise DnsTroubleError(f"no answer for {name}")

    proof = prove_by_dkim(sign(PATCH), sender="ada@example.org", received_at=NOW, lookup=silent)
    assert proof == Proof(proved=None, how="no answer for s1._domainkey.example.org")


@pytest.mark.parametrize("record", [b"", b"p=", b"v=DKIM1; p=AAAA", b"v=DKIM2; p=AAAA", b"k=ed25519; p=AA==", b"\xff"])
def test_key_that_is_none_proves_nothing(record: bytes) -> None:
    assert prove(sign(PATCH), Names("example.org", record=record)).proved is False


def test_key_of_another_proves_nothing() -> None:
    other = RECORD.replace(b"p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQ", b"p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgR", 1)
    assert prove(sign(PATCH), Names("example.org", record=other)).proved is False


def test_only_some_signatures_are_tried() -> None:
    raw = PATCH
    for _ in range(12):
        raw = sign(raw)
    names = Names()
    assert not prove(raw, names).proved
    assert len(names.asked) == 5


@pytest.mark.parametrize("filling", [b" ", b"\t", b"\r", b"= ", b"b=", b"\n"])
def test_long_runs_cost_no_time(filling: bytes) -> None:
    raw = sign(PATCH, canonicalize=(b"relaxed", b"relaxed")) + filling * 500_000
    began = time.process_time()
    prove(raw)
    assert time.process_time() - began < 5, "a quadratic search would take minutes"
