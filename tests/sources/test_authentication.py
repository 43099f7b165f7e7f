"""What other mail servers noted, in every form that RFC 8601 allows, and what strangers write instead."""

import time

import pytest

from server.sources.trust.proofs import Proof, UnprovableError, prove_by_results, read_provable
from tests.sources.posting import DIFF, mail

SERVERS = frozenset({"mx.example.net"})


def prove(*values: str, sender: str = "Ada Author <ada@example.org>") -> Proof:
    headers = "".join(f"Authentication-Results: {value}\n" for value in values)
    raw = headers.encode() + mail("[PATCH] x", DIFF, sender=sender)
    return prove_by_results(read_provable(raw), sender="ada@example.org", servers=SERVERS)


@pytest.mark.parametrize(
    "value",
    [
        "mx.example.net; dkim=pass header.d=example.org",
        "MX.example.net 1; spf=fail; dkim=pass (2048-bit key; \\) unprotected (nested)) header.i=@example.org",
        'mx.example.net;\n dkim = pass reason = "all; is (well)" header . d = Example.Org header.b=abc',
        "mx.example.net; dkim=fail header.d=example.org; dkim=pass header.d=example.org",
        "mx.example.net; dkim/1=pass header.d=example.org",
    ],
)
def test_named_server_that_says_pass_proves_the_sender(value: str) -> None:
    assert prove(value) == Proof(proved=True, how="signed by example.org (DKIM), mx.example.net says")


@pytest.mark.parametrize(
    ("value", "how"),
    [
        ("mx.example.com; dkim=pass header.d=example.org", ""),
        ("mx.example.net.evil.example; dkim=pass header.d=example.org", ""),
        ("evil (mx.example.net; dkim=pass header.d=example.org", ""),
        ('"mx.example.net; dkim=pass header.d=example.org', ""),
        ("mx.example.net; none", "mx.example.net says nothing of DKIM"),
        ("mx.example.net", "mx.example.net says nothing of DKIM"),
        ("", ""),
        ("mx.example.net; dkim=fail header.d=example.org", "mx.example.net says dkim=fail of example.org"),
        ("mx.example.net; dkim=pass header.d=evil.example", "mx.example.net says dkim=pass of evil.example"),
        ("mx.example.net; dkim=pass", "mx.example.net says dkim=pass of an unnamed domain"),
        ("mx.example.net; x=(dkim=pass header.d=example.org)", "mx.example.net says nothing of DKIM"),
        ('mx.example.net; x="; dkim=pass header.d=example.org"', "mx.example.net says nothing of DKIM"),
        ("mx.example.net; spf=pass smtp.mailfrom=example.org", "mx.example.net says nothing of DKIM"),
    ],
)
def test_anything_else_proves_nothing(value: str, how: str) -> None:
    assert prove(value) == Proof(proved=False, how=how)


def test_only_the_topmost_header_of_the_server_counts() -> None:
    forged = "mx.example.net; dkim=pass header.d=example.org"
    assert not prove("mx.example.net; dkim=none", forged).proved
    assert prove("other.example; dkim=none", forged).proved


def signature(cover: str, *, domain: str = "example.org", selector: str = "s", value: str = "AAAA") -> str:
    return f"v=1; a=rsa-sha256; c=relaxed/relaxed; d={domain}; s={selector}; {cover}; bh=AAAA; b={value}"


WHOLE = "h=from:subject:date"
HELD = "mx.example.net; dkim=pass header.d=example.org"
SAID = "mx.example.net says dkim=pass of example.org"


def prove_signed(value: str, *signatures: str, headers: str = "") -> Proof:
    signed = "".join(f"DKIM-Signature: {one}\n" for one in signatures)
    raw = f"Authentication-Results: {value}\n{signed}{headers}".encode() + mail("[PATCH] x", DIFF)
    return prove_by_results(read_provable(raw), sender="ada@example.org", servers=SERVERS)


@pytest.mark.parametrize(
    ("signatures", "headers", "why"),
    [
        ([signature(f"{WHOLE}; l=20")], "", "it covers only a part of the text"),
        ([signature("h=from:date")], "", "it covers neither Subject nor Message-ID"),
        ([signature("h=subject:date")], "", "it does not cover From"),
        ([signature(WHOLE)], "Content-Type: text/plain; charset=utf-7\n", "it does not cover Content-Type"),
        ([signature(WHOLE)], "Subject: [PATCH] y\n", "it has several Subject headers"),
        ([], "Subject: [PATCH] y\n", "it has several Subject headers"),
        ([signature(WHOLE).replace("rsa-sha256", "rsa-sha1")], "", "its algorithm is too weak or not known"),
        # Which of them the server means is not said.
        ([signature(WHOLE), signature(f"{WHOLE}; l=0", selector="t")], "", "it covers only a part of the text"),
        ([signature(WHOLE), "v=1; d=example.org; l=0"], "", "one of its signatures is malformed"),
        ([signature(WHOLE)] * 51, "", "it has too many signatures"),
    ],
)
def test_signature_that_held_must_cover_what_counts(signatures: list[str], headers: str, why: str) -> None:
    assert prove_signed(HELD, *signatures, headers=headers) == Proof(proved=False, how=f"{SAID} ({why})")


@pytest.mark.parametrize(
    ("value", "signatures"),
    [
        (HELD, [signature(WHOLE)]),
        (HELD, [signature(WHOLE).replace("rsa-sha256", "ed25519-sha256")]),
        # Others than the one that held may cover what they like.
        (HELD, [signature(WHOLE), signature(f"{WHOLE}; l=0", domain="lists.example.net")]),
        (f"{HELD} header.s=S", [signature(WHOLE), signature(f"{WHOLE}; l=0", selector="t")]),
        (f"{HELD} header.b=Qk", [signature(WHOLE, value="Q kJD"), signature(f"{WHOLE}; l=0")]),
        (
            "mx.example.net; dkim=pass header.d=example.org header.s=t; dkim=pass header.i=ada@example.org header.s=s",
            [signature(WHOLE), signature(f"{WHOLE}; l=0", selector="t")],
        ),
        # A list has taken it away: the server's word is what there is.
        (HELD, [signature(f"{WHOLE}; l=0", domain="lists.example.net")]),
    ],
)
def test_signature_that_covers_all_proves_the_sender(value: str, signatures: list[str]) -> None:
    assert prove_signed(value, *signatures) == Proof(
        proved=True, how="signed by example.org (DKIM), mx.example.net says"
    )


def test_results_that_name_another_signature_do_not_hide_the_one_that_is_there() -> None:
    for named in ("header.s=gone", "header.b=gone"):
        assert not prove_signed(f"{HELD} {named}", signature(f"{WHOLE}; l=0")).proved


def test_mail_of_two_senders_is_refused() -> None:
    with pytest.raises(UnprovableError, match="one address"):
        prove("mx.example.net; dkim=pass header.d=example.org", sender="ada@example.org, eve@evil.example")


def test_endless_comments_cost_no_time() -> None:
    began = time.process_time()
    prove("mx.example.net; " + "(" * 50_000, "mx.example.net; " + "=." * 50_000)
    assert time.process_time() - began < 2
