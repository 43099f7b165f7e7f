"""Hosts that ask for work by themselves: no controller, one agent on each host, and nothing that reaches into them.

The round decides as for every dispatcher. What it decided lies in the attempt's row until the host's next request takes
it (server/lab/attempts/asks.py); requests wait for it in the web processes (server/web/waiting.py), and a bell tells
those that there is something new. What is known of a host is when it asked last, and what it had under way.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django.db.models import Q

from server.core import clock
from server.core.models import ApiToken
from server.lab.bell import Bell
from server.lab.models import Asker, Attempt, AttemptState, Builder, Host, Machine
from server.lab.port import Alarm, Dispatcher, DispatchError, HostSighting, Node, Observed, Sighting, Sightings, Work
from server.lab.work import is_leased

ADAPTER = "pull"
# Rung when an attempt lies ready; heard by the web processes.
BELL = "work"
# A request waits so long for work; then its host asks again.
POLL_SECONDS = 100.0
# One that was silent for so long is away: a request, its answer, and a service that was restarted in between.
_AWAY_AFTER = timedelta(seconds=POLL_SECONDS + 80)
_UNCLAIMED = (AttemptState.SUBMITTING, AttemptState.QUEUED)
# Some hundred attempts are laid ready in one round: what is to be stopped does not wait for longer.
_STEPS_SECONDS = 2.0
# An alarm names so many.
_NAMED = 20
_ADVICE = "Look on them whether the agent runs (`systemctl status tidemark-agent`) and reaches the service."
_Scope = ApiToken.Scope


def ready() -> Q:
    """Attempts that lie ready for their host, for queries. The states that are under way are those of the indexes."""
    return Q(adapter=ADAPTER, state__in=Attempt.ACTIVE, posts__gt=0) & Q(state__in=_UNCLAIMED)


class PullDispatcher(Dispatcher):
    name = ADAPTER
    about = "the pull dispatcher: hosts ask for work by themselves"
    hosts_ask = True

    def __init__(self) -> None:
        self._bell = Bell(BELL)

    @property
    def steps_seconds(self) -> float:
        return _STEPS_SECONDS

    def submit(self, work: Work) -> None:
        """Lay it ready, unless its host is away: then nobody would come for it."""
        asker = Asker.objects.filter(scope=work.scope, subject=work.subject).first()
        if not _is_there(asker, clock.now()):
            raise DispatchError("host-away", _silence(asker), permanent=False)
        rows = Attempt.objects.filter(key=work.key, agent="", state__in=_UNCLAIMED)
        if rows.filter(Q(posts=None) | Q(posts=0)).update(posts=1):
            self._bell.ring()

    def look(self, works: Sequence[Work]) -> Sightings:
        now = clock.now()
        askers = {(asker.scope, asker.subject): asker for asker in Asker.objects.all()}
        rows = Attempt.objects.filter(key__in=[work.key for work in works]).defer("log").in_bulk(field_name="key")
        seen = {work.key: _sight(rows.get(work.key), askers.get((work.scope, work.subject)), now) for work in works}
        hosts = {node: _sight_host(askers.get(whose), now) for node, whose in _nodes(works).items()}
        return Sightings(seen, hosts)

    def cancel(self, work: Work) -> bool:
        """What lies ready is taken back. An agent hears of it by its next heartbeat; nothing else reaches it."""
        attempt = Attempt.objects.filter(key=work.key).first()
        if attempt is None:
            return True
        if not attempt.agent:
            Attempt.objects.filter(pk=attempt.pk, agent="").update(posts=0)
            return True
        return attempt.state not in Attempt.ACTIVE or not is_leased(attempt)

    def hold(self, hosts: Mapping[str, str]) -> frozenset[str]:
        """Nobody else gives work to them."""
        return frozenset(hosts)

    # --- for pages ---------------------------------------------------------------------

    def node(self, name: str) -> Node | None:
        asker = Asker.objects.filter(_on_node(name)).order_by("-asked_at").first()
        if asker is None:
            return None
        is_there = _is_there(asker, clock.now())
        return Node(
            name=name,
            online=is_there,
            connected=is_there,
            marked_offline=False,
            offline_reason="" if is_there else _silence(asker),
            held_for="",
            busy_with=", ".join(asker.keys),
            seen_at=asker.asked_at,
            asks=True,
        )

    def alarms(self, now: datetime) -> tuple[Alarm, ...]:
        """Hosts in service that have nothing to do and do not ask."""
        idle = Q(enabled=True, state__in=[Host.State.OFFLINE, Host.State.IDLE]) & ~Q(health=Host.Health.RETIRED)
        away: list[str] = []
        since: datetime | None = None
        for scope, kind in ((_Scope.MACHINE, Machine), (_Scope.BUILDER, Builder)):
            there = Asker.objects.filter(scope=scope, asked_at__gte=now - _AWAY_AFTER).values("subject")
            rows = kind._default_manager.filter(idle).exclude(name__in=there)
            silent = list(rows.order_by("name").values_list("name", flat=True))
            away += silent
            last = Asker.objects.filter(scope=scope, subject__in=silent).order_by("asked_at").first()
            since = min((moment for moment in (since, last.asked_at if last else None) if moment), default=None)
        if not away:
            return ()
        more = f" and {len(away) - _NAMED} more" if len(away) > _NAMED else ""
        return (Alarm(f"do not ask for work: {', '.join(away[:_NAMED])}{more}", since, _ADVICE),)


def _sight(attempt: Attempt | None, asker: Asker | None, now: datetime) -> Sighting:
    if attempt is None:
        return Sighting(Observed.ABSENT)
    if attempt.state not in Attempt.ACTIVE:
        return Sighting(Observed.ENDED)
    if attempt.agent:
        return _sight_claimed(attempt, asker)
    if not attempt.posts:
        # Without a claim there is no agent that works at it, whatever became of it.
        return Sighting(Observed.ENDED if attempt.state == AttemptState.CANCELING else Observed.ABSENT)
    if _is_there(asker, now) or attempt.arrived_at is not None:
        return Sighting(Observed.WAITING, _last(asker))
    return Sighting(Observed.LEFT, _silence(asker))


def _sight_claimed(attempt: Attempt, asker: Asker | None) -> Sighting:
    if is_leased(attempt):
        return Sighting(Observed.ALIVE)
    if attempt.state == AttemptState.CANCELING:
        return Sighting(Observed.LEFT, "it was told to stop, and is silent")
    if asker is not None and asker.asked_at > attempt.state_since and attempt.key not in asker.keys:
        # Its host has asked for other work since.
        return Sighting(Observed.LEFT, "its host works at it no more")
    return Sighting(Observed.HANDED_OVER)


def _sight_host(asker: Asker | None, now: datetime) -> HostSighting:
    if _is_there(asker, now):
        return HostSighting(connected=True, is_now=False)
    return HostSighting(connected=False, detail=_silence(asker), is_now=False)


def _is_there(asker: Asker | None, now: datetime) -> bool:
    return asker is not None and now - asker.asked_at < _AWAY_AFTER


def _silence(asker: Asker | None) -> str:
    if asker is None:
        return "it has never asked for work"
    return f"it has not asked for work since {asker.asked_at:%Y-%m-%d %H:%M:%S} UTC"


def _last(asker: Asker | None) -> str:
    return f"its host asked last at {asker.asked_at:%H:%M:%S} UTC" if asker else ""


def _nodes(works: Iterable[Work]) -> dict[str, tuple[str, str]]:
    """Whose token each node of the lab asks with, by the node's name."""
    nodes = {work.host: (str(work.scope), work.subject) for work in works}
    for scope, kind in ((_Scope.MACHINE, Machine), (_Scope.BUILDER, Builder)):
        rows = kind._default_manager.filter(enabled=True).values_list("name", "node")
        nodes |= {node or name: (scope.value, name) for name, node in rows}
    return nodes


def _on_node(node: str) -> Q:
    named = Q(node=node) | Q(node="", name=node)
    machines, builders = Machine.objects.filter(named), Builder.objects.filter(named)
    control = Q(scope=_Scope.CONTROL, subject=node)
    return (
        Q(scope=_Scope.MACHINE, subject__in=machines.order_by().values("name"))
        | Q(scope=_Scope.BUILDER, subject__in=builders.values("name"))
        | control
    )
