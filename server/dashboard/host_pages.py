"""Pages of one machine, of builders, and what people with the right do there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from django import forms
from django.contrib.auth.views import redirect_to_login
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.cache import add_never_cache_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from server.core import clock
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.core.rows.together import Row, read_together
from server.dashboard.frame.access import needs, refuse_others
from server.dashboard.frame.kept_pages import kept
from server.dashboard.lab.builder_lines import builder_page, builder_rows
from server.dashboard.lab.machine_lines import (
    MachineLine,
    asked_of_lines,
    machine_line,
    noise_course,
    sessions_of_course,
    with_cycling,
)
from server.dashboard.lab.queue_page import QueueLine, queue_lines
from server.dashboard.pictures.small import NoiseCourse
from server.dashboard.rows.host_status import (
    BUILDER_PERMISSION,
    MACHINE_PERMISSION,
    Action,
    Actions,
    Audit,
    MachineRow,
    PowerCycleRow,
    SessionRow,
    actions_of,
    asked_of_audit,
    asked_of_people,
    audit,
    machine_row,
    power_cycle_rows,
    power_cycles,
    session_rows,
)
from server.dashboard.rows.machine_facts import Fact, readable_facts
from server.dashboard.rows.work import AttemptRow, attempt_rows, unclaimed_rows
from server.detection.noise.profiles import (
    AlarmRate,
    NoiseRow,
    QuestionRow,
    noise_of_machine,
    question_rows,
    questions_of,
    rate_of,
)
from server.lab import care
from server.lab.hosts.enrolments import Code, make_code
from server.lab.hosts.probes import HardwareChange, Standing, facts_of_machine, latest_changes, standing
from server.lab.models import Attempt, Builder, CoreType, Facts, Machine
from server.lab.port import Node, dispatcher
from server.lab.scheduling.forecast import read_forecast
from server.reports.progress import Queue, queue
from server.sources.models import Tree

_LATEST_SESSIONS = 25
# Older changes of a machine stay in the history of states.
_CHANGES = 5
_CORE_TYPES = 16
# The others are in the API.
_MOST_NOISE = 200


@dataclass(frozen=True, slots=True)
class MachineNoise:
    """What it shows between equal kernels, and what people should look at."""

    alarms: AlarmRate
    cells: tuple[NoiseRow, ...]
    unshown: int
    course: NoiseCourse
    questions: tuple[QuestionRow, ...]


@dataclass(frozen=True, slots=True)
class MachineNow:
    """What of the page changes from minute to minute."""

    row: MachineRow
    line: MachineLine
    node: Node | None
    safe: bool | None
    waiting: Queue
    coming: tuple[QueueLine, ...]

    @property
    def next(self) -> QueueLine | None:
        """What goes first of what waits."""
        return self.coming[0] if self.coming else None


@dataclass(frozen=True, slots=True)
class MachinePage(MachineNow):
    standing: Standing
    config: str
    toolchain: str
    boots_per_side: int
    health_build: int | None
    fingerprint: str
    core_types: tuple[tuple[str, str], ...]
    options: tuple[Fact, ...]
    facts: tuple[Fact, ...]
    changes: tuple[HardwareChange, ...]
    actions: Actions
    audit: Audit
    power_cycles: tuple[PowerCycleRow, ...]
    active: tuple[AttemptRow, ...]
    unclaimed: tuple[AttemptRow, ...]
    sessions: tuple[SessionRow, ...]
    noise: MachineNoise


class _Told(NamedTuple):
    """Rows, each list of its own question about one machine; `lines` are for its line, `audit` for its history."""

    lines: Sequence[Sequence[Row]]
    trees: Sequence[Row]
    audit: Sequence[Sequence[Row]] = ()
    core_types: Sequence[Row] = ()
    fingerprints: Sequence[Row] = ()
    cycles: Sequence[Row] = ()
    changes: Sequence[Row] = ()
    questions: Sequence[Row] = ()
    people: Sequence[Row] = ()
    equal: Sequence[Row] = ()


def _told(machine: Machine) -> _Told:
    # Of the last boot that told its facts.
    latest = Facts.objects.filter(boots__session__machine=machine).order_by("-boots__id").values_list("fingerprint")
    opened, profiles, asked, trees, health, state, kind, codes, *rest = read_together(
        *asked_of_lines(Q(machine=machine)),
        _trees(),
        *asked_of_audit(machine),
        CoreType.objects.filter(machine=machine).values_list("name", "cpus")[:_CORE_TYPES],
        latest[:1],
        power_cycles(Q(machine=machine)),
        latest_changes(machine, limit=_CHANGES),
        questions_of(machine),
        asked_of_people(MACHINE_PERMISSION),
        sessions_of_course(machine),
    )
    return _Told((opened, profiles, asked), trees, (health, state, kind, codes), *rest)


def _told_now(machine: Machine) -> _Told:
    *lines, trees = read_together(*asked_of_lines(Q(machine=machine)), _trees())
    return _Told(lines, trees)


def _trees() -> "QuerySet[Any, Any]":
    return Tree.objects.order_by().values_list("pk", "name")


def machine_page(name: str, *, logs: bool) -> MachinePage | None:
    machine = _named(name)
    if machine is None:
        return None
    active = Q(session__machine=machine) | Q(power_cycle__machine=machine)
    told, facts = _told(machine), facts_of_machine(machine)
    return MachinePage(
        **_now_of(machine, told),
        standing=standing(machine),
        config=machine.config.name,
        toolchain=machine.toolchain.name,
        boots_per_side=machine.boots_per_side,
        health_build=machine.health_build_id,
        fingerprint=told.fingerprints[0][0] if told.fingerprints else "",
        core_types=tuple(map(tuple, told.core_types)),
        options=readable_facts(machine.driver_options),
        facts=readable_facts(facts),
        changes=tuple(HardwareChange(*row) for row in told.changes),
        actions=actions_of(machine, len(told.people)),
        audit=audit(told.audit),
        power_cycles=power_cycle_rows(told.cycles),
        active=attempt_rows(active & Q(state__in=Attempt.ACTIVE), logs=logs),
        unclaimed=unclaimed_rows(Q(machine=machine)) if logs else (),
        sessions=session_rows(Q(machine=machine), limit=_LATEST_SESSIONS),
        noise=_noise(machine, told),
    )


def machine_now(name: str) -> MachineNow | None:
    machine = _named(name)
    return MachineNow(**_now_of(machine, _told_now(machine))) if machine else None


def _named(name: str) -> Machine | None:
    named = Machine.objects.select_related("uarch", "config", "toolchain", "facts").defer("config__fragment")
    return with_cycling(named).filter(name=name).first()


def _now_of(machine: Machine, told: _Told) -> dict[str, Any]:
    forecast = read_forecast()
    waiting = queue(machine=machine.name, waiting_now=forecast.waiting, trees=dict(told.trees))
    line = machine_line(machine, forecast, told.lines)
    return {
        "row": machine_row(machine, line.now.id if line.now else None, waiting.total),
        "line": line,
        "node": dispatcher().node(machine.node_name),
        "safe": machine.safe,
        "waiting": waiting,
        "coming": queue_lines(waiting, forecast),
    }


def _noise(machine: Machine, told: _Told) -> MachineNoise:
    cells, unshown = noise_of_machine(machine, _MOST_NOISE)
    counts = next(([comparisons, alarms, p] for _, comparisons, alarms, p, _ in told.lines[1]), [0, 0, 0])
    course = noise_course([pk for (pk,) in told.equal])
    return MachineNoise(rate_of(machine, counts), cells, unshown, course, question_rows(told.questions))


@require_safe
@kept
def machine(request: HttpRequest, name: str) -> HttpResponse:
    return show_machine(request, name)


def show_machine(
    request: HttpRequest, name: str, *, problem: str = "", status: int = 200, code: Code | None = None
) -> HttpResponse:
    page = machine_page(name, logs=request.user.is_staff)
    if page is None:
        raise Http404(f"There is no machine {name}.")
    context = {"now": clock.now(), "page": page, "machine": page.row, "problem": problem, "code": code}
    return render(request, "dashboard/machine.html", context, status=status)


@require_safe
@never_cache
def machine_live(request: HttpRequest, name: str) -> HttpResponse:
    """The part of a machine's page that renews itself."""
    page = machine_now(name)
    if page is None:
        raise Http404(f"There is no machine {name}.")
    context = {"now": clock.now(), "page": page, "machine": page.row, "line": page.line, "next": page.next}
    return render(request, "dashboard/_machine_now.html", context)


