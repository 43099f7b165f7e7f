"""The page of one session."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from server.core import clock
from server.core.rows.together import read_together
from server.dashboard.frame.kept_pages import kept
from server.dashboard.lab.work_now import SessionProgressLine, session_line_of
from server.dashboard.rows import charts, verdicts
from server.dashboard.rows.machine_facts import (
    Fact,
    SettingRow,
    differing_facts,
    differing_settings,
    readable_facts,
    readable_settings,
)
from server.dashboard.rows.work import AttemptRow, History, attempt_rows, history
from server.detection.findings.table import session_cells
from server.detection.models import Comparison, Verdict
from server.lab.hosts.probes import facts_of_boots
from server.lab.models import Boot, Conditions, Facts, Session
from server.lab.trials.question import purpose_of
from server.reports.progress import session_history

# Of each boot; whoever owns a machine may send thousands, with as many reasons.
_MOST_NOTES, _LONGEST_NOTE = 20, 300
# A document of facts may have some hundred kB.
_MOST_DOCUMENTS = 8
_LONG_OF_BUILD = ("log_tail", "first_error", "config__fragment")


@dataclass(frozen=True, slots=True)
class Note:
    """Cases that gave no measurement in a boot, all with the same reason; `case` names the first."""

    case: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class BootRow:
    id: int
    position: int
    arm: str
    state: str
    state_label: str
    reason: str
    retries: int
    boot_id: str
    build_id: str
    proved: bool
    kernel_release: str
    started_at: datetime | None
    ended_at: datetime | None
    seconds: float | None
    notes: tuple[Note, ...]
    console_tail: str


@dataclass(frozen=True, slots=True)
class Kernel:
    arm: str
    build: int
    state: str
    sha: str
    subject: str
    config: str
    compiler: str
    build_id: str


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """`series_id` is None for a session that checks its machine, one kernel on both sides, and for other trials.

    `asked` says what it is for in any case.
    """

    id: int
    series_id: int | None
    series_subject: str
    purpose: str
    asked: str
    machine: str
    uarch: str
    virtual: bool
    clock: str
    boot_driver: str
    state: str
    state_label: str
    state_since: datetime
    reason: str
    trace: str
    needs: tuple[str, ...]
    priority: int
    wanted_by: datetime | None
    kernels: tuple[Kernel, ...]
    boots: tuple[BootRow, ...]
    attempts: tuple[AttemptRow, ...]
    facts: tuple[Fact, ...]
    differing: tuple[str, ...]
    settings: tuple[SettingRow, ...]
    differing_settings: tuple[str, ...]
    history: History
    told: tuple[tuple[str, int], ...]
    line: SessionProgressLine

    @property
    def measured(self) -> int:
        return sum(boot.state == Boot.State.MEASURED for boot in self.boots)


def session_facts(session_id: int, *, logs: bool) -> SessionFacts | None:
    """`logs` are those of its attempts' agents."""
    related = ("machine__uarch", "series__base", "series__head", "trial")
    kernels = ("base_build__revision", "base_build__config", "patched_build__revision", "patched_build__config")
    long = [f"{build}__{name}" for build in ("base_build", "patched_build") for name in _LONG_OF_BUILD]
    query = Session.objects.select_related(*related, *kernels).defer("series__trailers", *long)
    session = query.filter(pk=session_id).first()
    if session is None:
        return None
    of_session = Boot.objects.filter(session=session)
    boots = list(of_session.order_by("position"))
    releases, consoles, told = [dict[Any, Any](rows) for rows in read_together(*_asked(session))]
    first = next(({boot.pk} for boot in boots if boot.facts_id is not None), set[int]())
    facts = facts_of_boots(of_session.filter(pk__in=first))
    settings = _settings(session)
    first_settings = next(settings, [])
    return SessionFacts(
        id=session.pk,
        series_id=session.series_id,
        series_subject=session.series.subject if session.series else "",
        purpose=session.purpose,
        asked=purpose_of(session),
        machine=session.machine.name,
        uarch=session.machine.uarch.name,
        virtual=session.machine.virtual,
        clock=session.machine.clock,
        boot_driver=session.machine.boot_driver,
        state=session.state,
        state_label=Session.State(session.state).label,
        state_since=session.state_since,
        reason=session.reason,
        trace=session.trace,
        needs=tuple(session.needs),
        priority=session.priority,
        wanted_by=session.deadline_at,
        kernels=_kernels(session),
        boots=tuple(_boot(boot, session, releases.get(boot.pk), consoles.get(boot.pk, "")) for boot in boots),
        attempts=attempt_rows(Q(session=session), logs=logs),
        facts=readable_facts(next(iter(facts.values()), {})),
        differing=differing_facts(_documents(boots)),
        settings=readable_settings(first_settings),
        differing_settings=differing_settings(chain([first_settings], settings)),
        history=history(session_history(session), fold=False),
        told=tuple((str(verdict), told[verdict]) for verdict in _VERDICTS if verdict in told),
        line=session_line_of(session, Counter(boot.state for boot in boots)),
    )


def _asked(session: Session) -> "tuple[QuerySet[Any, Any], ...]":
    """What kernels its boots told, what those that failed wrote last, and how many of its cells have each verdict."""
    conditions = Conditions.objects.filter(boot__session=session)
    failed = conditions.filter(boot__state=Boot.State.FAILED)
    judged = Comparison.objects.filter(session=session).order_by().values_list("verdict")
    releases = conditions.values_list("boot", "facts__kernel_release")
    return releases, failed.values_list("boot", "console_tail"), judged.annotate(Count("pk"))


