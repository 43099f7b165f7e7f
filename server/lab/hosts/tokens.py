"""Tokens of the lab's hosts: who holds one, what it opens and may have stored, and which will not do much longer."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db.models import CharField, Exists, F, Max, OuterRef, Q, QuerySet, Sum

from server.builds.models import Artifact
from server.builds.storage import MAX_BYTES
from server.core import clock
from server.core.access.tokens import find_token, issue_token, revoke_tokens, valid
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.core.rows.prepared import Given
from server.lab.models import Attempt, AttemptState, Builder, Host, Machine, Session
from server.lab.work import local_builder

Scope = ApiToken.Scope
# An agent renews its token 60 days before the end of 180: one that has come so near to its end is not renewed at all.
_WARNED_BEFORE = timedelta(days=14)
# The states in which an agent works at what it claimed.
_AT_WORK = (AttemptState.RUNNING, AttemptState.CANCELING)
_OF_BOTH = (Artifact.Kind.IMAGE, Artifact.Kind.MODULES)
# The files of one kernel, unpacked: image, modules, logs and programs take a fifth of it.
_BYTES_OF_ATTEMPT = 2 * MAX_BYTES
# How long after an attempt's end its files may come: they wait on the builder while the service is away. Of a builder
# that was away itself there are some at once.
_LATE = timedelta(days=7)
_MOST_ATTEMPTS = 16
# Attempts that ended without a build leave files that nobody needs: so much of them is taken in so long a time.
_MOST_IN_VAIN, _IN_VAIN = _MOST_ATTEMPTS * _BYTES_OF_ATTEMPT, timedelta(days=1)


@dataclass(frozen=True)
class EndingToken:
    """A token that a host still needs, and that ends soon or has ended."""

    scope: str
    subject: str
    expires_at: datetime


def scope_of(host: str, wanted: str | None = None) -> ApiToken.Scope:
    """What the host of this name is. DomainError `unknown-host` when there is none, `two-hosts` when there are two."""
    known = [scope for scope in Scope if wanted in {None, scope} and _exists(scope, host)]
    if not known:
        what = wanted or "machine or builder"
        raise DomainError(
            "unknown-host", f"there is no {what} {host!r}: describe it in the site's file and load_site it first"
        )
    if len(known) > 1:
        raise DomainError("two-hosts", f"{host!r} is {' and '.join(known)}: say which with --scope")
    return known[0]


def issue_host_token(host: str, scope: ApiToken.Scope, days: float | None = None) -> str:
    """A new token of this host; the one that it had is no longer taken."""
    return issue_token(name=f"{scope} {host}", scope=scope, subject=host, days=days)


def revoke_host_tokens(host: str, scope: ApiToken.Scope) -> int:
    """End every token of this host, that of the local dispatcher among them; returns how many were valid."""
    return revoke_tokens(scope=scope, subject=host)


def find_host_token(secret: str) -> ApiToken | None:
    """The valid token that `secret` opens; None, too, when its host was removed or retired: as good as revoked."""
    return find_token(secret, among=partial(_HELD.first, control=settings.LAB_CONTROL))


def _held() -> Q:
    """`is_held` for queries of tokens."""
    control = Q(scope=Scope.CONTROL, subject=Given("control", CharField())) & ~Q(subject="")
    return _held_by_host(Scope.MACHINE) | _held_by_host(Scope.BUILDER) | control


_HELD = valid(lambda: ApiToken.objects.filter(_held()))


def _held_by_host(scope: ApiToken.Scope) -> Q:
    return Q(scope=scope) & Q(Exists(_in_lab(scope).filter(name=OuterRef("subject"))))


def is_held(token: ApiToken) -> bool:
    """Whether the host that the token was made for is still one of this lab: known, and not retired."""
    if token.scope == Scope.CONTROL:
        return bool(token.subject) and token.subject == settings.LAB_CONTROL
    return _in_lab(token.scope).filter(name=token.subject).exists()


def may_read(token: ApiToken, sha256: str) -> bool:
    """Whether the holder needs this artifact for what it claimed: kernels of a session that runs on its machine.

    A builder and the control host are given none by their assignments.
    """
    if token.scope != Scope.MACHINE:
        return False
    sessions = Session.objects.filter(machine__name=token.subject, attempts__state__in=_AT_WORK)
    base, patched = sessions.values("base_build"), sessions.values("patched_build")
    kernels = Q(kind__in=_OF_BOTH) & (Q(build__in=base) | Q(build__in=patched))
    perf = Q(kind=Artifact.Kind.PERF, build__in=base)
    return Artifact.objects.filter(kernels | perf, sha256=sha256).exists()


def check_may_store(token: ApiToken) -> None:
    """Raise DomainError unless one more file may be stored: `forbidden`, `not-awaited` or `account-used-up`."""
    _accounts(token)


def charge(token: ApiToken, size: int) -> None:
    """Count a file of `size` bytes against an attempt of the holder; raises as `check_may_store` does."""
    for account in _accounts(token):
        room = Attempt.objects.filter(pk=account, stored_bytes__lte=_BYTES_OF_ATTEMPT - size)
        if room.update(stored_bytes=F("stored_bytes") + size):
            return
    raise _used_up(token)


def _accounts(token: ApiToken) -> list[int]:
    """Attempts that may still take something, the newest first: those at work, and those whose files may be late."""
    if token.scope != Scope.BUILDER:
        raise DomainError("forbidden", "only builders store artifacts")
    late = Q(state__in=(AttemptState.DONE, AttemptState.LOST, AttemptState.CANCELED))
    late &= Q(state_since__gte=clock.now() - _LATE)
    own = Q(builder__name=token.subject)
    if token.subject == local_builder().name:
        own |= Q(builder=None)
    claimed = Attempt.objects.filter(own, build__isnull=False).exclude(agent="")
    newest = claimed.filter(late | Q(state__in=_AT_WORK)).order_by("-id")[:_MOST_ATTEMPTS]
    rows = list(newest.values_list("pk", "stored_bytes"))
    if not rows:
        raise DomainError("not-awaited", f"builder {token.subject} has claimed no build whose files are awaited")
    if all(stored >= _BYTES_OF_ATTEMPT for _, stored in rows) or _stored_in_vain(claimed) >= _MOST_IN_VAIN:
        raise _used_up(token)
    return [pk for pk, _ in rows]


def _stored_in_vain(attempts: QuerySet[Attempt]) -> int:
    """Bytes of attempts of the last day that brought no build: somebody may begin one and stop it for ever."""
    ended = attempts.exclude(state__in=(AttemptState.DONE, *_AT_WORK)).filter(state_since__gte=clock.now() - _IN_VAIN)
    return int(ended.aggregate(bytes=Sum("stored_bytes", default=0))["bytes"])


def _used_up(token: ApiToken) -> DomainError:
    message = f"builder {token.subject} has had {_BYTES_OF_ATTEMPT >> 20} MiB stored for each of its attempts"
    return DomainError("account-used-up", message)


def ending_tokens() -> "QuerySet[Any, Any]":
    """Of each host that is in use when the token ends that lives longest, within two weeks or before: `EndingToken`."""
    in_use = Q(scope=Scope.CONTROL, subject=settings.LAB_CONTROL) & ~Q(subject="")
    for scope in (Scope.MACHINE, Scope.BUILDER):
        in_use |= Q(scope=scope) & Q(Exists(_in_lab(scope).filter(name=OuterRef("subject"), enabled=True)))
    last = ApiToken.objects.filter(in_use, revoked_at=None).values("scope", "subject").annotate(last=Max("expires_at"))
    return last.filter(last__lt=clock.now() + _WARNED_BEFORE).order_by("last").values_list("scope", "subject", "last")


def _exists(scope: ApiToken.Scope, host: str) -> bool:
    if scope == Scope.CONTROL:
        return bool(host) and host == settings.LAB_CONTROL
    return _rows(scope).filter(name=host).exists()


def _in_lab(scope: str) -> QuerySet[Machine] | QuerySet[Builder]:
    return _rows(scope).exclude(health=Host.Health.RETIRED)


def _rows(scope: str) -> QuerySet[Machine] | QuerySet[Builder]:
    return Machine.objects.all() if scope == Scope.MACHINE else Builder.objects.all()
