"""`/metrics`: the site's standing as Prometheus reads it.

Every number is asked for when somebody reads, so that it is the same whichever web process answers.
"""

import hmac
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from server.operations.standing import WAITS, BrokerStanding, SiteStanding, standing

_LOOPBACK = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
_LOCAL_NAMES = _LOOPBACK | {"localhost"}
# What proxies add to what they pass on.
_PASSED_ON = ("Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto")


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """With the token of TIDEMARK_METRICS_TOKEN_FILE, or for this host where the site is on no other: it tells how large
    a site is, and what is amiss there.
    """
    if not _may_read(request):
        body = {
            "type": "urn:tidemark:forbidden",
            "title": "Metrics are for whoever shows the token of TIDEMARK_METRICS_TOKEN_FILE.",
            "status": 403,
            "code": "forbidden",
        }
        return JsonResponse(body, status=403, content_type="application/problem+json")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StandingCollector(standing()))
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _may_read(request: HttpRequest) -> bool:
    return _is_nearby(request) or _shows_token(request.headers.get("Authorization", ""))


def _is_nearby(request: HttpRequest) -> bool:
    """Whether somebody on this host asks for himself.

    A proxy on this host asks for others and need not say so: where the site has an address for others, the loopback
    proves nothing.
    """
    if urlsplit(settings.SITE_URL).hostname not in _LOCAL_NAMES:
        return False
    passed_on = any(name in request.headers for name in _PASSED_ON)
    return request.META.get("REMOTE_ADDR") in _LOOPBACK and not passed_on


def _shows_token(header: str) -> bool:
    if not settings.METRICS_TOKEN_FILE:
        return False
    try:
        token = Path(settings.METRICS_TOKEN_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return False
    kind, _, shown = header.partition(" ")
    return bool(token) and kind == "Bearer" and hmac.compare_digest(shown.strip().encode(), token.encode())


class StandingCollector(Collector):
    def __init__(self, found: SiteStanding) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        yield from _about_site()
        yield from _about_watchers(self._found)
        yield from _about_work(self._found)
        yield from _about_servers(self._found)
        yield from _about_canary(self._found)
        broker = self._found.broker
        up = GaugeMetricFamily("tidemark_broker_up", "Whether Redis answers.", value=float(broker is not None))
        yield up
        if broker is not None:
            yield from _about_broker(broker)


def _about_site() -> Iterator[Metric]:
    family = GaugeMetricFamily("tidemark_build_info", "The version that answers.", labels=["version"])
    family.add_metric([settings.VERSION], 1)
    yield family


def _about_watchers(found: SiteStanding) -> Iterator[Metric]:
    behind = GaugeMetricFamily(
        "tidemark_watcher_behind_seconds", "Since when a tree or list should have been asked.", labels=["kind", "name"]
    )
    failing = GaugeMetricFamily(
        "tidemark_watcher_failing_seconds", "Since when it cannot be read; 0: it can.", labels=["kind", "name"]
    )
    late = GaugeMetricFamily("tidemark_watcher_late", "Whether several polls were missed.", labels=["kind", "name"])
    for row in found.watchers:
        behind.add_metric([row.kind, row.name], row.behind.total_seconds())
        failing.add_metric([row.kind, row.name], _age(row.failing_since, found.at))
        late.add_metric([row.kind, row.name], float(row.late))
    yield from (behind, failing, late)


def _about_work(found: SiteStanding) -> Iterator[Metric]:
    rows = GaugeMetricFamily("tidemark_open_rows", "Rows in a state that is not their last.", labels=["kind", "state"])
    oldest = GaugeMetricFamily(
        "tidemark_oldest_wait_seconds", "How long the oldest row waits for the service or the lab.", labels=["kind"]
    )
    for row in found.open:
        rows.add_metric([row.kind, row.state], row.count)
    for kind, states in WAITS:
        oldest.add_metric([kind], _age(found.oldest(kind, *states), found.at))
    leases = GaugeMetricFamily("tidemark_leases", "Attempts that an agent works at.", labels=["lease"])
    leases.add_metric(["held"], found.leases.held)
    leases.add_metric(["overdue"], found.leases.overdue)
    sent = GaugeMetricFamily(
        "tidemark_deliveries_sent_last_hour", "Mails that left in the last hour.", value=found.sent_last_hour
    )
    yield from (rows, oldest, leases, sent)


def _about_canary(found: SiteStanding) -> Iterator[Metric]:
    canary = found.canary
    overdue = canary is not None and canary.is_overdue(found.at)
    yield GaugeMetricFamily(
        "tidemark_canary_overdue", "Whether the daily canary did not come through in time.", value=float(overdue)
    )
    if canary is None:
        return
    age = GaugeMetricFamily(
        "tidemark_canary_stage_seconds",
        "How long it is in its stage; post: since the next one is due.",
        labels=["stage"],
    )
    limit = GaugeMetricFamily("tidemark_canary_limit_seconds", "How long it may be.", labels=["stage"])
    age.add_metric([canary.stage], canary.age(found.at).total_seconds())
    limit.add_metric([canary.stage], canary.limit.total_seconds())
    yield from (age, limit)
    if canary.passed_at is not None:
        yield GaugeMetricFamily(
            "tidemark_canary_last_success_timestamp_seconds",
            "When one came through.",
            value=canary.passed_at.timestamp(),
        )


def _about_servers(found: SiteStanding) -> Iterator[Metric]:
    yield GaugeMetricFamily("tidemark_disk_free_bytes", "Room in TIDEMARK_STATE_DIR.", value=found.disk.free)
    yield GaugeMetricFamily("tidemark_disk_size_bytes", "Size of its disk.", value=found.disk.size)
    database = found.database
    yield GaugeMetricFamily("tidemark_database_size_bytes", "Size of the database.", value=database.size)
    yield GaugeMetricFamily("tidemark_database_connections", "Connections to it.", value=database.connections)
    yield GaugeMetricFamily(
        "tidemark_database_connections_most", "As many as its server allows.", value=database.most_connections
    )
    yield CounterMetricFamily(
        "tidemark_measurements_stored", "Rows of values that were written.", value=database.values_stored
    )


def _about_broker(broker: BrokerStanding) -> Iterator[Metric]:
    waiting = GaugeMetricFamily("tidemark_queue_messages", "Messages that no worker has taken.", labels=["queue"])
    for queue, count in broker.waiting.items():
        waiting.add_metric([queue], count)
    took = GaugeMetricFamily("tidemark_sweep_seconds", "How long the last run of a sweep took.", labels=["sweep"])
    well = GaugeMetricFamily(
        "tidemark_sweep_last_success_timestamp_seconds", "When it last ended well.", labels=["sweep"]
    )
    for pulse in broker.pulses:
        took.add_metric([pulse.name], pulse.seconds)
        if pulse.well_at:
            well.add_metric([pulse.name], pulse.well_at.timestamp())
    refused = CounterMetricFamily("tidemark_uploads_refused", "Uploads that were not taken.", labels=["code"])
    for code, count in broker.refused.items():
        refused.add_metric([code], count)
    memory = GaugeMetricFamily("tidemark_broker_used_bytes", "Memory that Redis uses.", value=broker.used_bytes)
    yield from (waiting, took, well, refused, memory)


def _age(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())
