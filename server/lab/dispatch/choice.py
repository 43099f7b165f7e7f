"""Choosing the site's adapter."""

import threading
from functools import lru_cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from server.lab.dispatch.jenkins.adapter import JenkinsDispatcher
from server.lab.dispatch.local import LocalDispatcher
from server.lab.port import Dispatcher

_ADAPTERS: dict[str, type[LocalDispatcher] | type[JenkinsDispatcher]] = {
    "local": LocalDispatcher,
    "jenkins": JenkinsDispatcher,
}
# A process has few threads that dispatch; each keeps a connection of its own.
_MOST_KEPT = 8


def dispatcher() -> Dispatcher:
    """The dispatcher that TIDEMARK_DISPATCHER names; one for each thread, which keeps its connection."""
    return _made(settings.DISPATCHER, settings.JENKINS_URL, threading.get_ident())


@lru_cache(maxsize=_MOST_KEPT)
def _made(name: str, _url: str, _thread: int) -> Dispatcher:
    try:
        return _ADAPTERS[name]()
    except KeyError:
        raise ImproperlyConfigured(f"TIDEMARK_DISPATCHER: no dispatcher {name!r}") from None
