"""The controller and its nodes: how it answers, what it shows of each host, and marking hosts offline so that nobody
else's work slips in.
"""

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

import structlog
from django.conf import settings
from django.db.models import Q

from server.core import clock
from server.lab.dispatch.jenkins import jobs
from server.lab.dispatch.jenkins.answers import Head, NodeFacts
from server.lab.dispatch.jenkins.client import JenkinsClient
from server.lab.dispatch.jenkins.jobs import job_name, own_mark
from server.lab.dispatch.jenkins.models import JenkinsController, JenkinsNode
from server.lab.dispatch.jenkins.values import (
    Crowded,
    Forbidden,
    Garbled,
    JenkinsError,
    Missing,
    Rejected,
    TokenRefused,
    Unreachable,
)
from server.lab.models import Builder, Machine
from server.lab.port import DispatchError, HostSighting, WorkKind

log = structlog.get_logger(__name__)

# A refused token is not hammered against the controller, which may lock its user out.
_PROBE_EVERY = timedelta(minutes=1)
# A controller that starts refuses every token for a moment, in the words for a revoked one, and answers 503 before and
# after; a token file is empty while somebody writes it. Who was refused for so long, and had no other answer in
# between, is refused.
_BELIEVED_AFTER = timedelta(seconds=10)
_RENEW = "Renew the token of Jenkins' user {user} and write it into TIDEMARK_JENKINS_TOKEN_FILE; it is read at once"
_ALLOW = "Give Jenkins' user {user} the permission that is missing"


def controller() -> JenkinsController:
    return JenkinsController.objects.get_or_create(url=settings.JENKINS_URL)[0]


def check_alarm() -> None:
    """Raise DispatchError while an alarm stands, but for one call a minute, which may find that it is over."""
    row = controller()
    if not row.alarm:
        return
    now = clock.now()
    due = Q(round_at=None) | Q(round_at__lte=now - _PROBE_EVERY) | Q(round_at__gt=now)
    if not JenkinsController.objects.filter(due, pk=row.pk).update(round_at=now):
        raise DispatchError("jenkins-alarm", row.alarm, permanent=False)


def check_refused() -> None:
    """Raise DispatchError if we were refused since the last look, which begins each round: nothing more is sent."""
    row = controller()
    if row.alarm:
        raise DispatchError("jenkins-alarm", row.alarm, permanent=False)
    if row.refused_since:
        raise DispatchError("jenkins-refused", row.trouble, permanent=False)


@contextmanager
def noting(*, looking: bool = False) -> Iterator[None]:
    """Note what the block's requests come to. `looking` marks those without which nothing can be dispatched."""
    try:
        yield
    except TokenRefused as error:
        _note_refused(f"{_RENEW.format(user=settings.JENKINS_USER)} ({error.message}).", error)
        raise
    except Forbidden as error:
        text = f"{_ALLOW.format(user=settings.JENKINS_USER)} ({error.message})."
        if looking:
            _note_refused(text, error)
        else:
            _note_trouble(text)
        raise
    except (Unreachable, Garbled) as error:
        _note_unreachable(error)
        raise
    except Crowded:
        raise
    except JenkinsError as error:
        if looking:
            _note_unreachable(error)
        else:
            _note_trouble(error.message)
        raise


def note_answer(head: Head) -> None:
    """A look was answered in whole: the controller is there, the token is good."""
    row, now = controller(), clock.now()
    if row.alarm or row.unreachable_since:
        log.info("jenkins_answers_again", url=row.url, session=head.session)
    if row.session and head.session and row.session != head.session:
        log.info("jenkins_restarted", url=row.url, before=row.session, after=head.session)
    JenkinsController.objects.filter(pk=row.pk).update(
        session=head.session or row.session,
        version=head.version or row.version,
        answered_at=now,
        clock_skew_seconds=head.skew_seconds,
        unreachable_since=None,
        refused_since=None,
        # Trouble with a single request is written down again by the next one that has it.
        trouble="",
        alarm="",
        alarm_since=None,
    )


