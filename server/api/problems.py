"""One shape for every error: application/problem+json (RFC 9457)."""

from typing import Any

from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler

from server.core.errors import DomainError

_STATUS = {
    "not-found": 404,
    "code-unknown": 404,
    "not-for-it": 404,
    "forbidden": 403,
    "job-edited": 403,
    "scope-missing": 403,
    "too-large": 413,
    "too-many-codes": 429,
    "damaged": 503,
}
# An agent keeps what is answered 401 or 403 for a better token, and puts aside what is answered so.
_STATUS |= dict.fromkeys(("conflict", "superseded", "not-awaited", "account-used-up"), 409)
_STATUS |= dict.fromkeys(("other-dispatcher", "two-agents", "copied-disk"), 409)
_STATUS |= dict.fromkeys(("code-used", "code-expired", "other-uarch", "unknown-host"), 409)
# What cannot be done with a row as it is now.
_STATUS |= dict.fromkeys(("not-held", "changed", "posting-changed", "mail-deleted", "under-way", "other-content"), 409)
_STATUS |= dict.fromkeys(("disabled", "nothing-to-accept", "nothing-to-mend", "virtual-stays"), 409)


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler; an unknown error stays an unknown error and becomes a 500."""
    if isinstance(error, DomainError):
        return _problem(status_of(error), error.code, error.message)
    if isinstance(error, RequestDataTooBig):
        return _problem(413, "too-large", "The body is larger than this service takes.")
    if isinstance(error, TooManyFieldsSent):
        return _problem(400, "invalid", "The address has more parameters than this service reads.")
    if isinstance(error, Http404):
        error = exceptions.NotFound("There is no such row.")
    response = exception_handler(error, context)
    if response is None:
        return None
    if isinstance(error, exceptions.ValidationError):
        problem = _problem(response.status_code, "invalid", "The request does not have the expected form.")
        problem.data["errors"] = response.data
    else:
        code = str(getattr(error, "default_code", "error")).replace("_", "-")
        problem = _problem(response.status_code, code, str(getattr(error, "detail", error)))
    for name, value in response.headers.items():
        if name.lower() not in {"content-type", "content-length"}:
            problem.headers[name] = value
    return problem


def status_of(error: DomainError) -> int:
    """The status of an answer that tells of this error."""
    return _STATUS.get(error.code, 400 if error.permanent else 503)


def _problem(status: int, code: str, message: str) -> Response:
    body = {"type": f"urn:tidemark:{code}", "title": message, "status": status, "code": code}
    return Response(body, status=status, content_type="application/problem+json")
