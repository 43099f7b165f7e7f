"""Choosing the site's adapter."""

from functools import cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from server.lab.dispatch.base import Dispatcher
from server.lab.dispatch.local import LocalDispatcher

_ADAPTERS: dict[str, type[LocalDispatcher]] = {"local": LocalDispatcher}


@cache
def dispatcher() -> Dispatcher:
    """The dispatcher that TIDEMARK_DISPATCHER names."""
    try:
        return _ADAPTERS[settings.DISPATCHER]()
    except KeyError:
        raise ImproperlyConfigured(f"TIDEMARK_DISPATCHER: no dispatcher {settings.DISPATCHER!r}") from None
