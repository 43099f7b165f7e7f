"""Pages that readers get again as they are: a link that was just mailed to a list is opened by many at once."""

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers

from server.core import clock
from server.core.rows.kept import ANSWERS, Kept, address_of

View = Callable[..., HttpResponse]
# Pages tell how long ago something was: none is given again after so many seconds.
_SECONDS: Final = 5


def kept(view: View) -> View:
    """Of readers whom the service does not know, who all see the same: those that send no cookie."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method != "GET" or request.COOKIES:
            return view(request, *args, **kwargs)
        question = ("page", *address_of(request))
        found, version = ANSWERS.find(question, _moment())
        if found is not None:
            return _again(request, found)
        try:
            answer = view(request, *args, **kwargs)
        except Exception:
            ANSWERS.leave(question)
            raise
        patch_vary_headers(answer, ("Cookie",))
        if version and _is_for_all(request, answer):
            nonce = str(request.csp_nonce) if request.csp_nonce else ""  # type: ignore[attr-defined]
            ANSWERS.keep(question, Kept(version, answer.content, dict(answer.items()), nonce))
        elif version:
            ANSWERS.leave(question)
        return answer

    return wrapped


def _moment() -> str:
    return str(int(clock.now().timestamp() // _SECONDS))


def _is_for_all(request: HttpRequest, answer: HttpResponse) -> bool:
    """A form that only its reader may send is nobody else's."""
    own = answer.cookies or request.META.get("CSRF_COOKIE_NEEDS_UPDATE")
    return answer.status_code == HTTPStatus.OK and not answer.streaming and not own


def _again(request: HttpRequest, found: Kept) -> HttpResponse:
    content = found.content
    if found.nonce:
        content = content.replace(found.nonce.encode(), str(request.csp_nonce).encode())  # type: ignore[attr-defined]
    answer = HttpResponse(content)
    for name, value in found.headers.items():
        answer.headers[name] = value
    return answer
