"""What a service answers: rows, documents, and errors that say what is wrong."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Self

import httpx2

from tidemark.events import SILENCE, told

# A busy service says when to come again; who asks waits so often, and so long at most each time.
TRIES = 5
LONGEST_WAIT = 60.0
_USUAL_WAIT = 2.0
# Of a stream: so long a service may be away that begins anew.
_LONG_TRIES = 9
_AGAIN = {429, 502, 503, 504}

Row = dict[str, Any]
# Values of a filter; several mean that each must hold.
Query = Mapping[str, str | list[str]]


class ApiError(Exception):
    """What the service refused, or why it could not be asked.

    `code` is the problem's code, `unreachable` where there was no answer; `errors` are the wrong fields, by name;
    `status` is that of HTTP, 0 without an answer.
    """

    def __init__(self, title: str, *, code: str, status: int = 0, errors: Mapping[str, Any] | None = None) -> None:
        self.title, self.code, self.status, self.errors = title, code, status, dict(errors or {})
        super().__init__(title)

    def __str__(self) -> str:
        lines = [f"{self.title} ({self.code})"]
        for name, found in self.errors.items():
            lines += [f"  {name}: {one}" for one in (found if isinstance(found, list) else [found])]
        return "\n".join(lines)


class Tidemark:
    """One service. `server` is its address without `/api/v1`; nobody needs a token to read, but to act.

    with Tidemark("http://127.0.0.1:8000") as service:
        for finding in service.rows("findings", {"kind": "regressed"}):
            print(finding["headline"])
    """

    def __init__(
        self,
        server: str,
        *,
        token: str = "",
        timeout: float = 30.0,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._base = f"{server.rstrip('/')}/api/v1/"
        self._token, self._timeout = token, timeout
        # A redirect to another host is no answer of this service.
        self._http = httpx2.Client(timeout=timeout, transport=transport, follow_redirects=False)
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, query: Query | None = None) -> Any:
        """The document at `path`, such as `findings/12`. Raises ApiError."""
        return self._ask(f"{self._base}{path.strip('/')}/", query or {})

    def newer(self, path: str, query: Query | None = None, *, etag: str = "") -> tuple[bytes, str] | None:
        """The answer at `path` as it came, in whatever form was asked for, and its ETag (empty: it has none).

        None where the answer is still the one of which `etag` is. Raises ApiError.
        """
        url, params = f"{self._base}{path.strip('/')}/", httpx2.QueryParams(dict(query)) if query else None
        answer = self._send("GET", url, params=params, headers={"If-None-Match": etag} if etag else {})
        if answer.status_code == HTTPStatus.NOT_MODIFIED:
            return None
        if not answer.is_success:
            _document(answer)
        return answer.content, str(answer.headers.get("etag", ""))

    def post(self, path: str, body: Row | bytes, *, kind: str = "application/json") -> Any:
        """Act: what the service answers, with its `Location`, if it names one. Needs a token. Raises ApiError.

        A service that is busy is asked again: told twice, nothing is done twice.
        """
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": kind, **({"Authorization": f"Bearer {self._token}"} if self._token else {})}
        answer = self._send("POST", f"{self._base}{path.strip('/')}/", content=content, headers=headers)
        told = _document(answer)
        where = answer.headers.get("location")
        return {**told, "location": where} if where and isinstance(told, dict) else told

    def rows(self, path: str, query: Query | None = None, *, limit: int | None = None) -> Iterator[Row]:
        """The rows of a list, page by page, as many as are asked for. Raises ApiError."""
        url, left = f"{self._base}{path.strip('/')}/", limit
        asked, before = dict(query or {}), set[str]()
        while url and (left is None or left > 0):
            if url in before:
                raise ApiError(f"the next page of {path} is one that was read already: {url}", code="endless-pages")
            before.add(url)
            page = self._ask(url, asked)
            found = page.get("results", page.get("rows")) if isinstance(page, dict) else page
            if not isinstance(found, list):
                raise ApiError(f"{path} is not a list", code="no-list")
            found = found if left is None else found[:left]
            yield from found
            left = None if left is None else left - len(found)
            # The address of the next page holds the whole question.
            url, asked = self._own(page.get("next") if isinstance(page, dict) else None), {}

    def lines(self, path: str, query: Query | None = None) -> Iterator[Row]:
        """The rows of an answer that is told as a table, such as `sessions/7/samples`, each as soon as it is there.

        Nothing but the row at hand is in memory. Raises ApiError.
        """
        url, asked = f"{self._base}{path.strip('/')}/", {**(query or {}), "format": "ndjson"}
        while url:
            with self._streamed(url, asked) as answer:
                for line in answer.iter_lines():
                    yield json.loads(line)
                url, asked = self._own(answer.links.get("next", {}).get("url")), {}

    def pieces(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """The answer as it comes, such as `sessions/7/samples` as `format` csv, arrow or parquet. Raises ApiError."""
        with self._streamed(f"{self._base}{path.strip('/')}/", query or {}) as answer:
            yield from answer.iter_bytes()

    def events(self, query: Query | None = None, *, seconds: float = float("inf")) -> Iterator[Row]:
        """Steps as they happen (`transitions/`), each once, for so many seconds.

        Where the connection breaks it goes on with the step after the last one, and tries for a minute and a half. A
        row of the kind `reset` says that too many were missed. Raises ApiError.
        """
        asked = dict(query or {})
        ends, broken = time.monotonic() + seconds, 0
        while (left := ends - time.monotonic()) > 0:
            try:
                for one in self._told(asked, left):
                    if one["event"]:
                        asked["after"], broken = one["event"], 0
                    if one["kind"]:
                        yield one
                    if time.monotonic() >= ends:
                        return
            except ApiError as error:
                if time.monotonic() >= ends:
                    return
                if error.code != "unreachable" or broken >= _LONG_TRIES:
                    raise
            broken += 1
            self._sleep(min(broken * _USUAL_WAIT, max(0.0, ends - time.monotonic())))

    def _told(self, asked: Query, left: float) -> Iterator[Row]:
        """Of one connection, which says something at least within `left` seconds."""
        url = f"{self._base}transitions/"
        with self._streamed(url, asked, httpx2.Timeout(self._timeout, read=min(left, SILENCE))) as answer:
            try:
                if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                    raise ValueError("this is no stream of events")
                yield from told(answer.iter_lines())
            except ValueError as error:
                raise ApiError(f"{url}: {error}", code="no-service") from error

    @contextmanager
    def _streamed(self, url: str, query: Query, timeout: httpx2.Timeout | None = None) -> Iterator[httpx2.Response]:
        params = httpx2.QueryParams(dict(query)) if query else None
        given: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        for left in reversed(range(TRIES)):
            try:
                with self._http.stream("GET", url, params=params, **given) as answer:
                    if answer.is_success:
                        yield answer
                        return
                    answer.read()
            except httpx2.HTTPError as error:
                raise ApiError(f"{url} cannot be read: {error}", code="unreachable") from error
            if answer.status_code not in _AGAIN or not left:
                _document(answer)
            self._sleep(_wait(answer.headers.get("retry-after", "")))

    def _own(self, url: object) -> str:
        """The address of a next page, taken from this service under the name by which it is asked."""
        if not isinstance(url, str) or not url:
            return ""
        path, query = httpx2.URL(url).path, httpx2.URL(url).query.decode()
        _, inside, rest = path.partition("/api/v1/")
        if not inside:
            raise ApiError(f"the next page is not of this service: {url}", code="foreign-page")
        return f"{self._base}{rest}?{query}"

    def _ask(self, url: str, query: Query) -> Any:
        return _document(self._send("GET", url, params=httpx2.QueryParams(dict(query)) if query else None))

    def _send(self, method: str, url: str, **what: Any) -> httpx2.Response:
        for left in reversed(range(TRIES)):
            try:
                answer = self._http.request(method, url, **what)
            except httpx2.HTTPError as error:
                raise ApiError(f"{url} cannot be asked: {error}", code="unreachable") from error
            if answer.status_code not in _AGAIN or not left:
                return answer
            self._sleep(_wait(answer.headers.get("retry-after", "")))
        raise AssertionError


def _wait(said: str) -> float:
    return min(float(said), LONGEST_WAIT) if said.isdecimal() else _USUAL_WAIT


def _document(answer: httpx2.Response) -> Any:
    try:
        told = answer.json()
    except ValueError:
        told = None
    if answer.is_success and told is not None:
        return told
    if isinstance(told, dict) and "code" in told:
        raise ApiError(
            str(told.get("title", "")), code=str(told["code"]), status=answer.status_code, errors=told.get("errors")
        )
    raise ApiError(
        f"{answer.url} answered {answer.status_code} and no JSON of a Tidemark service",
        code="no-service",
        status=answer.status_code,
    )
