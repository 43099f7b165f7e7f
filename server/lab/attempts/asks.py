"""A host asks for work (`pull`, docs/operations/dispatch.md): what lies ready for it, or why nothing does."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q

from server.core import clock
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.core.tasks import enqueue
from server.lab.attempts.ends import welcome
from server.lab.dispatch.pull import ADAPTER, ready
from server.lab.hosts.state import Health, HostHello, State, change_health
from server.lab.models import Asker, Attempt, AttemptState, Builder, Machine
from server.lab.port import dispatcher
from server.lab.work import boots_itself

log = structlog.get_logger(__name__)

# Two hosts with one token: the second is refused until the first has been silent for so long. No request of a system
# that has ended is on its way for longer.
_ANOTHER_AFTER = timedelta(minutes=4)
# A host out of service is told why at once, and asks again after so long; all others wait for work within the request.
_OUT_OF_SERVICE_SECONDS = 60.0
_LONGEST_KEYS = 64
_BOOTS_KEPT = 8
# Whoever tells no boot leaves what is known of them as it is.
_NOTE = """
    INSERT INTO lab_asker AS known
        (scope, subject, asked_at, host, agent_version, keys, boot_id, boot_since, boots_before)
    VALUES (%(scope)s, %(subject)s, %(now)s, %(host)s, %(version)s, %(keys)s, %(boot)s, %(now)s, '{}')
    ON CONFLICT (scope, subject) DO UPDATE SET
        asked_at = excluded.asked_at, host = excluded.host,
        agent_version = excluded.agent_version, keys = excluded.keys,
        boot_id = CASE excluded.boot_id WHEN '' THEN known.boot_id ELSE excluded.boot_id END,
        boot_since = CASE WHEN excluded.boot_id IN ('', known.boot_id) THEN known.boot_since ELSE %(now)s END,
        boots_before = CASE
            WHEN known.boot_id = '' OR excluded.boot_id IN ('', known.boot_id) THEN known.boots_before
            ELSE (array_prepend(known.boot_id, known.boots_before))[1:%(kept)s]
        END
    WHERE (known.host = excluded.host OR known.asked_at < %(silent)s)
        AND excluded.boot_id <> ALL (known.boots_before)
    RETURNING 1
"""


@dataclass(frozen=True)
class HostAsk:
    """What a host says of itself while it asks; `keys` are the attempts that it works at."""

    host: str
    version: str
    boot_id: str = ""
    build_id: str = ""
    safe: bool | None = None
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Offer:
    """A key to be claimed, or why there is none.

    `inside`: the agent works at it as its machine's own, across reboots. `again_in` is how long a host to which nothing
    will be given is to wait before it asks again; None: it may wait within its request.
    """

    key: str = ""
    inside: bool = False
    reason: str = ""
    again_in: float | None = None


def answer_ask(*, token: ApiToken, ask: HostAsk) -> Offer:
    """What lies ready for this host and is not among `ask.keys`. Asking again gives the same until it is claimed.

    Raises DomainError: `other-dispatcher` where agents do not ask, `two-agents` for a second host with this token,
    `copied-disk` where two hosts are proved, which also takes theirs out of service.
    """
    if not dispatcher().hosts_ask:
        raise DomainError("other-dispatcher", f"hosts of this site do not ask for work: it has {dispatcher().about}")
    own = Q(power_cycle__isnull=False)
    host = _host_of(token)
    if host is not None:
        own = Q(machine=host) if isinstance(host, Machine) else Q(builder=host)
    active = Attempt.objects.filter(own, adapter=ADAPTER, state__in=Attempt.ACTIVE)
    _check_alone(token, ask, list(active.exclude(agent="").values_list("key", "host", "state", "lease_until")))
    _note(token, ask)
    if host is not None:
        _take_hello(host, ask)
    attempt = active.filter(ready()).exclude(key__in=ask.keys).order_by("id").defer("log").first()
    if attempt is not None:
        return Offer(attempt.key, inside=isinstance(host, Machine) and boots_itself(host))
    return _nothing(host)


def awaited() -> set[tuple[str, str, str]]:
    """All that lies ready, as scope and subject of whose it is, and its key; for those who wait. One query."""
    names = ("key", "machine__name", "builder__name")
    found = set()
    for key, machine, builder in Attempt.objects.filter(ready()).order_by().values_list(*names):
        if machine is not None:
            found.add((ApiToken.Scope.MACHINE.value, machine, key))
        elif builder is not None:
            found.add((ApiToken.Scope.BUILDER.value, builder, key))
        else:
            found.add((ApiToken.Scope.CONTROL.value, settings.LAB_CONTROL, key))
    return found


def _host_of(token: ApiToken) -> Machine | Builder | None:
    host: Machine | Builder | None = None
    if token.scope == ApiToken.Scope.MACHINE:
        host = Machine.objects.filter(name=token.subject).first()
    elif token.scope == ApiToken.Scope.BUILDER:
        host = Builder.objects.filter(name=token.subject).first()
    else:
        return None
    if host is None:
        raise DomainError("not-found", f"no {token.scope} {token.subject}")
    return host


def _check_alone(token: ApiToken, ask: HostAsk, claimed: list[tuple[str, str, str, datetime | None]]) -> None:
    """A copy of a machine's disk asks with its token while the machine works."""
    now = clock.now()
    for key, host, state, lease in claimed:
        leased = lease is not None and lease > now
        if state == AttemptState.RUNNING and leased and host != ask.host:
            raise _two(token, ask, f"{host} works at {key}")


