"""What is asked: every page and every reading address of the API by its route, and the hard questions by name."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import URLPattern, URLResolver, get_resolver, reverse

from bench.api.site import Site
from server.builds.models import Artifact
from server.detection.models import Finding, Timeline
from server.lab.models import Session
from server.reports.models import Report
from server.sources.models import Message, Revision

_API, _AGENTS = "api/v1/", "api/v1/agent/"
# What answers nothing by intent, what does not end, and what only a site in debug mode has.
_OF_SUBSCRIPTION = ("subscription-end", "subscription-change", "subscription-secret")
_LEFT_OUT = frozenset({"api-nothing-here", "api-transitions", "api-subscription-list", "gallery", "gallery-crowded"})
MOST_QUERIES = 8
PAGE_MS = 500.0


@dataclass(frozen=True)
class Route:
    name: str
    path: str
    takes: tuple[str, ...]

    @property
    def is_list(self) -> bool:
        return self.path.startswith(_API) and self.name.endswith("-list")


@dataclass(frozen=True)
class Question:
    """One address, the most milliseconds of its p95 with all clients at once, and the most queries (None: any)."""

    name: str
    path: str
    most_ms: float = PAGE_MS
    most_queries: int | None = None
    # An answer without content is one as well: of files that were removed.
    statuses: tuple[int, ...] = (200,)


def routes() -> list[Route]:
    """All that is read of the service but the admin's and the agents', in the order of the addresses."""
    return [
        route
        for route in _walk("", get_resolver().url_patterns)
        if not route.path.startswith(("admin/", _AGENTS)) and route.name not in _LEFT_OUT
    ]


def _walk(before: str, patterns: Sequence[URLPattern | URLResolver]) -> Iterator[Route]:
    for pattern in patterns:
        path = f"{before}{pattern.pattern}"
        if isinstance(pattern, URLResolver):
            yield from _walk(path, pattern.url_patterns)
        elif hasattr(getattr(pattern.callback, "cls", None), "get") or not hasattr(pattern.callback, "cls"):
            # What can only be posted is no page.
            yield Route(pattern.name or path, path, tuple(pattern.pattern.converters))


Arguments = Mapping[str, str | int]


def unknown(examples: Mapping[str, Arguments]) -> list[str]:
    """Routes that want something named, and of which no example is known: what they cost is not measured."""
    return [route.name for route in routes() if set(route.takes) - set(examples.get(route.name, {}))]


_OF_SERIES = ("series", "series-image", "series-table", "series-progress", "series-approve")
_OF_SESSION = ("session", "session-values", "session-progress", "session-log")


def examples(site: Site, timeline: int) -> dict[str, Arguments]:
    """Of each route that names something, the dearest that the site has; `timeline` is one of many points."""
    session = Session.objects.filter(trial__series=site.wide).order_by("id")[0]
    series, finding = {"pk": site.wide.pk}, {"pk": site.wide.finding.pk}
    machine, builder, build = session.machine.name, "old-builder", session.patched_build_id
    report = Report.objects.order_by("-id").values_list("pk", flat=True).first() or 0
    message = Message.objects.filter(kind="patch").order_by("-id")[0].pk
    in_branch = Finding.objects.filter(culprit__isnull=False).order_by("id").values_list("pk", flat=True).first()
    return {
        "api-series-detail": series,
        "api-series-patches": series,
        "api-series-history": series,
        "api-series-approval": series,
        "api-series-case": {**series, "benchmark": "mm-basic", "case": "fault-4k"},
        "api-session-detail": {"pk": session.pk},
        "api-session-cells": {"pk": session.pk},
        "api-session-samples": {"pk": session.pk},
        "api-machine-detail": {"name": machine},
        "api-machine-noise": {"name": machine},
        "api-builder-detail": {"name": builder},
        "api-finding-detail": finding,
        **{f"api-finding-{name}": finding for name in ("patchwork", "kcidb", "trailers")},
        # Of a branch: a series that is not merged is no regression of a tree.
        "api-finding-regzbot": {"pk": in_branch or site.wide.finding.pk},
        "api-finding-case": {**finding, "benchmark": "mm-basic", "case": "fault-4k"},
        "api-timeline-detail": {"pk": timeline},
        "api-build-detail": {"pk": build},
        "api-build-again": {"pk": build},
        "api-attempt-detail": {"key": f"session-{Session.objects.order_by('-pk')[0].pk}-1"},
        "api-tree-detail": {"name": "stable"},
        "api-message-detail": {"pk": message},
        **{name: {"series_id": site.wide.pk} for name in _OF_SERIES},
        **{name: {"session_id": session.pk} for name in _OF_SESSION},
        "series-part": {"series_id": site.wide.pk, "part": "figures"},
        "finding": {"finding_id": site.wide.finding.pk},
        "finding-part": {"finding_id": site.wide.finding.pk, "part": "figures"},
        "finding-image": {"finding_id": site.wide.finding.pk},
        "finding-table": {"finding_id": site.wide.finding.pk},
        "trade-off-withdraw": {"line_id": 1},
        "mail": {"report_id": report},
        "mail-act": {"report_id": report},
        **{name: {"subscription_id": 1} for name in _OF_SUBSCRIPTION},
        "build": {"build_id": build},
        "build-progress": {"build_id": build},
        "build-again": {"build_id": build},
        "artifact": {"build_id": build, "kind": Artifact.Kind.IMAGE},
        "machine": {"name": machine},
        "machine-now": {"name": machine},
        "machine-act": {"name": machine},
        "builder": {"name": builder},
        "builder-act": {"name": builder},
        "tree": {"name": "stable"},
        "tree-feed": {"name": "stable"},
        "branch": {"name": "mainline", "branch_name": "daily"},
        **{name: {"timeline_id": timeline} for name in ("timeline", "timeline-course")},
        "message": {"message_id": message},
        "message-text": {"message_id": message},
        "message-raw": {"message_id": message},
    }


# What stands beside the usual page of a list, by the route's name.
_BARS = {"api-finding-list": 60.0, "api-finding-detail": 60.0, "api-timeline-detail": 80.0, "api-compare": 250.0}
# An address that asks for something gets a question of its own.
_ASKS_FOR = frozenset({"api-compare", "api-measurement-list", "api-timeline", "api-what-if"})
_OVER = (200, 286)
_OTHERWISE: Mapping[str, tuple[int, ...]] = {
    "artifact": (200, 404, 410),
    # A part of a page whose work is over is not asked for again.
    "series-progress": _OVER,
    "session-progress": _OVER,
    "build-progress": _OVER,
    # For people of the lab.
    "session-log": (404,),
    # Of who is signed in.
    "subscriptions": (302,),
    "service": (302,),
    # Through a web server only who has its token is told.
    "metrics": (200, 403),
    # A site whose operator built no agent hands none out.
    "agent": (200, 404),
    # A single answer is gone to at once.
    "search": (200, 302),
}


def questions(site: Site) -> list[Question]:
    """Every route once, then the hard ones. What can only be posted is not measured; that a route
    wants a name of which no example is known, is a test's to find.
    """
    known = examples(site, Timeline.objects.filter(branch__name="daily").order_by("id")[0].pk)
    plain = [
        Question(
            f"{route.name}",
            reverse(route.name, kwargs=dict(known.get(route.name, {}))),
            _BARS.get(route.name, PAGE_MS),
            MOST_QUERIES if route.is_list else None,
            _OTHERWISE.get(route.name, (200,)),
        )
        for route in routes()
        if route.name not in _ASKS_FOR and not set(route.takes) - set(known.get(route.name, {}))
    ]
    return [*plain, *_hard(site)]


def _hard(site: Site) -> Iterator[Question]:
    series = site.wide
    assert series.base is not None
    assert series.head is not None
    yield Question(
        "compare over 2040 cells",
        f"{reverse('api-compare')}?{urlencode({'base': series.base.sha, 'patched': series.head.sha})}",
        _BARS["api-compare"],
    )
    timeline = Timeline.objects.select_related("branch", "machine", "case", "metric").filter(branch__name="daily")
    one = timeline.order_by("id")[0]
    named = {"branch": one.branch.name, "machine": one.machine.name, "case": one.case.name, "metric": one.metric.name}
    yield Question("timeline of a case", f"{reverse('api-timeline')}?{urlencode(named)}", _BARS["api-timeline-detail"])
    yield Question("sessions of a mail", f"{reverse('api-session-list')}?message_id=m999000-2@x", PAGE_MS, MOST_QUERIES)
    there = {route.name for route in routes()}
    asked = {**_asked(site), **_asked_of_pages(site, series.head.sha)}
    for name, sets in asked.items():
        for given in sets if name in there else ():
            most = _BARS.get(name, PAGE_MS) if "page_size" not in given else PAGE_MS
            queries = MOST_QUERIES if name.startswith("api-") else None
            # A list that is asked for something has the bar of the list.
            words = " ".join(f"{key}={str(value)[:20]}" for key, value in given.items())
            yield Question(
                f"{name} {words}", f"{reverse(name)}?{urlencode(given)}", most, queries, _OTHERWISE.get(name, (200,))
            )


def _asked(site: Site) -> dict[str, tuple[dict[str, str | int], ...]]:
    """What lists are asked for, by the route's name."""
    session = Session.objects.filter(trial__series=site.wide).order_by("id")[0]
    patched = Revision.objects.order_by("-id")[0]
    found = Revision.objects.filter(findings_of_it__isnull=False).order_by("id")[0]
    return {
        "api-finding-list": (
            {"regressed_on": "uarch-1"},
            {"regressed_on": "uarch-1", "since": "2024-01-01T00:00:00Z"},
            {"regressed_on": "uarch-1", "improved_on": "uarch-2"},
            {"improved_on": "uarch-3", "effect": "0.05"},
            {"effect": "0.15"},
            {"effect": "0.9"},
            {"parameter": "size:4k"},
            {"regressed_on": "uarch-1", "parameter": "threads:64", "effect": "0.1"},
            {"machine": "old-7", "benchmark": "bench-3"},
            {"benchmark": "bench-3", "case": "case-5", "metric": "time", "effect": "0.5"},
            {"path": "mm/file-7.c"},
            {"path": "no/such/file"},
            {"uarch": "uarch-11"},
            {"author": "author-17@x"},
            {"tree": "stable"},
            {"commit": found.sha[:12]},
            {"state": "reported", "kind": "split"},
            {"page_size": "500"},
            {"cursor": _deep(998_000)},
        ),
        "api-series-list": (
            {"path": "mm/file-7.c"},
            {"path": "no/such/file"},
            {"author": "author-17@x"},
            {"finding": "split"},
            {"tree": "stable"},
            {"message_id": "m999000-2@x"},
            {"page_size": "100"},
        ),
        "api-session-list": ({"machine": "old-7"}, {"uarch": "uarch-7"}, {"page_size": "500"}),
        "api-build-list": ({"sha": patched.sha[:12]}, {"tree": "stable"}, {"page_size": "500"}),
        "api-measurement-list": (
            {"session": session.pk},
            {"session": session.pk, "case": "fault-4k", "metric": "time"},
            {"session": session.pk, "arm": "patched", "parameter": "size:4k"},
            {"session": session.pk, "page_size": "500"},
        ),
        "api-timeline-list": (
            {"tree": "mainline", "uarch": "uarch-1"},
            {"machine": "old-7"},
            {"parameter": "size:4k"},
            {"page_size": "500"},
        ),
        "api-message-list": ({"cursor": _deep(9_990_000)}, {"page_size": "500"}),
        "api-attempt-list": ({"machine": "old-7"}, {"active": "true"}),
        "api-delivery-list": ({"waiting": "true"}, {"page_size": "500"}),
        "api-report-list": ({"page_size": "500"},),
        "api-mail-command-list": ({"state": "ignored"}, {"page_size": "500"}),
        "api-case-list": ({"parameter": "size:4k"}, {"page_size": "500"}),
        "api-what-if": ({"machine": session.machine.name, "boots": 4},),
    }


def _asked_of_pages(site: Site, sha: str) -> dict[str, tuple[dict[str, str | int], ...]]:
    """What pages are asked for."""
    base = site.wide.base.sha if site.wide.base is not None else ""
    return {
        "finding-list": (
            {"state": "reported"},
            {"page": "2"},
            {"regressed_on": "uarch-1"},
            {"regressed_on": "uarch-1", "improved_on": "uarch-2"},
            {"path": "mm/file-7.c"},
            {"author": "author-17@x"},
        ),
        "compare": ({"base": base, "patched": sha},),
        "search": ({"q": sha[:12]}, {"q": "m999000-2@x"}, {"q": "old-7"}, {"q": "author-17@x"}, {"q": "folio"}),
        "series-list": ({"page": "2"},),
    }


def _deep(position: int) -> str:
    """A cursor of the API that goes on below that id."""
    return b64encode(urlencode({"p": position}).encode()).decode()
