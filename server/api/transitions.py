"""Steps in the life of series, builds, sessions and findings, as server-sent events.

Django answers with what there is and ends; the web process goes on with what comes (server/web/streams.py). What a
step is of, and whence to whence it went, is told; sentences are in the answers about the row.
"""

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse, QueryDict
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from server.api.filters import unknown
from server.api.public import ProblemOut, PublicMixin
from server.core import clock
from server.core.models import Transition

MEDIA_TYPE = "text/event-stream"
# Of all others some lines are a lab's own (who maintains a machine, to whom a mail failed to go).
SUBJECTS = ("series", "build", "attempt", "session", "boot", "finding", "bisection", "machine-state", "machine-health")
# A reader that was away for longer than these is told to look at all again.
MOST_BEHIND = 1000
# A row is visible when its transaction ends, which may be later than that of a row after it. None takes longer.
LATE = timedelta(seconds=60)
# Of the largest number of a row.
_DIGITS = 19
_SUBJECT, _ID, _AFTER = "subject", "id", "after"


@dataclass(frozen=True)
class StreamQuestion:
    """Which steps a reader wants; of no subject, no id: all."""

    subjects: frozenset[str]
    ids: frozenset[int]

    def takes(self, step: Transition) -> bool:
        return step.subject in self.subjects and (not self.ids or step.subject_id in self.ids)


def stream_question(given: QueryDict) -> StreamQuestion:
    """Raises ValidationError for what is not known."""
    subjects = given.getlist(_SUBJECT)
    for subject in subjects:
        if subject not in SUBJECTS:
            raise ValidationError({_SUBJECT: unknown("subject", subject, SUBJECTS).messages})
    return StreamQuestion(frozenset(subjects or SUBJECTS), frozenset(_number(_ID, one) for one in given.getlist(_ID)))


def event(step: Transition) -> bytes:
    """One event; `id` is where a reader goes on that comes again."""
    told = {
        "subject": step.subject,
        "id": step.subject_id,
        "before": step.before,
        "after": step.after,
        "reason_code": step.reason_code,
        "at": step.at.isoformat(),
        "trace": step.trace,
    }
    return f"id: {step.pk}\nevent: transition\ndata: {json.dumps(told)}\n\n".encode()


class NewSteps:
    """Steps as they become visible: each is given once, also those of transactions that ended late."""

    def __init__(self) -> None:
        # Steps up to here are old; of those after it, what is there already is known.
        old = Transition.objects.filter(at__lt=clock.now() - LATE).order_by("-pk").values_list("pk", flat=True).first()
        self._floor: int = old or 0
        there = _public().filter(pk__gt=self._floor).order_by("at").values_list("at", "pk")
        self._given: deque[tuple[datetime, int]] = deque(there)
        self._known = {number for _, number in self._given}

    def look(self, *, most: int = MOST_BEHIND) -> list[Transition]:
        """What came since the last look, in the order of their numbers."""
        oldest = clock.now() - LATE
        while self._given and self._given[0][0] < oldest:
            number = self._given.popleft()[1]
            self._known.discard(number)
            self._floor = max(self._floor, number)
        rows = _public().filter(pk__gt=self._floor).exclude(pk__in=self._known).order_by("pk")
        found = list(rows[:most])
        for step in found:
            self._given.append((step.at, step.pk))
            self._known.add(step.pk)
        return found


def newest_step() -> int:
    newest: int | None = Transition.objects.order_by("-pk").values_list("pk", flat=True).first()
    return newest or 0


def steps_after(number: int, wanted: StreamQuestion) -> list[Transition] | None:
    """Public steps after this one; None where they are too many to tell."""
    if _public().filter(pk__gt=number).order_by("pk")[MOST_BEHIND : MOST_BEHIND + 1].exists():
        return None
    return [step for step in _public().filter(pk__gt=number).order_by("pk")[:MOST_BEHIND] if wanted.takes(step)]


def _public() -> QuerySet[Transition]:
    return Transition.objects.filter(subject__in=SUBJECTS).only(
        "subject", "subject_id", "before", "after", "reason_code", "at", "trace"
    )


class EventStreamRenderer(BaseRenderer):
    """For the choice by Accept only: the view writes its answer itself."""

    media_type, format = MEDIA_TYPE, "event-stream"

    def render(self, data: Any, *_: Any, **__: Any) -> bytes:
        # An error that is told to one who takes nothing else.
        return JSONRenderer().render(data)


_PARAMETERS = [
    OpenApiParameter(_SUBJECT, str, enum=SUBJECTS, many=True, description="Of which kinds of rows; may come again."),
    OpenApiParameter(_ID, OpenApiTypes.INT64, many=True, description="Of these rows only; may come again."),
    OpenApiParameter(_AFTER, OpenApiTypes.INT64, description="Begin after the event of this id; else with what comes."),
    OpenApiParameter("Last-Event-ID", OpenApiTypes.INT64, OpenApiParameter.HEADER, description="The same of browsers."),
]


class TransitionStreamView(PublicMixin, APIView):
    """Server-sent events; `event: reset` says that too much was missed: look at all again."""

    renderer_classes = (EventStreamRenderer, JSONRenderer)
    takes = (_SUBJECT, _ID, _AFTER)
    takes_several = (_SUBJECT, _ID)

    @extend_schema(
        operation_id="transitions",
        parameters=_PARAMETERS,
        responses={
            (200, MEDIA_TYPE): OpenApiTypes.STR,
            **{(status, "application/problem+json"): ProblemOut for status in (400, 406, 503)},
        },
    )
    def get(self, request: Request) -> HttpResponse:
        wanted = stream_question(request.query_params)
        said = request.query_params.get(_AFTER) or request.headers.get("Last-Event-ID", "")
        begin: Iterable[bytes]
        newest = newest_step()
        if said:
            missed = steps_after(_number(_AFTER, said), wanted)
            begin = [_reset(newest)] if missed is None else [event(step) for step in missed]
        else:
            begin = [f"id: {newest}\n\n".encode()]
        answer = HttpResponse(b"retry: 3000\n\n" + b"".join(begin), content_type=MEDIA_TYPE)
        answer.headers["Cache-Control"] = "no-cache"
        # nginx would keep events until it has a page of them.
        answer.headers["X-Accel-Buffering"] = "no"
        return answer


def _reset(newest: int) -> bytes:
    return f"id: {newest}\nevent: reset\ndata: {{}}\n\n".encode()


def _number(name: str, value: str) -> int:
    if not (len(value) < _DIGITS and value.isascii() and value.isdecimal()):
        raise ValidationError({name: ["Write a whole number."]})
    return int(value)


def seen_last(query: bytes, headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The number of the step after which a question that was understood wants to begin; 0: it names none."""
    header = next((value.decode("latin-1") for name, value in headers if name == b"last-event-id"), "")
    return int(QueryDict(query).get(_AFTER) or header or 0)


def sent_already(begin: bytes) -> set[int]:
    """Ids of the steps in an answer's first part."""
    return {int(line[4:]) for line in begin.splitlines() if line.startswith(b"id: ")}
