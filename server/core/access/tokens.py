"""Making, checking, renewing and ending API tokens.

Each has a life. Its holder may have the next one made when two thirds of it are over; the old one is taken until the
new one was used, and an hour longer, so that an answer that was lost on its way locks nobody out.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from django.conf import settings
from django.db import transaction
from django.db.models import CharField, DateTimeField, QuerySet

from server.core import clock
from server.core.models import ApiToken, Credential
from server.core.rows.prepared import Given, Prepared

# Before the prefix: whoever finds one in a log knows whose it is, and what to revoke.
OF_AGENT, OF_PERSON = "tm", "tmp"
_FORM = re.compile(r"(?P<mark>tmp?)_(?P<prefix>[0-9a-f]{12})_[A-Za-z0-9_-]{20,100}")
AnyToken = TypeVar("AnyToken", bound=Credential)
# One write a minute at most: the last use is for people who look for tokens nobody needs.
_LAST_USE_GRAIN = timedelta(minutes=1)
# Agents read their token anew at each call; what was sent with the old one may still be on its way.
OVERLAP = timedelta(hours=1)


@dataclass(frozen=True)
class NewToken:
    """A token as its holder gets it, this once only."""

    secret: str
    expires_at: datetime


def issue_token(*, name: str, scope: ApiToken.Scope, subject: str, days: float | None = None) -> str:
    """A new token `name`; returns its secret. Those that had this name before are no longer taken.

    It is valid for `days`, or for as long as the site's setting says.
    """
    with transaction.atomic():
        ApiToken.objects.filter(name=name, revoked_at=None).update(revoked_at=clock.now())
        row = ApiToken(name=name, scope=scope, subject=subject)
        return sealed(row, timedelta(days=days or settings.TOKEN_DAYS)).secret


def valid(rows: "Callable[[], QuerySet[AnyToken]]") -> "Prepared[AnyToken]":
    """How one of these rows is found by its `prefix`, while it is valid `now`."""
    prefix, now = Given("prefix", CharField()), Given("now", DateTimeField())
    return Prepared(lambda: rows().filter(prefix=prefix, revoked_at=None, expires_at__gt=now).order_by())


_VALID = valid(ApiToken.objects.all)


def find_token(secret: str, *, among: Callable[..., ApiToken | None] = _VALID.first) -> ApiToken | None:
    """The valid token that `secret` opens, or None. Its first use begins the end of the one that it was made for.

    One query, but for the first use in a minute.
    """
    token = opened(secret, among, mark=OF_AGENT)
    if token is not None and token.last_used_at is None:
        older = ApiToken.objects.filter(name=token.name, pk__lt=token.pk, expires_at__gt=clock.now() + OVERLAP)
        older.update(expires_at=clock.now() + OVERLAP)
    return token


def opened(secret: str, find: Callable[..., AnyToken | None], *, mark: str) -> AnyToken | None:
    """The valid one that `secret` opens now, or None; its use is noted, but not on the row that is returned."""
    match = _FORM.fullmatch(secret)
    if match is None or match["mark"] != mark:
        return None
    now = clock.now()
    token = find(prefix=match["prefix"], now=now)
    if token is None or not hmac.compare_digest(token.digest, _digest(secret)):
        return None
    if token.last_used_at is None or now - token.last_used_at > _LAST_USE_GRAIN:
        type(token)._default_manager.filter(pk=token.pk).update(last_used_at=now)
    return token


def is_due(token: ApiToken) -> bool:
    """Whether its holder should have the next one made: two thirds of its life are over, and there is no next one."""
    life = token.expires_at - token.created_at
    return token.expires_at - clock.now() < life / 3 and not _was_followed(token)


def renew_token(token: ApiToken) -> NewToken | None:
    """The next token of this holder, or None while it is not due; it lives as long as this one did.

    Asked again, because its answer was lost, it makes the one that was not used anew.
    """
    with transaction.atomic():
        row = ApiToken.objects.select_for_update().get(pk=token.pk)
        if row.revoked_at is not None or not is_due(row):
            return None
        unused = ApiToken.objects.filter(name=row.name, pk__gt=row.pk, revoked_at=None, last_used_at=None).first()
        following = unused or ApiToken(name=row.name, scope=row.scope, subject=row.subject)
        return sealed(following, row.expires_at - row.created_at)


def revoke_tokens(*, scope: ApiToken.Scope, subject: str) -> int:
    """End all tokens of one holder, under whatever name they were made; returns how many were valid."""
    now = clock.now()
    held = ApiToken.objects.filter(scope=scope, subject=subject, revoked_at=None)
    valid = held.filter(expires_at__gt=now).count()
    held.update(revoked_at=now)
    return valid


def _was_followed(token: ApiToken) -> bool:
    return ApiToken.objects.filter(name=token.name, pk__gt=token.pk).exclude(last_used_at=None).exists()


def sealed(row: Credential, life: timedelta, *, mark: str = OF_AGENT) -> NewToken:
    """Store `row` with a new secret and a life that begins now."""
    prefix = secrets.token_hex(6)
    secret = f"{mark}_{prefix}_{secrets.token_urlsafe(32)}"
    row.prefix, row.digest = prefix, _digest(secret)
    row.created_at = clock.now()
    row.expires_at = row.created_at + life
    row.save()
    return NewToken(secret, row.expires_at)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
