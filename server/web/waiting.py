"""Requests of hosts that ask for work: those for which nothing lies ready wait here, without a thread or a connection
to the database for any of them.

One look a second at what lies ready serves all who wait in this process, and at once when the bell rings.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from http import HTTPStatus

import structlog
from django.db import close_old_connections

from server.lab.attempts.asks import awaited
from server.lab.bell import Bell
from server.lab.dispatch.pull import BELL, POLL_SECONDS
from server.web.threads import BegunAnswer, BusyError, Receive, Request, Send, Threads, Wsgi, begin, left

log = structlog.get_logger(__name__)

PATH = "/api/v1/agent/work"
# What such a request says takes so much at most.
MOST_BYTES = 16 * 1024
# How the view (server/api/v1/agent.py) tells that nothing lies ready, how long the host would wait, and what it has.
_WAIT, _KEYS = b"x-tidemark-wait", b"x-tidemark-keys"
_OWN = frozenset({_WAIT, _KEYS})
# Of one token: an agent that was restarted asks again before its old request is known to be dead.
MOST_OF_ONE = 4
_LOOK_SECONDS = 1.0
# Many rings in a row are one look, and a look that failed is not repeated at once.
_BETWEEN_LOOKS_SECONDS = 0.05
# Of a process that ends: within the time that gunicorn gives it (`graceful_timeout`).
_LET_GO_A_SECOND, _LET_GO_SECONDS = 200, 5.0
# What proxies take for a sign of life: blanks before a document are nothing in JSON.
_ALIVE_SECONDS = 20.0
_ALIVE = b" "
_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]


class Waiter:
    """One request that waits: whose it is, and what its host has already."""

    def __init__(self, whose: tuple[str, str], keys: frozenset[str], until: float) -> None:
        self.whose, self.keys, self.until = whose, keys, until
        self.called = asyncio.Event()

    def let_go(self) -> None:
        self.until = 0.0
        self.called.set()


class Waiters:
    """All requests of this process that wait. Who looks for them, and who hears the bell, live as long as there are."""

    def __init__(self, agents: Threads) -> None:
        self._agents = agents
        self._own = Threads("waiting", 1)
        self._waiting: dict[Waiter, None] = {}
        self._of: Counter[tuple[str, str]] = Counter()
        self._bell = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def answer(self, wsgi: Wsgi, request: Request, whose: tuple[str, str], receive: Receive, send: Send) -> None:
        """Django's answer, or that to the same question asked again as soon as something lies ready."""
        given = await self._ask(wsgi, request)
        told = _taken(given)
        if told is None or self._of[whose] >= MOST_OF_ONE:
            await _send_whole(given, send)
            return
        seconds, keys = told
        waiter = Waiter(whose, keys, asyncio.get_running_loop().time() + seconds)
        self._of[whose] += 1
        self._waiting[waiter] = None
        try:
            self._start()
            await _until_left(self._hold(partial(self._again, wsgi, request), waiter, given, send), receive)
        finally:
            self._waiting.pop(waiter, None)
            self._of[whose] -= 1
            self._of += Counter()

    def let_go(self) -> None:
        """The process ends: those who wait ask the next one, and not all in one instant."""
        loop, count = asyncio.get_running_loop(), len(self._waiting)
        seconds = min(count / _LET_GO_A_SECOND, _LET_GO_SECONDS)
        for number, waiter in enumerate(self._waiting):
            loop.call_later(seconds * number / count, waiter.let_go)

    @staticmethod
    async def _hold(
        ask: Callable[[], Awaitable[BegunAnswer | None]], waiter: Waiter, given: BegunAnswer, send: Send
    ) -> None:
        """Until something lies ready or the time is over. What is refused by then is told if no answer has begun."""
        loop, begun = asyncio.get_running_loop(), False
        while (rest := waiter.until - loop.time()) > 0:
            if not await _heard(waiter.called, min(rest, _ALIVE_SECONDS)):
                await _begin(send, begun)
                begun = True
                await send({"type": "http.response.body", "body": _ALIVE, "more_body": True})
                continue
            waiter.called.clear()
            again = await ask() if waiter.until else None
            if again is not None:
                is_over = _taken(again) is None
                given = given if begun and again.status != HTTPStatus.OK else again
                if is_over:
                    break
        if begun:
            await send({"type": "http.response.body", "body": given.piece})
        else:
            await _send_whole(given, send)

    async def _again(self, wsgi: Wsgi, request: Request) -> BegunAnswer | None:
        """None where there was no thread for it: the next look calls again."""
        request.body.seek(0)
        try:
            return await self._ask(wsgi, request)
        except BusyError:
            return None

    async def _ask(self, wsgi: Wsgi, request: Request) -> BegunAnswer:
        return await self._agents.run(partial(begin, wsgi, request), client=request.client, late=BegunAnswer.close)

    # --- looking -----------------------------------------------------------------------

    def _start(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        heeding = asyncio.create_task(Bell(BELL).heed(self._bell.set))
        try:
            while self._waiting:
                await _heard(self._bell, _LOOK_SECONDS)
                self._bell.clear()
                await self._call()
                await asyncio.sleep(_BETWEEN_LOOKS_SECONDS)
        finally:
            heeding.cancel()

    async def _call(self) -> None:
        """Call those for whom something lies ready that they have not."""
        try:
            ready = await self._own.run(_look, client="")
        except Exception as error:  # noqa: BLE001 (whatever it is, it passes, and those who wait ask again by themselves)
            log.warning("waiting_looks_again", reason=str(error))
            await asyncio.sleep(_LOOK_SECONDS)
            return
        keys: dict[tuple[str, str], set[str]] = {}
        for scope, subject, key in ready:
            keys.setdefault((scope, subject), set()).add(key)
        for waiter in self._waiting if keys else ():
            if keys.get(waiter.whose, set()) - waiter.keys:
                waiter.called.set()


def _taken(given: BegunAnswer) -> tuple[float, frozenset[str]] | None:
    """How long the request is to wait, and what its host has already; None where this is its answer.

    The view tells it in headers, which are taken off.
    """
    own = {name: value.decode("latin-1") for name, value in given.headers if name in _OWN}
    given.headers = [one for one in given.headers if one[0] not in _OWN]
    if _WAIT not in own:
        return None
    return min(float(own[_WAIT]), POLL_SECONDS), frozenset(own.get(_KEYS, "").split())


async def _send_whole(given: BegunAnswer, send: Send) -> None:
    await send({"type": "http.response.start", "status": given.status, "headers": given.headers})
    await send({"type": "http.response.body", "body": given.piece})


async def _begin(send: Send, begun: bool) -> None:  # noqa: FBT001 (what was done)
    if not begun:
        await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": _HEADERS})


async def _heard(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _until_left(telling: Coroutine[None, None, None], receive: Receive) -> None:
    """End when all is told, or when the host is gone. An error of the telling is the caller's."""
    tasks = [asyncio.create_task(telling), asyncio.create_task(left(receive))]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if tasks[0] in done:
        tasks[0].result()


def _look() -> set[tuple[str, str, str]]:
    try:
        return awaited()
    finally:
        close_old_connections()
