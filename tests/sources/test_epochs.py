"""Where epochs are found, and what a hostile archive may cost while they are looked for."""

import gzip
import json
import socket
import ssl
import subprocess
import time
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest

from server.core.errors import DomainError
from server.sources.archives import epochs
from server.sources.archives.epochs import EpochPlace, find_epochs
from tests.sources.hostile_web import Answer, content, garbage, hang, serving, trickle


def found(url: str, where: Path, known: set[int] | None = None) -> tuple[EpochPlace, ...]:
    return find_epochs(url, known=known or set(), cwd=where)


def manifest(**entries: object) -> bytes:
    return gzip.compress(json.dumps({f"/mm/git/{key[1:]}.git": value for key, value in entries.items()}).encode())


def test_manifest_tells_what_changed_and_when(tmp_path: Path) -> None:
    facts = {"fingerprint": "a" * 40, "modified": 1_793_534_400, "reference": None}
    with serving(content(manifest(e10=facts, e2={}))) as web:
        second, tenth = found(f"{web}/mm", tmp_path)
        assert second == EpochPlace(2, f"{web}/mm/git/2.git")
    assert (tenth.number, tenth.fingerprint) == (10, "a" * 40)
    assert tenth.modified == datetime.fromtimestamp(1_793_534_400, tz=UTC)


@pytest.mark.parametrize(
    "facts", [None, 7, {"fingerprint": "../x", "modified": -1}, {"fingerprint": [], "modified": 10**18}]
)
def test_odd_facts_of_a_manifest_are_left_out(tmp_path: Path, facts: object) -> None:
    with serving(content(manifest(e0=facts))) as web:
        assert found(f"{web}/mm", tmp_path) == (EpochPlace(0, f"{web}/mm/git/0.git"),)


def test_manifest_may_be_packed_once_more_by_the_server(tmp_path: Path) -> None:
    packed = gzip.compress(manifest(e0={}))
    with serving(content(packed, "Content-Encoding: gzip")) as web:
        assert len(found(f"{web}/mm", tmp_path)) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (hang, "timed out"),
        (trickle, "took longer than 1.5 s"),
        (garbage, "."),
        (content(gzip.compress(b"[" * 100_000)), "no manifest"),
        (content(gzip.compress(b"{}," * 400_000)), "more than 300000 objects and lists"),
        (content(gzip.compress(b"[]")), "list instead of an object"),
        (content(b"\x1f\x8bno gzip"), "no gzip"),
        (lambda connection: connection.sendall(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"), "HTTP 503"),
    ],
    ids=["hang", "trickle", "garbage", "deep", "many", "list", "gzip", "503"],
)
def test_hostile_archive_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, reason: str
) -> None:
    monkeypatch.setattr(epochs, "_TIMEOUT", 1.0)
    monkeypatch.setattr(epochs, "_LONGEST", 1.5)
    started = time.monotonic()
    with serving(answer) as web, pytest.raises(DomainError, match=reason) as error:
        found(f"{web}/mm", tmp_path)
    assert time.monotonic() - started < 15
    assert error.value.code == "list-unreachable"
    assert not error.value.permanent


def body_trickle(connection: socket.socket) -> None:
    """Tells no length: it is whole wherever the connection ends."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[]")
    while True:
        time.sleep(0.02)
        connection.sendall(b" ")


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's side of TLS that this process trusts."""
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-subj", "/CN=lore", "-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "ca.pem")]
    subprocess.run(words, check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ca.pem", tmp_path / "key.pem")
    return context


@pytest.mark.parametrize("answer", [trickle, body_trickle], ids=["head", "body"])
@pytest.mark.parametrize("safe", [False, True], ids=["http", "https"])
def test_trickle_is_ended_in_time_below_tls_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: ssl.SSLContext, answer: Answer, safe: bool
) -> None:
    monkeypatch.setattr(epochs, "_LONGEST", 0.5)

    def speak(connection: socket.socket) -> None:
        with tls.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(65536)
            answer(wrapped)

    started = time.monotonic()
    with serving(speak, at_once=True) if safe else serving(answer) as web:
        address = web.replace("http:", "https:") if safe else web
        with pytest.raises(DomainError, match=r"took longer than 0\.5 s"):
            found(f"{address}/mm", tmp_path)
    assert time.monotonic() - started < 3


def test_small_answer_does_not_unpack_to_any_size(tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(300 * 2**20), compresslevel=1)
    tracemalloc.start()
    with serving(content(bomb)) as web, pytest.raises(DomainError, match="larger than 8 MB"):
        found(f"{web}/mm", tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 2**20


def test_password_of_the_address_is_not_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(DomainError) as error:
        found("http://reader:secret@127.0.0.1:1/mm", tmp_path)
    assert "secret" not in error.value.message


def test_folder_may_be_the_inbox_or_its_epochs(tmp_path: Path) -> None:
    for number in (1, 0):
        (tmp_path / "git" / f"{number}.git").mkdir(parents=True)
    (tmp_path / "git" / "notes").mkdir()
    assert [place.number for place in found(str(tmp_path), tmp_path)] == [0, 1]
    assert found(f"file://{tmp_path}/git", tmp_path) == found(str(tmp_path), tmp_path)
