"""Signs that turn text round are named on pages, not obeyed."""

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from server.core.middleware import VisibleTextMiddleware, for_terminal

NAME = "\u202eeve\u2066"


def shown(response: HttpResponseBase) -> HttpResponse:
    answer = VisibleTextMiddleware(lambda _request: response)(HttpRequest())  # type: ignore[arg-type, return-value]
    assert isinstance(answer, HttpResponse)
    return answer


def test_pages_name_the_sign() -> None:
    response = HttpResponse(f"<p>{NAME} &lt;ada@example.org&gt; שלום</p>")
    response.headers["Content-Length"] = str(len(response.content))
    answer = shown(response)
    assert answer.content.decode() == "<p>[U+202E]eve[U+2066] &lt;ada@example.org&gt; שלום</p>"
    assert answer.headers["Content-Length"] == str(len(answer.content))


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream"])
def test_downloads_stay_byte_for_byte(kind: str) -> None:
    assert shown(HttpResponse(NAME, content_type=kind)).content.decode() == NAME


def test_json_stays_as_it_is() -> None:
    response = JsonResponse({"name": NAME}, json_dumps_params={"ensure_ascii": False})
    assert NAME in shown(response).content.decode()


def test_streams_pass() -> None:
    response = StreamingHttpResponse([NAME.encode()], content_type="text/html")
    assert VisibleTextMiddleware(lambda _request: response)(HttpRequest()) is response  # type: ignore[arg-type, return-value, comparison-overlap]


def test_terminals_get_nothing_that_they_obey() -> None:
    text = "red\x1b[31m \x9b2J\r\n\u202eא ä"
    assert for_terminal(text) == "red[U+001B][31m [U+009B]2J[U+000D][U+000A][U+202E]א ä"
