"""HTTP to the controller: what a request may cost in time and bytes is fixed beforehand, and nothing is followed."""

import base64
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx2
from django.conf import settings
from django.db.models import Case, DateTimeField, DurationField, ExpressionWrapper, F, Func, Q, When

from server.core import clock
from server.core.watchdog import Watchdog
from server.lab.dispatch.jenkins.answers import Head, Triggered
from server.lab.dispatch.jenkins.models import JenkinsController
from server.lab.dispatch.jenkins.values import (
    LARGEST_ID,
    Crowded,
    Forbidden,
    Garbled,
    JenkinsError,
    Missing,
    Rejected,
    TokenRefused,
    Unreachable,
    beginning,
    clean,
)

# At most so many requests a second to the controller, by all processes together.
#
# The generic cell rate algorithm: a mark says when the next request is due if all came evenly; a request may leave
# when the mark is at most a burst ahead of now, and puts it one interval further. The mark is a column, moved by one
# UPDATE.

# The controller bears far more; a service should not be felt there.
REQUESTS_PER_SECOND = 5
# What one round of reconciling needs leaves at once.
BURST = 5
_INTERVAL = timedelta(seconds=1 / REQUESTS_PER_SECOND)
_ROOM = _INTERVAL * (BURST - 1)
# A mark this far ahead was set by a clock that has been put back since.
_ABSURD = timedelta(minutes=1)
DEFAULT_PATIENCE = 5.0
_SHORTEST_WAIT = 0.005


class _Clock(Func):
    """The database's clock: the same for all processes, and moving inside a transaction, too."""

    function = "clock_timestamp"
    output_field = DateTimeField()


def take_turn(patience: float = DEFAULT_PATIENCE) -> None:
    """Wait for the next free slot, at most `patience` seconds; raises Crowded when there is none until then.

    Not to be called inside a transaction of any length: the mark's row stays locked until its end.
    """
    deadline = time.monotonic() + patience
    while not _slot_taken():
        wait = _seconds_to_next()
        if time.monotonic() + wait > deadline:
            raise Crowded(f"no free slot for a request to Jenkins within {patience:g} s")
        time.sleep(wait)


def _slot_taken() -> bool:
    now = _Clock()
    mark = F("next_request_at")
    ahead = Q(next_request_at__gt=now) & Q(next_request_at__lte=now + _ABSURD)
    free = Q(next_request_at=None) | Q(next_request_at__lte=now + _ROOM) | Q(next_request_at__gt=now + _ABSURD)
    later = Case(When(ahead, then=mark), default=now) + _INTERVAL
    row = JenkinsController.objects.filter(url=settings.JENKINS_URL)
    if row.filter(free).update(next_request_at=later):
        return True
    if not row.exists():
        # Two processes at once: the URL is unique, and the loser finds the row there.
        JenkinsController.objects.bulk_create([JenkinsController(url=settings.JENKINS_URL)], ignore_conflicts=True)
    return False


def _seconds_to_next() -> float:
    until = ExpressionWrapper(F("next_request_at") - _ROOM - _Clock(), output_field=DurationField())
    row = JenkinsController.objects.filter(url=settings.JENKINS_URL, next_request_at__isnull=False)
    left = row.values_list(until, flat=True).first()
    return max(left.total_seconds() if left else 0.0, _SHORTEST_WAIT)


# As the database's columns for them.
_LONGEST_SESSION = 64
_LONGEST_VERSION = 60