def _note(token: ApiToken, ask: HostAsk) -> None:
    now = clock.now()
    values: dict[str, Any] = {
        "scope": token.scope,
        "subject": token.subject,
        "now": now,
        "host": ask.host[:255],
        "version": ask.version[:60],
        "keys": [key[:60] for key in ask.keys[:_LONGEST_KEYS]],
        "silent": now - _ANOTHER_AFTER,
        "boot": ask.boot_id[:36],
        "kept": _BOOTS_KEPT,
    }
    with connection.cursor() as cursor:
        cursor.execute(_NOTE, values)
        if cursor.fetchone() is not None:
            return
    known = Asker.objects.get(scope=token.scope, subject=token.subject)
    if known.host != values["host"] and known.asked_at >= values["silent"]:
        raise _two(token, ask, "another host asks")
    raise _come_back(token, ask, known, now)


def _come_back(token: ApiToken, ask: HostAsk, known: Asker, now: datetime) -> DomainError:
    """A boot asks that another one has followed.

    No system has a boot id a second time: either this request is late and its system has ended, or there are two hosts.
    Names tell nothing here, for a copied disk has the same.
    """
    if now - known.boot_since < _ANOTHER_AFTER:
        return _two(token, ask, f"boot {known.boot_id[:8]} asks after boot {ask.boot_id[:8]}")
    # For everybody: what hosts call themselves is for staff.
    told = (
        f"two hosts show the token of {token.scope} {token.subject}: boot {ask.boot_id[:8]} asks again, though boot "
        f"{known.boot_id[:8]} has asked since; is one disk a copy of the other?"
    )
    host = _host_of(token)
    with transaction.atomic():
        # Proved anew, if both go on after a person has released it.
        Asker.objects.filter(pk=known.pk).update(boot_id=ask.boot_id, boot_since=now, boots_before=[])
        if host is not None:
            earlier = "" if host.health == Health.GOOD else f" (before: {host.health}, {host.health_reason})"
            change_health(host, Health.MAINTENANCE, f"{told}{earlier}")
    log.warning("copied_disk", scope=token.scope, subject=token.subject, host=ask.host, boot_id=ask.boot_id)
    return DomainError("copied-disk", told)


def _two(token: ApiToken, ask: HostAsk, what: str) -> DomainError:
    told = (
        f"{what} with the token of {token.scope} {token.subject}, and {ask.host} shows the same: one of them is a copy"
    )
    return DomainError("two-agents", told)


def _take_hello(host: Machine | Builder, ask: HostAsk) -> None:
    """To ask is to be there: a machine that was waited for is back, one that was away may be given work."""
    before = host.state
    key = ask.keys[0] if ask.keys else ""
    welcome(host, HostHello(ask.boot_id, ask.build_id, ask.safe, key, ask.version))
    if host.state != before or host.state == State.OFFLINE:
        enqueue("lab.dispatch")


def _nothing(host: Machine | Builder | None) -> Offer:
    if host is None:
        return Offer(reason="no machine is to be switched off and on")
    if not host.enabled:
        return Offer(reason=f"{host.name} is disabled", again_in=_OUT_OF_SERVICE_SECONDS)
    why = f": {host.health_reason}" if host.health_reason else ""
    if host.health == Health.MAINTENANCE:
        return Offer(reason=f"{host.name} is in maintenance{why}", again_in=_OUT_OF_SERVICE_SECONDS)
    if host.health != Health.GOOD:
        # It may be asked to prove itself at any time.
        return Offer(reason=f"{host.name} is {host.health}{why}")
    return Offer(reason="nothing waits for it")
