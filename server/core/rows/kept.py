"""Answers that a web process keeps, to give them again for as long as nothing at all was written to the database."""

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connection
from django.http import HttpRequest

# All of a process together, in bytes; one that takes more than an eighth is not kept.
MOST = 32_000_000
_LARGEST = MOST // 8
# Beside its body and its address an answer has headers and what holds it together.
_OVERHEAD = 1_000
# Who asks what another one asks already waits so many seconds at most for that answer.
PATIENCE = 5.0

Question = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """What left, packed as it left; `version` is that of the data that it tells.

    `nonce` is the word by which the policy of a page knows its scripts: no other reader may be given the same.
    """

    version: str
    content: bytes
    headers: Mapping[str, str]
    nonce: str = ""


def address_of(request: HttpRequest) -> Question:
    """Where it was asked, as the view has it: an address that is put in order may be another's.

    One question may be spelled in many ways. Each is kept for itself, since an answer names its own address, and the
    host that was asked; there is room for no more of them than for other questions.
    """
    return request.scheme or "", request.get_host(), request.path, request.META.get("QUERY_STRING", "")


def data_version() -> str:
    """A word that no committed change of any row leaves as it is. One query.

    PostgreSQL's snapshot names the transactions that it does not see: each one that writes makes it another when it
    ends, and it never becomes an earlier one again. An answer that is made after its version was read is given only
    while that version holds, so nothing was committed between its queries either. Empty inside a transaction: what it
    wrote itself shows in no snapshot.
    """
    if connection.in_atomic_block:
        return ""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_snapshot()::text")
        return str(cursor.fetchone()[0])


class KeptAnswers:
    """The last used answers by what was asked for; the rest goes. Threads may share it.

    Who finds none is to make it, and to `keep` it or to `leave` it: others who ask for the same wait for that, as many
    who come at once would else all make it at once.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: OrderedDict[Question, Kept] = OrderedDict()
        self._made: dict[Question, tuple[threading.Event, float]] = {}
        self._size = 0
        self._lock = threading.Lock()

    def find(self, question: Question, moment: str = "") -> tuple[Kept | None, str]:
        """What is kept, if it still holds; and the version of the data, empty where nothing can be kept.

        What tells of a `moment` holds no longer than that: it is part of the version, so the next takes its place.
        """
        while version := data_version():
            version = f"{version} {moment}" if moment else version
            with self._lock:
                kept = self._kept.get(question)
                if kept is not None and kept.version == version:
                    self._kept.move_to_end(question)
                    return kept, version
                done, until = self._made.get(question, (None, 0.0))
                if done is None or until <= time.monotonic():
                    self._made[question] = threading.Event(), time.monotonic() + PATIENCE
                    return None, version
            done.wait(until - time.monotonic())
        return None, ""

    def leave(self, question: Question) -> None:
        """Nothing comes of it: let the next one try."""
        with self._lock:
            self._done(question)

    def keep(self, question: Question, kept: Kept) -> None:
        size = _size(question, kept)
        with self._lock:
            self._done(question)
            if size > min(_LARGEST, self._most):
                return
            before = self._kept.pop(question, None)
            if before is not None:
                self._size -= _size(question, before)
            self._kept[question] = kept
            self._size += size
            while self._size > self._most:
                self._size -= _size(*self._kept.popitem(last=False))

    def _done(self, question: Question) -> None:
        done, _ = self._made.pop(question, (None, 0.0))
        if done is not None:
            done.set()


def _size(question: Question, kept: Kept) -> int:
    return len(kept.content) + sum(map(len, question)) + _OVERHEAD


# One for each process.
ANSWERS = KeptAnswers()
