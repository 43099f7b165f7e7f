"""What people with the right do to machines and builders on their pages."""

from collections.abc import Callable, Mapping
from typing import Final

from django.contrib.auth.decorators import permission_required
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from server.core.errors import DomainError
from server.dashboard.host_forms import ActionForm
from server.dashboard.lab_views import show_builder, show_machine
from server.dashboard.selectors.host_actions import BUILDER_PERMISSION, MACHINE_PERMISSION, Action
from server.lab import care
from server.lab.models import Builder, Machine

_CONFLICT = 409
_DECISIONS: Final[Mapping[Action, Callable[..., None]]] = {
    Action.QUARANTINE: care.quarantine,
    Action.RELEASE: care.release,
    Action.MAINTENANCE: care.maintain,
    Action.RETIRE: care.retire,
}
_VOUCH: Final[Mapping[Action, Callable[..., None]]] = {Action.PHYSICAL: care.call_physical, Action.DOUBT: care.doubt}


@require_POST
def act_on_machine(request: HttpRequest, name: str) -> HttpResponse:
    """A person with the right takes a machine out, lets it back in, has it checked or switched off and on."""
    if not request.user.is_authenticated:
        return redirect_to_login(reverse("machine", args=[name]), reverse("admin:login"))
    return _act_on_machine(request, name)


@require_POST
def act_on_builder(request: HttpRequest, name: str) -> HttpResponse:
    if not request.user.is_authenticated:
        return redirect_to_login(reverse("builder", args=[name]), reverse("admin:login"))
    return _act_on_builder(request, name)


@permission_required(MACHINE_PERMISSION, raise_exception=True)
def _act_on_machine(request: HttpRequest, name: str) -> HttpResponse:
    host = get_object_or_404(Machine, name=name)
    return _act(request, host, show_machine) or redirect("machine", name=name)


@permission_required(BUILDER_PERMISSION, raise_exception=True)
def _act_on_builder(request: HttpRequest, name: str) -> HttpResponse:
    host = get_object_or_404(Builder, name=name)
    return _act(request, host, show_builder) or redirect("builder", name=name)


def _act(request: HttpRequest, host: Machine | Builder, show: Callable[..., HttpResponse]) -> HttpResponse | None:
    """None when it is done, else the page with what is wrong."""
    form = ActionForm(request.POST)
    if not form.is_valid():
        problem = " ".join(str(text) for texts in form.errors.values() for text in texts)
        return show(request, host.name, problem=problem, status=400)
    try:
        _do(host, Action(form.cleaned_data["action"]), form.cleaned_data["reason"], request.user.get_username())
    except DomainError as error:
        return show(request, host.name, problem=error.message, status=_CONFLICT)
    return None


def _do(host: Machine | Builder, action: Action, reason: str, actor: str) -> None:
    if action in _DECISIONS:
        _DECISIONS[action](host, reason, actor=actor)
    elif isinstance(host, Builder):
        raise DomainError("not-a-machine", f"{host.name} is a builder: it boots nothing")
    elif action in _VOUCH:
        _VOUCH[action](host, reason, actor=actor)
    elif action is Action.CHECK:
        care.check(host, actor=actor, reason=reason)
    else:
        care.power_cycle(host, reason, actor=actor)