def _documents(boots: Sequence[Boot]) -> list[object]:
    """What the probes saw, once for all boots that showed the same; boots of one machine hardly ever differ."""
    shown = dict.fromkeys(boot.facts_id for boot in boots if boot.facts_id is not None)
    chosen = list(islice(shown, _MOST_DOCUMENTS))
    found = dict(Facts.objects.filter(pk__in=chosen).values_list("pk", "document")) if len(chosen) > 1 else {}
    return [found[pk] for pk in chosen if pk in found]


def _settings(session: Session) -> Iterator[object]:
    """What the measured boots told of their settings, and nothing else of their conditions; one at a time is parsed."""
    told = Conditions.objects.filter(boot__session=session, boot__state=Boot.State.MEASURED).order_by("boot__position")
    every = told.values_list("document__settings", flat=True).iterator(chunk_size=1)
    return (settings for settings in every if settings)


def _kernels(session: Session) -> tuple[Kernel, ...]:
    return tuple(
        Kernel(
            arm=arm,
            build=build.pk,
            state=build.state,
            sha=build.revision.sha,
            subject=build.revision.subject,
            config=build.config.name,
            compiler=build.compiler_version,
            build_id=build.build_id,
        )
        for arm, build in (("base", session.base_build), ("patched", session.patched_build))
    )


def _boot(boot: Boot, session: Session, release: object, console: str) -> BootRow:
    wanted = session.base_build if boot.arm == Boot.Arm.BASE else session.patched_build
    over = boot.started_at is not None and boot.ended_at is not None
    return BootRow(
        id=boot.pk,
        position=boot.position,
        arm=boot.arm,
        state=boot.state,
        state_label=Boot.State(boot.state).label,
        reason=boot.reason,
        retries=boot.retries,
        boot_id=boot.boot_id,
        build_id=boot.build_id,
        proved=bool(boot.build_id) and boot.build_id == wanted.build_id,
        kernel_release=_cut(release) if isinstance(release, str) else "",
        started_at=boot.started_at,
        ended_at=boot.ended_at,
        seconds=(boot.ended_at - boot.started_at).total_seconds()
        if over and boot.ended_at and boot.started_at
        else None,
        notes=_notes(boot.notes),
        console_tail=console,
    )


def _notes(notes: object) -> tuple[Note, ...]:
    """One for each way in which cases ended: a machine without some node or program skips hundreds, in every boot."""
    if not isinstance(notes, list):
        return ()
    alike: dict[tuple[str, str], dict[str, None]] = {}
    for note in (note for note in notes if isinstance(note, dict)):
        case = f"{note.get('benchmark', '')}/{note.get('case', '')}"
        alike.setdefault((str(note.get("outcome", "")), str(note.get("reason", ""))), {})[case] = None
    told = [
        Note(_cut(_first(list(cases))), _cut(outcome), _cut(reason))
        for (outcome, reason), cases in islice(alike.items(), _MOST_NOTES)
    ]
    if len(alike) > _MOST_NOTES:
        told.append(Note(f"{len(alike) - _MOST_NOTES} more", "", "in the API"))
    return tuple(told)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_NOTE else f"{text[:_LONGEST_NOTE]} …"


def _first(cases: Sequence[str]) -> str:
    return cases[0] if len(cases) == 1 else f"{cases[0]} and {len(cases) - 1} more"


_LONGEST_NUMBER = 10
# Those that claim a change come first.
_VERDICTS = (Verdict.REGRESSED, Verdict.IMPROVED, Verdict.INCONCLUSIVE, Verdict.UNCHANGED)


@require_safe
@kept
def session(request: HttpRequest, session_id: int) -> HttpResponse:
    facts = session_facts(session_id, logs=request.user.is_staff)
    if facts is None:
        raise Http404(f"There is no session {session_id}.")
    if "charts" in request.GET:
        # The charts were here once, and links to them are in mails.
        return redirect(f"{reverse('session-values', args=[session_id])}?{request.GET.urlencode()}", permanent=True)
    cells, unshown = session_cells(facts.id)
    context = {
        "now": clock.now(),
        "session": facts,
        "line": facts.line,
        "told": facts.told,
        "log": next((one.log for one in reversed(facts.attempts) if one.log), ""),
        "lines": verdicts.lines(cells),
        "unshown": unshown,
    }
    return render(request, "dashboard/session.html", context)


@require_safe
@kept
def session_values(request: HttpRequest, session_id: int) -> HttpResponse:
    """Every value of its boots as dots, as many charts at a time as one page can bear."""
    row = Session.objects.select_related("machine").annotate(planned=Count("boots")).filter(pk=session_id).first()
    if row is None:
        raise Http404(f"There is no session {session_id}.")
    drawing = charts.charts({row.pk: row.planned}, first=_number(request.GET.get("charts", "")))
    context = {
        "now": clock.now(),
        "session": row,
        "cases": charts.by_case(drawing.charts),
        "drawing": drawing,
        "chart_data": [chart.data() for chart in drawing.charts],
    }
    return render(request, "dashboard/session_values.html", context)


def _number(given: str) -> int:
    return int(given) if given.isascii() and given.isdecimal() and len(given) < _LONGEST_NUMBER else 0
