"""The web process with one address more, which takes as much memory as it is told: `gunicorn ... tests.web.hungry`."""

from django.http import HttpRequest, HttpResponse
from django.urls import path

from server.asgi import application

__all__ = ["application"]


def eat(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(len(bytearray(int(request.GET["megabytes"]) << 20))))


def _add() -> None:
    # After the settings are read, which the address book needs.
    from server.urls import urlpatterns

    urlpatterns.insert(0, path("eat/", eat))


_add()
