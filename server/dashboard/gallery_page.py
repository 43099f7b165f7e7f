"""Every picture of the dashboard with nothing, with little, with everything and with names that nobody would choose.
For those who work on the dashboard: only a site in debug mode has it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.dashboard.pictures import samples
from server.dashboard.pictures.course import Course
from server.dashboard.pictures.fingerprint import Fingerprint
from server.dashboard.pictures.heat_map import HeatMap
from server.dashboard.pictures.small import Narrowing, NoiseCourse, QueueBars, Staircase

_NAMES = samples.HOSTILE
# Too large to stand on one page with all others: each has a page of its own, which the bench draws.
CROWDED: Mapping[str, Callable[[], object]] = {
    "fingerprint": lambda: samples.crowded_dots(12, 400),
    "heat_map": lambda: samples.heat(60, 400),
    "course": lambda: samples.course(5000),
}
_SHOWN: Mapping[str, Mapping[str, Callable[[], object]]] = {
    "fingerprint": {
        "no data": lambda: Fingerprint((), (), 0.02),
        "one value": samples.one_dot,
        "the founding case": samples.founding,
        "hostile names": lambda: samples.founding(_NAMES),
    },
    "heat_map": {
        "no data": lambda: HeatMap((), (), ""),
        "one value": lambda: samples.heat(1, 1),
        "a tree": lambda: samples.heat(4, 9),
        "hostile names": lambda: samples.heat(6, 6, _NAMES),
    },
    "course": {
        "no data": lambda: Course((), {}, 0.02),
        "one value": lambda: samples.course(1, ("zen3",)),
        "a branch": lambda: samples.course(80),
        "hostile names": lambda: samples.course(20, _NAMES),
    },
    "staircase": {
        "no data": lambda: Staircase((), (), 0.02),
        "one value": lambda: samples.staircase(("zen3",), 1),
        "a walk": lambda: samples.staircase(("haswell", "zen3", "zen5")),
        "hostile names": lambda: samples.staircase(_NAMES),
    },
    "narrowing": {
        "no data": lambda: Narrowing(0, ()),
        "one value": lambda: samples.narrowing(2, "mm: A change"),
        "a bisection": lambda: samples.narrowing(900, "mm: A change"),
        "hostile names": lambda: samples.narrowing(20, _NAMES[4]),
    },
    "noise_course": {
        "no data": lambda: NoiseCourse(()),
        "one value": lambda: samples.noise(1),
        "a month": lambda: samples.noise(30),
    },
    "queue_bars": {
        "no data": lambda: QueueBars(datetime(2026, 11, 29, tzinfo=UTC), ()),
        "one value": lambda: samples.queue(("series 12",)),
        "a lab": lambda: samples.queue(tuple(f"series {n} on bench-{n}" for n in range(9))),
        "hostile names": lambda: samples.queue(_NAMES),
    },
}


@dataclass(frozen=True, slots=True)
class Shown:
    """One picture in one state, with the template that draws it."""

    kind: str
    state: str
    template: str
    picture: object


def _shown(kind: str, state: str, make: Callable[[], object]) -> Shown:
    return Shown(kind, state, f"dashboard/pictures/{kind}.html", make())


@require_safe
def gallery(request: HttpRequest, only: str = "") -> HttpResponse:
    if not settings.DEBUG:
        raise Http404("The gallery is part of a site in debug mode.")
    if only and only not in CROWDED:
        raise Http404(f"No picture is called {only}; there are {', '.join(CROWDED)}.")
    if only:
        shown = [_shown(only, "crowded", CROWDED[only])]
    else:
        shown = [_shown(kind, state, make) for kind, states in _SHOWN.items() for state, make in states.items()]
    return render(request, "dashboard/gallery.html", {"shown": shown, "crowded": tuple(CROWDED), "only": only})
