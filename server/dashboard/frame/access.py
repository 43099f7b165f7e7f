"""Signing in and out inside the site's frame, who may do what, and what is said to those who may not."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.views import LoginView, LogoutView, redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from server.core.access.login import LoginForm

Act = Callable[..., HttpResponse]
_FORBIDDEN = 403
_LONGEST_REASON = 200


@method_decorator(never_cache, name="dispatch")
class SignInView(LoginView):
    """Of the admin as well: one form counts wrong passwords, wherever somebody came from."""

    template_name = "dashboard/sign_in.html"
    authentication_form = LoginForm

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs), "next": self.get_redirect_url()}


sign_in = SignInView.as_view()
sign_out = require_POST(LogoutView.as_view(next_page="home"))


def _here(request: HttpRequest, *_args: Any, **_kwargs: Any) -> str:
    return request.path


def needs(permission: str, back: Callable[..., str] = _here) -> Callable[[Act], Act]:
    """For a view by which somebody acts. `back` tells, of the view's arguments, the page to come back to."""

    def guarded(act: Act) -> Act:
        @wraps(act)
        def view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if not request.user.is_authenticated:
                return redirect_to_login(back(request, *args, **kwargs), reverse("login"))
            refuse_without(request, permission)
            return act(request, *args, **kwargs)

        return view

    return guarded


def refuse_without(request: HttpRequest, permission: str) -> None:
    if not request.user.has_perm(permission):
        name = request.user.get_username()
        raise PermissionDenied(f"You are signed in as {name}, who lacks the right {permission}.")


def refuse_others(request: HttpRequest) -> None:
    """Whoever is not of the staff."""
    if not request.user.is_staff:
        raise PermissionDenied(f"You are signed in as {request.user.get_username()}, who is not of the staff.")


def own_page(request: HttpRequest, given: str, otherwise: str) -> str:
    """`given` where it is a path of this site: a form of another site must not send people away."""
    safe = given.startswith("/") and url_has_allowed_host_and_scheme(
        given, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return given if safe else otherwise


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Django calls it (CSRF_FAILURE_VIEW) where a form came without the mark of its page."""
    context = {"reason": reason[:_LONGEST_REASON], "has_cookie": bool(request.COOKIES)}
    return render(request, "403_csrf.html", context, status=_FORBIDDEN)
