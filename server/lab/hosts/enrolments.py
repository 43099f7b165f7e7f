"""Codes by which hosts come into the lab: made by a person, exchanged once for a token by the host's agent."""

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction

from server.core import clock
from server.core.access.tries import count_try
from server.core.database import wait_for_lock
from server.core.errors import DomainError
from server.core.models import LONGEST_ACTOR, ApiToken, Transition
from server.core.reasons import Because
from server.core.states import new_trace
from server.lab.hosts.state import Health, change_health
from server.lab.hosts.tokens import issue_host_token
from server.lab.models import Builder, Enrolment, Machine
from server.lab.work import boots_itself

log = structlog.get_logger(__name__)

# 80 bits in letters and digits that nobody takes for another: a code is read off one screen and typed at another.
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_GROUPS, _GROUP = 4, 4
HOURS, MOST_HOURS = 24.0, 24.0 * 30
# Wrong codes of one network in a window of 15 minutes.
MOST_WRONG = 20
_NO_UARCH = ("", "unknown")
_Scope = ApiToken.Scope


@dataclass(frozen=True)
class Enrolled:
    """What the host gets: who it is, and its token, this once only. `accepted`: nothing waits for a person's word."""

    scope: str
    subject: str
    token: str
    pull: bool
    accepted: bool


@dataclass(frozen=True)
class Code:
    """A code as it was made, this once only: for which host, and until when it is good."""

    text: str
    scope: str
    host: str
    until: datetime

    @property
    def command(self) -> str:
        """What is said on the host, as root."""
        return f"tidemark-agent enrol {settings.AGENT_URL} {self.text}"


def make_code(host: str, scope: ApiToken.Scope, *, actor: str, reason: str = "", hours: float = HOURS) -> Code:
    """A code for this host; one that was made for it before is no longer taken. Its page tells who made it, not which.

    Raises DomainError: `retired`, `bad-hours`.
    """
    if not 0 < hours <= MOST_HOURS:
        raise DomainError("bad-hours", f"a code is good for more than 0 and at most {MOST_HOURS:.0f} hours")
    row = _row(scope, host)
    if row is not None and row.health == Health.RETIRED:
        raise DomainError("retired", f"{host} is retired: release it first")
    code = "".join(secrets.choice(_LETTERS) for _ in range(_GROUPS * _GROUP))
    with transaction.atomic():
        # Two who make one at once: the later one ends the other's.
        wait_for_lock(f"enrolment code of {scope} {host}")
        now = clock.now()
        Enrolment.objects.filter(scope=scope, subject=host, used_at=None, expires_at__gt=now).update(expires_at=now)
        made = Enrolment.objects.create(
            digest=_digest(code),
            scope=scope,
            subject=host,
            made_by=actor[:150],
            expires_at=now + timedelta(hours=hours),
        )
        if row is not None:
            _tell(row, made, actor, reason)
    log.info("enrolment_made", scope=scope.value, subject=host, actor=actor, expires_at=made.expires_at.isoformat())
    text = "-".join(code[start : start + _GROUP] for start in range(0, len(code), _GROUP))
    return Code(text, scope.value, host, made.expires_at)


def _tell(owner: Machine | Builder, made: Enrolment, actor: str, reason: str) -> None:
    why = f": {reason}" if reason else ""
    told = Because.BY_PERSON(f"an enrolment code, good until {made.expires_at:%Y-%m-%d %H:%M} UTC{why}")
    Transition.objects.create(
        trace=new_trace(), subject=f"{made.scope}-enrolment", subject_id=owner.pk, after="code made",
        **told.columns(), actor=actor[:LONGEST_ACTOR],
    )  # fmt: skip