@require_safe
def builders(request: HttpRequest) -> HttpResponse:
    context = {"now": clock.now(), "builders": builder_rows()}
    return render(request, "dashboard/builders.html", context)


@require_safe
def builder(request: HttpRequest, name: str) -> HttpResponse:
    return show_builder(request, name)


def show_builder(
    request: HttpRequest, name: str, *, problem: str = "", status: int = 200, code: Code | None = None
) -> HttpResponse:
    page = builder_page(name, logs=request.user.is_staff)
    if page is None:
        raise Http404(f"There is no builder {name}.")
    context = {"now": clock.now(), "page": page, "builder": page.row, "problem": problem, "code": code}
    return render(request, "dashboard/builder.html", context, status=status)


class ActionForm(forms.Form):
    action = forms.ChoiceField(
        choices=[(action.value, action.value) for action in Action], error_messages={"required": "Say what to do."}
    )
    reason = forms.CharField(max_length=500, strip=True, error_messages={"required": "Say why."})


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
        return redirect_to_login(reverse("machine", args=[name]), reverse("login"))
    return _act_on_machine(request, name)


@require_POST
def act_on_builder(request: HttpRequest, name: str) -> HttpResponse:
    if not request.user.is_authenticated:
        return redirect_to_login(reverse("builder", args=[name]), reverse("login"))
    return _act_on_builder(request, name)


