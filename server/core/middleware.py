"""Each request gets an id that stands in all its log lines and in the answer."""

import re
import time
import uuid
from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponse

log = structlog.get_logger(__name__)
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class LogContextMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-Id", "")
        request_id = given if _GIVEN_ID.fullmatch(given) else uuid.uuid4().hex
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        started = time.monotonic()
        response = self.get_response(request)
        response.headers["X-Request-Id"] = request_id
        log.info(
            "request",
            method=request.method,
            path=request.path,
            status=response.status_code,
            milliseconds=round((time.monotonic() - started) * 1000, 1),
        )
        return response
