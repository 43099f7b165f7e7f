"""What other mail servers noted, in every form that RFC 8601 allows, and what strangers write instead."""

import time

import pytest

from server.sources.trust.authentication import prove_by_results
from server.sources.trust.proofs import Proof, UnprovableError, read_mail
from tests.sources.posting import DIFF, mail

SERVERS = frozenset({"mx.example.net"})


def prove(*values: str, sender: str = "Ada Author <ada@example.org>") -> Proof:
    headers = "".join(f"Authentication-Results: {value}\n" for value in values)
    raw = headers.encode() + mail("[PATCH] x", DIFF, sender=sender)
    return prove_by_results(read_mail(raw), sender="ada@example.org", servers=SERVERS)


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


def test_mail_of_two_senders_is_refused() -> None:
    with pytest.raises(UnprovableError, match="one address"):
        prove("mx.example.net; dkim=pass header.d=example.org", sender="ada@example.org, eve@evil.example")


def test_endless_comments_cost_no_time() -> None:
    began = time.process_time()
    prove("mx.example.net; " + "(" * 50_000, "mx.example.net; " + "=." * 50_000)
    assert time.process_time() - began < 2
