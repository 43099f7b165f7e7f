"""The web process with one address more, which takes as much memory as it is told: `gunicorn ... tests.web.hungry`."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, include, path

from server.asgi import application

__all__ = ["application"]


def eat(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(len(bytearray(int(request.GET["megabytes"]) << 20))))


urlpatterns: list[URLPattern | URLResolver] = [path("eat/", eat), path("", include("server.urls"))]
settings.ROOT_URLCONF = __name__
