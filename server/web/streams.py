"""Answers that go on: one look at what is new a second for all who listen, and no thread for any of them."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from http import HTTPStatus

import structlog
from django.db import DatabaseError, close_old_connections
from django.http import QueryDict

from server.api.transitions import NewSteps, StreamQuestion, event, seen_last, sent_already, stream_question
from server.core.models import Transition
from server.web.threads import BegunAnswer, BusyError, Receive, Request, Send, Threads, Wsgi, begin, left

log = structlog.get_logger(__name__)

PATH = "/api/v1/transitions/"
# Listeners of one process, and of these of one client.
MOST_LISTENERS, MOST_OF_ONE = 200, 8
_LOOK_SECONDS = 1.0
# What proxies and browsers take for a sign of life.
_ALIVE_SECONDS = 15.0
_ALIVE = b": alive\n\n"
# Steps that wait for one reader: who is further behind is let go, and comes again with the last that it had.
_MOST_WAITING = 2000


class Listener:
    """What waits for one reader: steps in their order, and None at the end."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Transition | None] = asyncio.Queue()
        # What the reader has seen already, where it says so.
        self.after = 0

    def hear(self, steps: list[Transition]) -> None:
        if self._waiting.qsize() > _MOST_WAITING:
            self._waiting = asyncio.Queue()
            steps = []
            self._waiting.put_nowait(None)
        for step in steps:
            self._waiting.put_nowait(step)

    async def events(self, wanted: StreamQuestion, known: set[int]) -> bytes | None:
        """The next piece for this reader, as soon as there is one; None when it is to come again."""
        try:
            step = await asyncio.wait_for(self._waiting.get(), _ALIVE_SECONDS)
        except TimeoutError:
            return _ALIVE
        if step is None:
            return None
        is_new = step.pk > self.after and step.pk not in known
        return event(step) if is_new and wanted.takes(step) else b""


class Streams:
    """All listeners of this process. Who looks for them lives as long as there is one."""

    def __init__(self, pages: Threads) -> None:
        self._pages = pages
        self._own = Threads("streams", 1)
        self._listeners: dict[Listener, None] = {}
        self._clients: Counter[str] = Counter()
        self._steps: NewSteps | None = None
        self._looking: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    async def answer(self, wsgi: Wsgi, request: Request, receive: Receive, send: Send) -> None:
        """Django's answer and, where it is a stream, all that comes after it; BusyError where too many listen."""
        if self._clients.total() >= MOST_LISTENERS or self._clients[request.client] >= MOST_OF_ONE:
            raise BusyError
        self._clients[request.client] += 1
        listener = Listener()
        try:
            # Before Django looks, so that nothing is missed between.
            await self._listen(listener)
            given = await self._pages.run(partial(begin, wsgi, request), client=request.client, late=BegunAnswer.close)
            goes_on = given.status == HTTPStatus.OK
            headers = [one for one in given.headers if not goes_on or one[0] != b"content-length"]
            await send({"type": "http.response.start", "status": given.status, "headers": headers})
            await send({"type": "http.response.body", "body": given.piece, "more_body": goes_on})
            if goes_on:
                wanted = stream_question(QueryDict(request.scope["query_string"]))
                known = sent_already(given.piece)
                listener.after = seen_last(request.scope["query_string"], request.scope["headers"])
                await _until_left(_send_events(listener, wanted, known, send), receive)
        finally:
            self._listeners.pop(listener, None)
            self._clients[request.client] -= 1
            self._clients += Counter()

    async def _listen(self, listener: Listener) -> None:
        async with self._starting:
            if self._looking is None or self._looking.done():
                # From now on, and with a new memory: nobody has listened meanwhile.
                try:
                    self._steps = await self._own.run(_from_now, client="")
                except DatabaseError:
                    raise BusyError from None
                self._looking = asyncio.create_task(self._look())
        self._listeners[listener] = None

    async def _look(self) -> None:
        assert self._steps is not None
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if not self._listeners:
                return
            try:
                steps = await self._own.run(partial(_look, self._steps), client="")
            except Exception as error:  # noqa: BLE001 (whatever it is, those who listen must not wait for ever)
                # It comes back, and what came meanwhile is told then.
                log.warning("streams_wait", reason=str(error))
                continue
            for listener in self._listeners:
                listener.hear(steps)


async def _send_events(listener: Listener, wanted: StreamQuestion, known: set[int], send: Send) -> None:
    while (piece := await listener.events(wanted, known)) is not None:
        if piece:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _until_left(telling: Coroutine[None, None, None], receive: Receive) -> None:
    """End when there is nothing more to tell, or when the client is gone."""
    tasks = [asyncio.create_task(telling), asyncio.create_task(left(receive))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _from_now() -> NewSteps:
    try:
        return NewSteps()
    finally:
        close_old_connections()


def _look(steps: NewSteps) -> list[Transition]:
    try:
        return steps.look()
    finally:
        close_old_connections()