def note_round(seconds: float, requests: int) -> None:
    JenkinsController.objects.filter(url=settings.JENKINS_URL).update(
        round_at=clock.now(), round_seconds=seconds, round_requests=requests
    )


def _note_refused(alarm: str, error: JenkinsError) -> None:
    """No answer yet; an alarm once that has lasted."""
    row, now = controller(), clock.now()
    since = row.refused_since
    if row.alarm or (since is not None and now - since >= _BELIEVED_AFTER):
        _raise_alarm(alarm)
        return
    if since is None or since > now:
        log.warning("jenkins_refuses", url=row.url, error=error.message)
        since = now
    JenkinsController.objects.filter(pk=row.pk).update(
        refused_since=since, unreachable_since=row.unreachable_since or now, trouble=error.message
    )


def _raise_alarm(text: str) -> None:
    row, now = controller(), clock.now()
    if not row.alarm:
        log.error("jenkins_alarm", url=row.url, alarm=text)
    JenkinsController.objects.filter(pk=row.pk).update(alarm=text, alarm_since=row.alarm_since or now, round_at=now)


def _note_trouble(text: str) -> None:
    log.warning("jenkins_trouble", trouble=text)
    JenkinsController.objects.filter(url=settings.JENKINS_URL).update(trouble=text)


def _note_unreachable(error: JenkinsError) -> None:
    row = controller()
    if row.unreachable_since is None:
        log.warning("jenkins_unreachable", url=row.url, error=error.message)
    JenkinsController.objects.filter(pk=row.pk).update(
        refused_since=None, unreachable_since=row.unreachable_since or clock.now(), trouble=error.message
    )


# Marking begins nothing new after this time: the next round goes on.
_SECONDS = 0.25
# As the column; no host of the lab has a longer one.
_LONGEST_NAME = 60
# Its own generator: other threads may count on the state of the common one.
_ORDER = random.SystemRandom()
_SEEN_FIELDS = ("online", "connected", "temporarily_offline", "offline_reason", "busy_with", "seen_at")


def note_nodes(nodes: Iterable[NodeFacts]) -> dict[str, HostSighting]:
    """Keep what the controller shows of its nodes; what hosts of the lab there are and how, by name in Jenkins."""
    now = clock.now()
    rows = [
        JenkinsNode(
            name=node.name,
            online=not node.offline,
            connected=node.connected,
            temporarily_offline=node.temporarily_offline,
            offline_reason=node.reason,
            busy_with=", ".join(work.title for work in node.busy_with)[:200],
            seen_at=now,
        )
        for node in nodes
        if len(node.name) <= _LONGEST_NAME
    ]
    JenkinsNode.objects.bulk_create(rows, update_conflicts=True, unique_fields=["name"], update_fields=_SEEN_FIELDS)
    JenkinsNode.objects.exclude(name__in=[row.name for row in rows]).delete()
    sightings = {row.name: HostSighting(row.connected and not _is_taken_away(row), row.offline_reason) for row in rows}
    for host in (*Machine.objects.filter(enabled=True), *Builder.objects.filter(enabled=True)):
        missing = HostSighting(connected=False, detail=f"Jenkins has no node {host.node_name}")
        sightings.setdefault(host.node_name, missing)
    return sightings


def without_unfit(hosts: Mapping[str, HostSighting]) -> dict[str, HostSighting]:
    """The same, and a host in whose job nothing may be triggered is not there for work: others get it meanwhile."""
    unfit, seen = jobs.unfit(), dict(hosts)
    kinds = (
        (WorkKind.SESSION, Machine.objects.filter(enabled=True)),
        (WorkKind.BUILD, Builder.objects.filter(enabled=True)),
    )
    for kind, rows in kinds if unfit else ():
        for host in rows:
            trouble = unfit.get(job_name(kind, host.name))
            if trouble:
                seen[host.node_name] = HostSighting(connected=False, detail=f"nothing is triggered there: {trouble}")
    return seen


