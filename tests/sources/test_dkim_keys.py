"""Keys from a real name server on this host."""

import socket
import threading
import time
from collections.abc import Iterator

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from pytest_django.fixtures import Settings

from server.sources.trust import dkim_keys
from server.sources.trust.dkim_keys import DnsTroubleError, look_up_key, remembering
from tests.sources.signing import PUBLIC, RECORD

_TEXTS = {
    "good._domainkey.example.org.": [f'"v=DKIM1; k=rsa; p={PUBLIC[:90]}" "{PUBLIC[90:]}"'],
    "several._domainkey.example.org.": ['"v=spf1 -all"', '"p=AAAA"'],
    "long._domainkey.example.org.": [" ".join(f'"p={"A" * 250}"' for _ in range(8))],
}


def answer(question: bytes) -> bytes | None:
    query = dns.message.from_wire(question)
    reply = dns.message.make_response(query)
    name = query.question[0].name.to_text()
    if name.startswith("silent"):
        return None
    if name.startswith("broken"):
        reply.set_rcode(dns.rcode.SERVFAIL)
    elif name in _TEXTS:
        reply.answer.append(dns.rrset.from_text(name, 60, "IN", "TXT", *_TEXTS[name]))
    elif not name.startswith("empty"):
        reply.set_rcode(dns.rcode.NXDOMAIN)
    return reply.to_wire()


@pytest.fixture(autouse=True)
def server(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dkim_keys, "_SECONDS", 0.3)
    monkeypatch.setattr(dkim_keys, "_silent", {})
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        settings.DNS_SERVERS = [f"127.0.0.1:{own.getsockname()[1]}"]

        def serve() -> None:
            while (packet := own.recvfrom(4096))[0] != b"end":
                if reply := answer(packet[0]):
                    own.sendto(reply, packet[1])

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        own.sendto(b"end", own.getsockname())
        thread.join()


@pytest.mark.parametrize(
    ("selector", "key"),
    [("good", RECORD), ("several", b"p=AAAA"), ("long", None), ("empty", None), ("none", None), ("a..b", None)],
)
def test_name_server_is_asked_for_the_key(selector: str, key: bytes | None) -> None:
    assert look_up_key(f"{selector}._domainkey.example.org") == key


@pytest.mark.parametrize("selector", ["silent", "broken"])
def test_server_without_an_answer_is_trouble_and_not_asked_twice(selector: str) -> None:
    asked: list[str] = []

    def lookup(name: str) -> bytes | None:
        asked.append(name)
        return look_up_key(name)

    patient = remembering(lookup)
    for _ in range(3):
        with pytest.raises(DnsTroubleError, match="no answer from the name servers"):
            patient(f"{selector}._domainkey.example.org")
    assert len(asked) == 1


def test_domain_whose_servers_fell_silent_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mail costs its sender nothing; each wait for a name server costs a worker seconds."""
    with pytest.raises(DnsTroubleError):
        look_up_key("silent._domainkey.example.org")
    with pytest.raises(DnsTroubleError):
        look_up_key("good._domainkey.example.org")
    assert look_up_key("good._domainkey.example.com") is None
    monkeypatch.setattr(dkim_keys, "_SILENT_SECONDS", 0.0)
    dkim_keys._silent.clear()
    with pytest.raises(DnsTroubleError):
        look_up_key("silent._domainkey.example.org")
    assert look_up_key("good._domainkey.example.org") == RECORD


def test_servers_that_answer_late_are_waited_for_so_long_in_all() -> None:
    """Each mail names its own selectors, and each answer may take just less than a silence."""
    asked: list[str] = []

    def late(name: str) -> bytes | None:
        asked.append(name)
        time.sleep(0.06)
        return RECORD

    patient = remembering(late, seconds=0.1)
    assert [patient(f"{n}._domainkey.example.org") for n in range(2)] == [RECORD, RECORD]
    with pytest.raises(DnsTroubleError, match="took more than 0 s in all"):
        patient("2._domainkey.example.com")
    assert patient("0._domainkey.example.org") == RECORD
    assert len(asked) == 2


def test_only_the_last_silent_domains_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dkim_keys, "_SECONDS", 0.01)
    monkeypatch.setattr(dkim_keys, "_MOST_SILENT", 2)
    for domain in ("a.org", "b.org", "a.org", "c.org", "a.org"):
        with pytest.raises(DnsTroubleError):
            look_up_key(f"silent._domainkey.{domain}")
    assert list(dkim_keys._silent) == ["c.org", "a.org"]
