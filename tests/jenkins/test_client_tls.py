"""A controller behind TLS: certificates are checked, and time is bounded below TLS as well."""

import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from server.lab.dispatch.jenkins.client import JenkinsClient
from server.lab.dispatch.jenkins.http import Wire
from server.lab.dispatch.jenkins.values import Unreachable
from tests.jenkins.odd_server import Talk, json_answer, odd_server, says, trickles

EMPTY = json_answer('{"items": []}')


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of 127.0.0.1, its key beside it."""
    folder = tmp_path_factory.mktemp("tls")
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-days", "2", "-subj", "/CN=jenkins", "-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "ca.pem")]
    subprocess.run(words, check=True, capture_output=True)
    return folder / "ca.pem"


def behind_tls(certificate: Path, talk: Talk) -> Talk:
    """Speaks TLS first; the request is read by this talk, since what came before it was the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))

    def speak(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(65536)
            talk(wrapped)

    return speak


@contextmanager
def client_of(url: str, folder: Path, ca_file: Path | None, seconds: float = 5.0) -> Iterator[JenkinsClient]:
    token = folder / "token"
    token.write_text("secret")
    client = JenkinsClient(Wire(url.replace("http:", "https:"), "dispatcher", token, ca_file, seconds))
    try:
        yield client
    finally:
        client.close()


def test_a_certificate_of_the_operator_s_own_is_trusted_when_it_is_named(certificate: Path, tmp_path: Path) -> None:
    talk = behind_tls(certificate, says(EMPTY))
    with odd_server(talk, at_once=True) as server, client_of(server.url, tmp_path, certificate) as client:
        assert client.queue() == []


def test_an_unknown_certificate_ends_it_before_the_token_is_sent(certificate: Path, tmp_path: Path) -> None:
    talk = behind_tls(certificate, says(EMPTY))
    with odd_server(talk, at_once=True) as server, client_of(server.url, tmp_path, None) as client:
        with pytest.raises(Unreachable, match=r"(?i)certificate") as caught:
            client.queue()
        assert not caught.value.maybe_done


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with client_of("https://127.0.0.1:1", tmp_path, tmp_path / "nothing-here") as client:
        with pytest.raises(Unreachable, match="nothing-here") as caught:
            client.queue()
        assert not caught.value.maybe_done


# A TLS record that is announced, and comes byte by byte.
HANDSHAKE = b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc" + bytes(1000)


@pytest.mark.parametrize("below", [True, False], ids=["the answer", "the handshake"])
def test_slowness_below_tls_is_ended_in_time(below: bool, certificate: Path, tmp_path: Path) -> None:
    talk = behind_tls(certificate, trickles(EMPTY, 0.05)) if below else trickles(HANDSHAKE, 0.05)
    started = time.monotonic()
    with odd_server(talk, at_once=True) as server, client_of(server.url, tmp_path, certificate, 0.5) as client:
        with pytest.raises(Unreachable):
            client.queue()
        assert time.monotonic() - started < 3