def read_head(headers: Mapping[str, str], now: datetime) -> Head:
    """The controller's session, version and time, as far as they are told; `now` is our time of the answer."""
    date = _date(headers.get("Date", ""))
    return Head(
        session=clean(headers.get("X-Jenkins-Session", ""), _LONGEST_SESSION),
        version=clean(headers.get("X-Jenkins", ""), _LONGEST_VERSION),
        date=date,
        skew_seconds=(date - now).total_seconds() if date else None,
    )


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
        return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


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
class HttpAnswer:
    """An answer of any status; `cut`: it was longer than it may be, and `content` is its beginning."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    head: Head
    cut: bool = False


class ControllerLine:
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
    ) -> HttpAnswer:
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

    def _answer(self, response: httpx2.Response, largest: int) -> HttpAnswer:
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
            return HttpAnswer(response.status_code, response.headers, bytes(content[:largest]), head, cut=cut)

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


_CREATED, _FOUND, _SEE_OTHER = 201, 302, 303
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404
_FIRST_ERROR, _OK = 400, 200
_NO_CRUMB = b"No valid crumb"


def checked(answer: HttpAnswer, path: str) -> HttpAnswer:
    """The answer if it is none of an error; raises the error that it is."""
    if answer.status < _OK or answer.status >= _FIRST_ERROR:
        raise _error(answer, path)
    return answer


def _error(answer: HttpAnswer, path: str) -> JenkinsError:
    if answer.status in {_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND} and not _is_jenkins_own(answer):
        return Garbled(f"{path}: {answer.status} of something else than Jenkins, it begins {beginning(answer.content)}")
    if answer.status == _UNAUTHORIZED:
        return TokenRefused(f"{path}: the token is refused (401): it was renewed, revoked or has expired")
    if answer.status == _FORBIDDEN:
        return _forbidden(answer, path)
    if answer.status == _NOT_FOUND:
        return Missing(f"{path}: not there, or hidden from this user (404)")
    said = clean(answer.headers.get("X-Error", ""), 300)
    return Rejected(f"{path}: answers {answer.status}{': ' if said else ''}{said}", answer.status)


def _is_jenkins_own(answer: HttpAnswer) -> bool:
    """Whether Jenkins refuses, and not a proxy before it: then it says nothing about token, rights, jobs or builds.

    Jenkins' pages name its version. Those of its web server, which refuse a token or a crumb, are known by their words.
    """
    if answer.headers.get("X-Jenkins", ""):
        return True
    if answer.status == _UNAUTHORIZED:
        return 'realm="Jenkins"' in answer.headers.get("WWW-Authenticate", "")
    return answer.status == _FORBIDDEN and _NO_CRUMB in answer.content


def _forbidden(answer: HttpAnswer, path: str) -> Forbidden:
    permission = clean(answer.headers.get("X-Required-Permission", ""), 100)
    if permission:
        return Forbidden(f"{path}: the user lacks the permission {permission} (403)", permission)
    if _NO_CRUMB in answer.content:
        return Forbidden(f"{path}: no valid crumb (403): the token file holds a password where an API token belongs")
    return Forbidden(f"{path}: forbidden (403), and no permission is named")


def content_of(answer: HttpAnswer, path: str, content_type: str) -> bytes:
    """The whole content of a 200 of the expected type; anything else is not from Jenkins' API."""
    if answer.status != _OK:
        where = answer.headers.get("Location", "")
        raise Garbled(f"{path}: answers {answer.status}{' to ' if where else ''}{clean(where, 200)} instead of content")
    told = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if told != content_type:
        raise Garbled(
            f"{path}: {clean(told, 60) or 'no type'} for {content_type}, it begins {beginning(answer.content)}"
        )
    if answer.cut:
        raise Garbled(f"{path}: longer than {len(answer.content)} bytes")
    return answer.content


def queue_id_of(answer: HttpAnswer, path: str) -> Triggered:
    """The item that a trigger's Location names: 201 for a new one, 303 for one that waited already."""
    where = urlsplit(answer.headers.get("Location", "")).path.rstrip("/")
    parent, _, number = where.rpartition("/")
    known = answer.status in {_CREATED, _SEE_OTHER} and parent.endswith("/queue/item")
    if not (known and number.isascii() and number.isdigit() and len(number) <= len(str(LARGEST_ID))):
        raise Garbled(f"{path}: answers {answer.status} with Location {clean(where, 200)!r}, no item of the queue")
    return Triggered(queue_id=_id(int(number), path), folded=answer.status == _SEE_OTHER)


def _id(number: int, path: str) -> int:
    if number > LARGEST_ID:
        raise Garbled(f"{path}: {number} is no id of a queue item")
    return number


def redirect_into(place: str, answer: HttpAnswer, path: str, url: str) -> None:
    """What changes something answers 302 into its own pages; one to elsewhere is a proxy's login page."""
    told = answer.headers.get("Location", "")
    where = urljoin(f"{url}{path}", told)
    inside = urlsplit(where).path.startswith(urlsplit(url).path + place)
    if answer.status != _FOUND or not told or not inside:
        raise Garbled(f"{path}: answers {answer.status} with Location {clean(where, 200)!r}, not into {place}")
