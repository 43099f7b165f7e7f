"""Questions asked and timed: in this process, and by several clients at once through the web server."""

import http.client
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django.db import connection
from django.test import Client

from bench.api.plans import scanned, statements
from bench.api.questions import Question
from bench.api.times import Times
from bench.dispatch.slow_clients import WEB, server
from bench.processes import family, memory_mb

ROUNDS = 7
# What takes longer is not asked as often, once will do.
_LONG_SECONDS = 3.0
_PATIENCE = 60.0
_DATA = re.compile(rb"<(tbody|svg)\b.*?</\1>|<script[^>]*application/json[^>]*>.*?</script>", re.DOTALL)
# Asked by nobody in particular: what can only be posted, by people who are logged in.
NOT_ASKED = frozenset({403, 405})


@dataclass(frozen=True)
class Inside:
    """Asked in this process, alone. `status` is what it answered; `scans` are large tables read from end to end.

    `bare` is its size without data: rows of tables, drawings and what scripts draw from; what is no page is all data.
    """

    status: int
    queries: int
    size: int
    times: Times
    scans: frozenset[str] = field(default_factory=frozenset)
    bare: int = 0


def ask_inside(client: Client, question: Question, large: Mapping[str, int], rounds: int = ROUNDS) -> Inside:
    something_written()
    with statements() as asked:
        status, content, is_page = _ask(client, question)
    if status in NOT_ASKED:
        return Inside(status, 0, 0, Times(()))
    taken: list[float] = []
    while len(taken) < rounds and sum(taken) < 1000 * _LONG_SECONDS:
        something_written()
        begun = time.perf_counter()
        _ask(client, question)
        taken.append(1000 * (time.perf_counter() - begun))
    scans = frozenset(scanned(asked, large))
    bare = len(_DATA.sub(b"", content)) if is_page else 0
    return Inside(status, len(asked), len(content), Times(tuple(taken)), scans, bare)


def something_written() -> None:
    """As far as kept answers can tell: they are made anew."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()")


@contextmanager
def writing(each_second: float) -> Iterator[None]:
    """Something is written so often meanwhile, as agents do that are at work."""
    over = threading.Event()

    def write() -> None:
        while each_second and not over.wait(1 / each_second):
            something_written()
        connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _ask(client: Client, question: Question) -> tuple[int, bytes, bool]:
    """What was answered, and whether as a page."""
    response: Any = client.get(question.path)
    # A stream is asked of the database while it is read.
    content = b"".join(response.streaming_content) if response.streaming else response.content
    return response.status_code, content, response.get("Content-Type", "").startswith("text/html")


@dataclass
class Web:
    """The service's web server as it stands in production, on the database of this process."""

    port: int
    pid: int

    def ask(self, question: Question, clients: int, requests: int) -> tuple[Times, set[int]]:
        """By so many clients at once, each so often; what each got as a status."""
        with ThreadPoolExecutor(clients) as pool:
            found = list(pool.map(lambda number: self._client(question, number, requests), range(clients)))
        return Times(tuple(ms for times, _ in found for ms in times)), {one for _, seen in found for one in seen}

    def _client(self, question: Question, number: int, requests: int) -> tuple[list[float], set[int]]:
        """As a person or a script of a network of its own, over one connection."""
        headers = {"Accept-Encoding": "gzip", "X-Forwarded-For": f"203.0.{number}.7"}
        times, seen = list[float](), set[int]()
        connected = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            while len(times) < requests and sum(times) < 1000 * _LONG_SECONDS:
                begun = time.perf_counter()
                answer = _answer(connected, question.path, headers)
                times.append(1000 * (time.perf_counter() - begun))
                seen.add(answer.status)
        finally:
            connected.close()
        return times, seen

    def peak_mb(self) -> float:
        """Of the largest process that answers."""
        return max(memory_mb(pid, "VmHWM") for pid, depth in family(self.pid) if depth)


def _answer(connected: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    """Once more where a worker that has answered its share ended between two requests, as every client does."""
    try:
        connected.request("GET", path, headers=headers)
        answer = connected.getresponse()
    except ConnectionError:
        connected.close()
        connected.request("GET", path, headers=headers)
        answer = connected.getresponse()
    answer.read()
    return answer


@contextmanager
def web(**more: str) -> Iterator[Web]:
    """With `more` in its environment."""
    scheme, host, _, query, _ = urlsplit(os.environ["TIDEMARK_DATABASE_URL"])
    own = urlunsplit((scheme, host, f"/{connection.settings_dict['NAME']}", query, ""))
    with server(WEB, {**os.environ, **more, "TIDEMARK_DATABASE_URL": own}) as (port, pid):
        yield Web(port, pid)
