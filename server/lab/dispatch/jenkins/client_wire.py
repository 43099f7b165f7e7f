"""HTTP to the controller: what a request may cost in time and bytes is fixed beforehand, and nothing is followed."""

import base64
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from server.core import clock
from server.core.watchdog import Watchdog
from server.lab.dispatch.jenkins.answers import Head
from server.lab.dispatch.jenkins.client_head import read_head
from server.lab.dispatch.jenkins.client_values import clean
from server.lab.dispatch.jenkins.errors import Garbled, TokenRefused, Unreachable

# A queue of 1100 items has 0.7 MB, 20 builds in each of 500 jobs 4 MB.
LARGEST_ANSWER = 32 * 2**20
_LARGEST_TOKEN = 4096
# What a header may hold and no shell, log or editor would have added.
_TOKEN = re.compile(r"[\x21-\x7e]+")
# Shorter than the controller keeps a silent connection (30 s): none is used in the moment it is closed there.
_KEEP_ALIVE_SECONDS = 20


@dataclass(frozen=True)
class Wire:
    """Where the controller is and as whom it is asked.

    `token_file` is read at each request. `seconds` is how long one request may take in all, name look-up excepted.
    """

    url: str
    user: str
    token_file: Path
    ca_file: Path | None = None
    seconds: float = 10.0


@dataclass(frozen=True)
class Answer:
    """An answer of any status; `cut`: it was longer than it may be, and `content` is its beginning."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    head: Head
    cut: bool = False


class Line:
    """One connection to the controller, kept alive between requests; for one thread."""

    def __init__(self, wire: Wire) -> None:
        parts = urlsplit(wire.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise Unreachable(f"TIDEMARK_JENKINS_URL: {clean(wire.url, 200)!r} is no address", maybe_done=False)
        if parts.username or parts.password:
            raise Unreachable("TIDEMARK_JENKINS_URL: names and secrets do not belong into it", maybe_done=False)
        self.wire = wire
        self._watchdog = Watchdog(wire.seconds)
        self._client: httpx2.Client | None = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        self._watchdog.forget()

    def send(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        content: bytes = b"",
        content_type: str = "",
        largest: int = LARGEST_ANSWER,
    ) -> Answer:
        """One request; `path` and `query` are quoted already. Raises Unreachable, Garbled or TokenRefused."""
        headers = {"Authorization": self._authorization(), "Accept-Encoding": "identity", "User-Agent": "Tidemark"}
        if content_type:
            headers["Content-Type"] = content_type
        url = f"{self.wire.url}{path}{'?' if query else ''}{query}"
        # Raised outside of `except`: the library's errors hold the request with its header, and must not be chained.
        client = self._connected()
        trouble: Unreachable
        try:
            with self._watchdog.on_guard():
                request = client.build_request(method, url, headers=headers, content=content or None)
                request.extensions["trace"] = self._watchdog
                answer = self._answer(client.send(request, stream=True), largest)
            if not self._watchdog.words():
                return answer
            # One that tells no length looks whole where it was ended.
            trouble = Unreachable(self._watchdog.words())
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            trouble = Unreachable(self._watchdog.words() or _words(error), maybe_done=False)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
            trouble = Unreachable(self._watchdog.words() or _words(error))
        self.close()
        raise trouble

    def _connected(self) -> httpx2.Client:
        if self._client is None:
            self._client = httpx2.Client(
                # A proxy or a netrc of the environment must not learn the token.
                trust_env=False,
                follow_redirects=False,
                timeout=self.wire.seconds,
                verify=_tls(self.wire),
                limits=httpx2.Limits(max_connections=1, keepalive_expiry=_KEEP_ALIVE_SECONDS),
                # A session's cookie would only tie requests together that have nothing to do with each other.
                cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
            )
        return self._client

    def _answer(self, response: httpx2.Response, largest: int) -> Answer:
        with _closing(response):
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                coding = clean(response.headers["Content-Encoding"], 40)
                raise Garbled(f"{response.url.path}: answers in the coding {coding!r}, not asked for")
            content = bytearray()
            for part in response.iter_raw():
                content += part
                if len(content) > largest:
                    break
            cut = len(content) > largest
            if cut:
                self.close()
            head = read_head(response.headers, clock.now())
            return Answer(response.status_code, response.headers, bytes(content[:largest]), head, cut=cut)

    def _authorization(self) -> str:
        """The header with the token as its file holds it now; messages name the file, never what is in it."""
        path = self.wire.token_file
        reason = ""
        try:
            with path.open("rb") as file:
                token = file.read(_LARGEST_TOKEN + 1).decode("ascii").strip()
        except OSError as error:
            reason = error.strerror or type(error).__name__
        except UnicodeDecodeError:
            reason = "it holds other signs than a token has"
        else:
            if _TOKEN.fullmatch(token) and len(token) <= _LARGEST_TOKEN:
                pair = f"{self.wire.user}:{token}".encode()
                return f"Basic {base64.b64encode(pair).decode('ascii')}"
            reason = "it holds no token"
        raise TokenRefused(f"the token file {path} cannot be used: {reason}")


def _tls(wire: Wire) -> ssl.SSLContext:
    if not wire.url.startswith("https:"):
        # Not used; one that trusts nobody is made at once, and the system's list of authorities is long.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return ssl.create_default_context(cafile=str(wire.ca_file) if wire.ca_file else None)
    except OSError as error:
        raise Unreachable(f"the certificates in {wire.ca_file}: {error}", maybe_done=False) from error


def _words(error: Exception) -> str:
    return clean(str(error), 300) or type(error).__name__


@contextmanager
def _closing(response: httpx2.Response) -> Iterator[None]:
    try:
        yield
    finally:
        # A rest that was not read makes the connection useless: closing drops it.
        response.close()
