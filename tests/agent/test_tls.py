"""HTTPS: certificates are always checked, and one of the operator's own is trusted when it is named."""

import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from tidemark_agent.errors import InfrastructureError, UnreachableError
from tidemark_agent.reproduce.document import DocumentError, read_source
from tidemark_agent.wire.transport import build_opener

from tests.agent.fake_server import handler_for
from tests.agent.test_client import CLAIM, build_client, build_lab


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of 127.0.0.1 with its key, in one file each."""
    folder = tmp_path_factory.mktemp("tls")
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    words += ["-subj", "/CN=tidemark", "-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "ca.pem")]
    subprocess.run(words, check=True, capture_output=True)
    return folder / "ca.pem"


@contextmanager
def tls_server(certificate: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(build_lab()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    # The handshake is left to the connection's own thread: one that fails must not end the server.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def test_certificate_that_nobody_signed_is_not_trusted_and_the_way_out_is_named(certificate: Path) -> None:
    with tls_server(certificate) as server:
        with pytest.raises(UnreachableError, match=r"certificate is not trusted .* ca_file"):
            build_client(server).post(CLAIM, {}, patience=0.1)
        with pytest.raises(DocumentError, match="cannot be fetched"):
            read_source(f"{server}/x")


def test_certificate_of_the_operator_is_trusted_for_its_own_name_only(certificate: Path) -> None:
    with tls_server(certificate) as server:
        assert build_client(server, ca_file=certificate).post(CLAIM, {}, patience=5)["kind"] == "session"
        other = server.replace("127.0.0.1", "localhost")
        with pytest.raises(UnreachableError, match="certificate is not trusted"):
            build_client(other, ca_file=certificate).post(CLAIM, {}, patience=0.1)


@pytest.mark.parametrize("content", ["", "no certificate", None])
def test_file_without_certificates_is_said_at_the_start(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InfrastructureError, match=r"ca\.pem cannot be used"):
        build_opener("https://tidemark.example.org", file)