@needs(MACHINE_PERMISSION)
def _act_on_machine(request: HttpRequest, name: str) -> HttpResponse:
    host = get_object_or_404(Machine, name=name)
    return _act(request, host, show_machine) or redirect("machine", name=name)


@needs(BUILDER_PERMISSION)
def _act_on_builder(request: HttpRequest, name: str) -> HttpResponse:
    host = get_object_or_404(Builder, name=name)
    return _act(request, host, show_builder) or redirect("builder", name=name)


def _act(request: HttpRequest, host: Machine | Builder, show: Callable[..., HttpResponse]) -> HttpResponse | None:
    """None when it is done, else the page with what is wrong."""
    form = ActionForm(request.POST)
    if not form.is_valid():
        problem = " ".join(str(text) for texts in form.errors.values() for text in texts)
        return show(request, host.name, problem=problem, status=400)
    action, reason = Action(form.cleaned_data["action"]), form.cleaned_data["reason"]
    try:
        if action is Action.ENROL:
            return _show_code(request, host, show, reason)
        _do(host, action, reason, request.user.get_username())
    except DomainError as error:
        return show(request, host.name, problem=error.message, status=_CONFLICT)
    return None


def _show_code(
    request: HttpRequest, host: Machine | Builder, show: Callable[..., HttpResponse], reason: str
) -> HttpResponse:
    """On this page alone, and for staff: who has it is taken for the host."""
    refuse_others(request)
    scope = ApiToken.Scope.MACHINE if isinstance(host, Machine) else ApiToken.Scope.BUILDER
    code = make_code(host.name, scope, actor=request.user.get_username(), reason=reason)
    answer = show(request, host.name, code=code)
    add_never_cache_headers(answer)
    return answer


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