def enrol(code: str, *, host: str, facts: Mapping[str, Any], network: str, pull: bool) -> Enrolled:
    """Exchange the code for its host's token. What the probe saw is kept, and waits for a person who accepts it.

    Raises DomainError: `too-many-codes`, `code-unknown`, `code-expired`, `code-used`, `other-uarch`, `unknown-host`.
    """
    found = Enrolment.objects.filter(digest=_digest(code)).first()
    if found is None:
        if count_try(f"enrolment address:{network}") > MOST_WRONG:
            raise DomainError("too-many-codes", "too many wrong codes came from this network: wait 15 minutes")
        raise DomainError(
            "code-unknown", "there is no such code: compare it letter by letter with the one that was made"
        )
    with transaction.atomic():
        row = Enrolment.objects.select_for_update().get(pk=found.pk)
        owner = _owner(row, facts)
        row.used_at, row.used_from, row.host, row.facts = clock.now(), network[:60], host[:255], dict(facts)
        row.save(update_fields=["used_at", "used_from", "host", "facts"])
        token = issue_host_token(row.subject, _Scope(row.scope))
        accepted = owner is None or not _put_aside(owner, row)
    log.info("host_enrolled", scope=row.scope, subject=row.subject, host=host, network=network, made_by=row.made_by)
    return Enrolled(row.scope, row.subject, token, pull, accepted)


def _owner(row: Enrolment, facts: Mapping[str, Any]) -> Machine | Builder | None:
    """Whose code it is, if it may be used by who shows it; a code that is refused for its machine stays good."""
    if row.used_at is not None:
        told = f"this code was used at {row.used_at:%Y-%m-%d %H:%M} UTC by {row.host}"
        raise DomainError("code-used", f"{told}: if that was not this host, end its token (issue_token --revoke)")
    if row.expires_at <= clock.now():
        raise DomainError(
            "code-expired", f"this code ended at {row.expires_at:%Y-%m-%d %H:%M} UTC: have another one made"
        )
    if row.scope == _Scope.CONTROL:
        return None
    owner = _row(_Scope(row.scope), row.subject)
    if owner is None or owner.health == Health.RETIRED:
        raise DomainError("unknown-host", f"{row.scope} {row.subject} is not in the lab any more")
    seen = str(facts.get("uarch", ""))
    # An emulated machine is another CPU than the host on which its agent runs.
    if isinstance(owner, Machine) and boots_itself(owner) and owner.uarch.name != seen:
        what = f"its probe says {seen}" if seen not in _NO_UARCH else "its probe does not know its CPU"
        raise DomainError("other-uarch", f"the code is for {owner.name}, a {owner.uarch.name}, and {what} here")
    return owner


def _put_aside(owner: Machine | Builder, row: Enrolment) -> bool:
    """Nothing is given to a host before a person has seen what it says of itself; whether that has to be seen.

    What it was out of service for stands: nothing was mended by coming again, and a check that it passes tells nothing
    of who came.
    """
    # What hosts call themselves is for staff; this is for everybody.
    emulated = isinstance(owner, Machine) and not boots_itself(owner)
    what = "enrolled, emulated on" if emulated else "enrolled:"
    told = f"{what} {say_facts(row.facts)}; who knows that this is so has it checked, or releases it"
    if owner.health not in {Health.QUARANTINED, Health.MAINTENANCE}:
        change_health(owner, Health.MAINTENANCE, told, actor=row.made_by)
        return True
    before = owner.health_reason
    reason = before if told in before else "; ".join(part for part in (before, told) if part)
    # The actor makes it a person's, which no health session and no A/A trial lifts.
    change_health(owner, owner.health, reason, actor=row.made_by)
    return True


def say_facts(facts: Mapping[str, Any]) -> str:
    """What the probe saw, for people."""
    virtual = {True: "virtual", False: "physical"}.get(facts.get("virtual") is True)
    parts = [facts.get("uarch") or "unknown CPU", facts.get("model_name"), facts.get("arch")]
    parts += [f"{facts['cpus']} CPUs" if facts.get("cpus") else "", virtual]
    return ", ".join(str(part) for part in parts if part)


def _row(scope: ApiToken.Scope, host: str) -> Machine | Builder | None:
    if scope == _Scope.MACHINE:
        return Machine.objects.select_related("uarch").filter(name=host).first()
    return Builder.objects.filter(name=host).first() if scope == _Scope.BUILDER else None


def _digest(code: str) -> str:
    """Of what was meant: dashes, blanks and small letters are how it was typed."""
    return hashlib.sha256(re.sub(r"[^A-Z0-9]", "", code.upper()).encode()).hexdigest()
