"""Requests and sweeps whose cost must follow what is open or shown, however long the history is."""

from collections.abc import Callable
from datetime import timedelta

from django.test import Client, override_settings

from server.core import clock
from server.detection.noise.nights import due_machines
from server.detection.noise.profiles import fresh_profiles
from server.detection.sweep import PARTS, tend_life
from server.detection.trials.effects import min_effects
from server.lab.hosts.health import awaited_kernels
from server.lab.models import Machine, Session
from server.lab.scheduling.reader import read_snapshot
from server.lab.sweep import cancel_superseded
from server.lab.sweep import sweep as recover
from server.sources.series.requests import sweep_series
from tests.long_history import NEWEST
from workers.builds import sweep as sweep_builds
from workers.detection import sweep as sweep_detection
from workers.reports import sweep as sweep_reports

Cost = Callable[[], object]
# The newest work of which a finding was told.
_WORK = NEWEST - 6
_PAGES = (
    "/",
    f"/series/?mail=m{_WORK}-2@x",
    f"/series/{_WORK}/",
    "/findings/?state=candidate",
    "/machines/",
    "/machines/old-3/",
    "/trees/stable/",
    "/trees/stable/branches/master/",
    f"/timelines/{NEWEST}/",
    "/builders/",
    "/builders/old-builder/",
    "/queue/",
    "/status/",
    f"/builds/{2 * _WORK}/",
    f"/sessions/{4 * _WORK}/",
    f"/messages/{10 * _WORK}/",
)
_LISTS = (
    "series/?page_size=10",
    f"series/?message_id=m{_WORK}-2@x",
    "series/?state=incomplete",
    "series/?base_certain=false",
    "series/?list=none",
    "series/?since={soon}",
    "sessions/",
    "sessions/?state=planned",
    "sessions/?purpose=health",
    "sessions/?machine=none",
    "sessions/?since={soon}",
    "builds/",
    "builds/?state=wanted",
    "builds/?config=none",
    "builds/?tree=none",
    "builds/?arch=none",
    "builds/?build_id=none",
    "builds/?text_hash=none",
    "builds/?since={soon}",
    "attempts/",
    "attempts/?active=true",
    "attempts/?adapter=null",
    "attempts/?builder=none",
    "attempts/?since={soon}",
    "findings/",
    "findings/?kind=split",
    "findings/?regressed_on=none",
    "findings/?since={soon}",
    "findings/?commit=fffffff",
    "builds/?sha=fffffff",
    "messages/",
    "head-moves/",
    "wanted-revisions/",
)
ADMIN = ("lab/session", "lab/boot", "lab/attempt", "lab/trial", "sources/series", "builds/build", "core/transition")


def costs(client: Client) -> dict[str, Cost]:
    """By name. The client is a logged in one, for the admin's pages."""
    soon = (clock.now() + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    asked = [*_PAGES, *(f"/api/v1/{path.format(soon=soon)}" for path in _LISTS)]
    asked += [f"/admin/{path}/" for path in ADMIN]
    names = [*_PAGES, *(f"/api/v1/{path}" for path in _LISTS), *(f"/admin/{path}/" for path in ADMIN)]
    return {name: _get(client, path) for name, path in zip(names, asked, strict=True)} | _SWEEPS


def _get(client: Client, path: str) -> Cost:
    def get() -> None:
        response = client.get(path)
        assert response.status_code == 200, (path, response.status_code)

    return get


def _noise() -> None:
    with override_settings(NOISE_HOURS=24.0):
        list(due_machines())


def _effects() -> None:
    min_effects([Session.objects.filter(machine__name="old-3").order_by("-id")[0]])


_SWEEPS: dict[str, Cost] = {
    "sources.sweep": sweep_series,
    "builds.sweep": sweep_builds,
    "lab.sweep: superseded work": cancel_superseded,
    "lab.sweep: hosts and power": recover,
    "lab.dispatch: snapshot": read_snapshot,
    "detection.sweep": sweep_detection,
    "detection.tend: noise": _noise,
    "detection.tend: heads": PARTS["heads"],
    "detection.tend: bisections": PARTS["bisections"],
    "detection.tend: life": tend_life,
    "reports.sweep": sweep_reports,
    "awaited kernels": awaited_kernels,
    "noise profiles of a machine": lambda: fresh_profiles(Machine.objects.get(name="old-3")),
    "minimum effects of a session": _effects,
}
