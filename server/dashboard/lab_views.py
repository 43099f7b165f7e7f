"""Pages of the lab: machines, builders, and what waits for them."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.core import clock
from server.dashboard.selectors import builders as build_hosts
from server.dashboard.selectors import machines as lab
from server.dashboard.selectors.machine_page import machine_page
from server.reports.queue import queue
from server.sources.models import Tree


@require_safe
def machines(request: HttpRequest) -> HttpResponse:
    context = {"now": clock.now(), "machines": lab.machine_rows()}
    return render(request, "dashboard/machines.html", context)


@require_safe
def machine(request: HttpRequest, name: str) -> HttpResponse:
    return show_machine(request, name)


def show_machine(request: HttpRequest, name: str, *, problem: str = "", status: int = 200) -> HttpResponse:
    page = machine_page(name, logs=request.user.is_staff)
    if page is None:
        raise Http404(f"There is no machine {name}.")
    context = {"now": clock.now(), "page": page, "machine": page.row, "problem": problem}
    return render(request, "dashboard/machine.html", context, status=status)


@require_safe
def builders(request: HttpRequest) -> HttpResponse:
    context = {"now": clock.now(), "builders": build_hosts.builder_rows()}
    return render(request, "dashboard/builders.html", context)


@require_safe
def builder(request: HttpRequest, name: str) -> HttpResponse:
    return show_builder(request, name)


def show_builder(request: HttpRequest, name: str, *, problem: str = "", status: int = 200) -> HttpResponse:
    page = build_hosts.builder_page(name, logs=request.user.is_staff)
    if page is None:
        raise Http404(f"There is no builder {name}.")
    context = {"now": clock.now(), "page": page, "builder": page.row, "problem": problem}
    return render(request, "dashboard/builder.html", context, status=status)


@require_safe
def waiting(request: HttpRequest) -> HttpResponse:
    trees = list(Tree.objects.order_by("name").values_list("name", flat=True))
    given = request.GET.get("tree", "")
    wanted = given if given in trees else ""
    context = {"now": clock.now(), "queue": queue(wanted), "trees": trees, "wanted": wanted}
    return render(request, "dashboard/queue.html", context)