def hold_nodes(client: JenkinsClient, hosts: Mapping[str, str]) -> frozenset[str]:
    """Mark these nodes offline (name to key) and take our marks off all others; returns those marked by now.

    The call that marks is a toggle: the nodes are read again right before.
    """
    ours = Q(name__in=_names_of_hosts(), temporarily_offline=True, offline_reason__startswith=own_mark())
    chosen = JenkinsNode.objects.filter(Q(name__in=list(hosts)) | ~Q(held_for="") | ours)
    rows = {row.name: row for row in chosen}
    changes = [row for row in rows.values() if _differs(row, hosts.get(row.name, ""))]
    if changes:
        _bring_all(client, changes, hosts)
    return frozenset(name for name in hosts if name in rows and rows[name].temporarily_offline)


def _names_of_hosts() -> set[str]:
    return {host.node_name for host in (*Machine.objects.all(), *Builder.objects.all())}


def _bring_all(client: JenkinsClient, changes: list[JenkinsNode], hosts: Mapping[str, str]) -> None:
    """A node that the controller refuses to mark keeps no other from being marked; what was wrong is raised then."""
    fresh = {node.name: node for node in client.nodes()}
    ends_at = time.monotonic() + _SECONDS
    # Those that were refused are not the first ones in each round.
    changes = _ORDER.sample(changes, len(changes))
    refused: JenkinsError | None = None
    for number, row in enumerate(changes):
        if number and time.monotonic() > ends_at:
            break
        node = fresh.get(row.name)
        if node is None:
            continue
        try:
            _bring(client, row, node, hosts.get(row.name, ""))
        except (Forbidden, Missing, Rejected) as error:
            refused = error
    if refused is not None:
        raise refused


def _differs(row: JenkinsNode, key: str) -> bool:
    if not key:
        # Our mark on a node that nothing is noted of was left by a death, by two dispatchers at once, or by a database
        # that was put back to an older state.
        return bool(row.held_for) or (row.temporarily_offline and _is_ours(row.offline_reason))
    return not row.temporarily_offline or (_is_ours(row.offline_reason) and row.held_for != key)


def _is_taken_away(row: JenkinsNode) -> bool:
    """A node that a person marked offline is not there for work: work given to it would wait in vain."""
    return row.temporarily_offline and not _is_ours(row.offline_reason)


def _is_ours(reason: str) -> bool:
    """Marks of operators, and of other services, are never undone."""
    return reason.startswith(own_mark())


def _bring(client: JenkinsClient, row: JenkinsNode, node: NodeFacts, key: str) -> None:
    """Hold the node for `key`, or let go of it. The row says first what is to be, so that a death between is mended."""
    if key and node.temporarily_offline:
        _save(row, held_for=key if _is_ours(node.reason) else "", offline=True, reason=node.reason)
        return
    if key:
        won = JenkinsNode.objects.filter(pk=row.pk, held_for=row.held_for).update(held_for=key)
        if won:
            client.toggle_offline(row.name, f"{own_mark()}{key}")
            _save(row, held_for=key, offline=True, reason=f"{own_mark()}{key}")
            log.info("node_held", node=row.name, key=key)
        return
    if node.temporarily_offline and _is_ours(node.reason):
        held_for = row.held_for
        known = JenkinsNode.objects.filter(pk=row.pk, held_for=held_for, temporarily_offline=True)
        if known.update(held_for="", temporarily_offline=False, offline_reason=""):
            # The reason counts only if another dispatcher was faster, and this marks the node anew: it is ours then.
            client.toggle_offline(row.name, f"{own_mark()}released")
            log.info("node_released", node=row.name, key=held_for)
        row.held_for, row.temporarily_offline, row.offline_reason = "", False, ""
    else:
        _save(row, held_for="", offline=node.temporarily_offline, reason=node.reason)


def _save(row: JenkinsNode, *, held_for: str, offline: bool, reason: str) -> None:
    row.held_for, row.temporarily_offline, row.offline_reason = held_for, offline, reason
    row.save(update_fields=["held_for", "temporarily_offline", "offline_reason"])
