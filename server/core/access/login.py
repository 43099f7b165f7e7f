"""Logging in: who tries wrong passwords has to wait, and who is known from before does not wait for strangers.

Four things are counted in each window (server/core/access/tries.py): tries of one address, of one user's password by
one address, those by all strangers together, and those of a browser in which that user has logged in before. A stranger
may use up what strangers have, never what a known browser has; and whoever comes from an address that has not tried yet
has a few tries whatever others do.
"""

import secrets
from collections.abc import Callable
from typing import Any

import structlog
from django.conf import settings
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.signing import BadSignature, TimestampSigner
from django.http import HttpRequest, HttpResponse

from server.core.access.tries import WINDOW, client_network, count_try, digest, forget_tries, network_of

log = structlog.get_logger(__name__)

_MOST_OF_BROWSER = 10
_MOST_OF_ADDRESS = 30
_MOST_OF_USER = 20
_ALWAYS = 3
_COOKIE = "tidemark_browser"
_COOKIE_SECONDS = 180 * 86_400
_SIGNER = TimestampSigner(salt="tidemark.browser")
_MINUTES = int(WINDOW.total_seconds() // 60)


class GuardedBackend(ModelBackend):
    """Django's own accounts. A try is counted before the password is looked at: many at once gain nothing."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        if request is None or username is None:
            return super().authenticate(request, username, password, **kwargs)
        user, network = digest(username.casefold()), client_network(request)
        browser = _known_browser(request, user)
        if not _may_try(user, network, browser):
            log.warning("login_refused", address=network, user=username[:100], known_browser=bool(browser))
            request.login_refused = True  # type: ignore[attr-defined]
            raise PermissionDenied
        found = super().authenticate(request, username, password, **kwargs)
        if found is None:
            log.warning("login_failed", address=network, user=username[:100])
            return None
        forget_tries(_of_user(user), _of_pair(user, network), _of_browser(browser))
        request.browser_is_known_to = user  # type: ignore[attr-defined]
        return found


class LoginForm(AdminAuthenticationForm):
    """Says that one has to wait, rather than that the password is wrong."""

    def get_invalid_login_error(self) -> ValidationError:
        if getattr(self.request, "login_refused", False):
            return ValidationError(f"Too many wrong passwords. Try again in {_MINUTES} minutes.", code="too-many")
        return super().get_invalid_login_error()


class KnownBrowserMiddleware:
    """Gives a browser, when somebody has logged in with it, the mark by which it is known from then on."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        user = getattr(request, "browser_is_known_to", "")
        if user:
            mark = _SIGNER.sign(f"{user}:{secrets.token_hex(16)}")
            response.set_cookie(
                _COOKIE, mark, _COOKIE_SECONDS, httponly=True, samesite="Lax", secure=settings.SESSION_COOKIE_SECURE
            )
        return response


def let_in(username: str, address: str = "") -> int:
    """Forget what strangers tried at this user's password, and what came from `address`; how many counts there were."""
    user = digest(username.casefold())
    keys = [_of_user(user)]
    if address:
        network = network_of(address)
        keys += [_of_address(network), _of_pair(user, network)]
    return forget_tries(*keys)


def _may_try(user: str, network: str, browser: str) -> bool:
    if browser:
        return count_try(_of_browser(browser)) <= _MOST_OF_BROWSER
    of_address, of_pair = count_try(_of_address(network)), count_try(_of_pair(user, network))
    of_user = count_try(_of_user(user))
    return of_address <= _MOST_OF_ADDRESS and (of_user <= _MOST_OF_USER or of_pair <= _ALWAYS)


def _known_browser(request: HttpRequest, user: str) -> str:
    """The name of the browser, if this user has logged in with it before, or ""."""
    try:
        known, _, name = _SIGNER.unsign(request.COOKIES.get(_COOKIE, ""), max_age=_COOKIE_SECONDS).partition(":")
    except BadSignature:
        return ""
    return name if secrets.compare_digest(known, user) else ""


def _of_user(user: str) -> str:
    return f"login user:{user}"


def _of_address(network: str) -> str:
    return f"login address:{network}"


def _of_pair(user: str, network: str) -> str:
    return f"login pair:{digest(f'{user} {network}')}"


def _of_browser(browser: str) -> str:
    return f"login browser:{browser}"
