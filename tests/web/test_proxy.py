"""nginx as docs/operations/proxy.md has it, in front of a real web process."""

import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from tests.builders import build_builder
from tests.web.conftest import ROOT, STANDSTILL, Web

pytestmark = pytest.mark.real(minutes=1)
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin") or "nginx"
CLIENTS = 40


@dataclass(frozen=True)
class Site:
    port: int

    @property
    def client(self) -> httpx2.Client:
        headers = {"Host": "tidemark.example"}
        base = f"https://127.0.0.1:{self.port}"
        return httpx2.Client(base_url=base, headers=headers, timeout=STANDSTILL, verify=False)

    def connect(self) -> socket.socket:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), timeout=STANDSTILL))


@pytest.fixture
def site(start_web: Callable[..., Web], tmp_path: Path) -> Iterator[Site]:
    web = start_web(TIDEMARK_BEHIND_TLS="1", TIDEMARK_ALLOWED_HOSTS="tidemark.example,127.0.0.1")
    plain, port = free_port(), free_port()
    block = re.search(r"```nginx\n(.*?)```", (ROOT / "docs/operations/proxy.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    words = {
        "127.0.0.1:8000": f"127.0.0.1:{web.port}",
        "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "/etc/ssl/certs/tidemark.pem": str(tmp_path / "cert"),
        "/etc/ssl/private/tidemark.key": str(tmp_path / "key"),
    }
    text = block[1]
    for written, ours in words.items():
        assert written in text
        text = text.replace(written, ours)
    certify(tmp_path)
    paths = "".join(
        f"{name}_temp_path {tmp_path}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(
        f"daemon off; master_process off; pid {tmp_path}/pid; error_log {tmp_path}/errors; "
        f"worker_rlimit_nofile 4096; events {{ worker_connections 1024; }}\n"
        f"http {{ access_log off; {paths}\n{text}}}\n",
        encoding="utf-8",
    )
    with subprocess.Popen([NGINX, "-p", str(tmp_path), "-c", str(configuration)]) as process:
        try:
            wait_for(port, process)
            yield Site(port)
        finally:
            process.terminate()


def test_documented_proxy_passes_what_it_should_and_holds_back_the_rest(site: Site) -> None:
    builder = build_builder(name="behind")
    secret = issue_token(name="b", scope=ApiToken.Scope.BUILDER, subject=builder.name)
    with site.client as client:
        home = client.get("/")
        assert (home.status_code, home.headers["Strict-Transport-Security"]) == (200, "max-age=31536000")
        assert client.get("/healthz").status_code == 404
        assert client.post("/admin/login/", content=b"x" * 2_000_000).status_code == 413
        large = b'{"agent": "' + b"x" * 3_000_000 + b'"}'
        kind = {"Content-Type": "application/json"}
        told = client.post("/api/v1/agent/hello", content=large, headers={**kind, "Authorization": f"Bearer {secret}"})
        assert (told.status_code, told.json()["code"]) == (400, "invalid")
        assert client.post("/api/v1/agent/hello", content=large, headers=kind).status_code == 401
        # Both addresses of the sign-in count together.
        logins = [client.get(path).status_code for _ in range(10) for path in ("/login/", "/admin/login/")]
        assert (logins[0], logins[-1]) == (200, 429)


@pytest.mark.parametrize("path", ["/admin/login/", "/api/v1/agent/hello"])
def test_slow_clients_of_the_proxy_keep_nobody_waiting(site: Site, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: tidemark.example\r\nContent-Length: 900000\r\n\r\nx"
    with ExitStack() as stack:
        for _ in range(CLIENTS):
            stack.enter_context(site.connect()).sendall(head.encode())
        with site.client as client:
            assert client.get("/").status_code == 200


def test_head_that_does_not_end_loses_its_connection_at_the_proxy(site: Site) -> None:
    with site.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        with suppress(ConnectionResetError):
            assert client.recv(1) in {b"", b"H"}


def certify(folder: Path) -> None:
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tidemark.example"]
    words += ["-keyout", str(folder / "key"), "-out", str(folder / "cert")]
    subprocess.run(words, check=True, capture_output=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
