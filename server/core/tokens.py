"""Making and checking API tokens."""

import hashlib
import hmac
import re
import secrets
from datetime import timedelta

from django.db.models import Q

from server.core import clock
from server.core.models import ApiToken

_FORM = re.compile(r"tm_(?P<prefix>[0-9a-f]{12})_[A-Za-z0-9_-]{20,100}")
# One write a minute at most: the last use is for people who look for tokens nobody needs.
_LAST_USE_GRAIN = timedelta(minutes=1)


def issue_token(*, name: str, scope: ApiToken.Scope, subject: str) -> str:
    """Create or replace the token `name`; returns its secret, which is shown this once only."""
    prefix = secrets.token_hex(6)
    secret = f"tm_{prefix}_{secrets.token_urlsafe(32)}"
    ApiToken.objects.update_or_create(
        name=name,
        defaults={
            "prefix": prefix,
            "digest": _digest(secret),
            "scope": scope,
            "subject": subject,
            "revoked_at": None,
            "expires_at": None,
        },
    )
    return secret


def find_token(secret: str) -> ApiToken | None:
    """The valid token that `secret` opens, or None."""
    match = _FORM.fullmatch(secret)
    if match is None:
        return None
    now = clock.now()
    token = (
        ApiToken.objects.filter(prefix=match["prefix"], revoked_at=None)
        .filter(Q(expires_at=None) | Q(expires_at__gt=now))
        .first()
    )
    if token is None or not hmac.compare_digest(token.digest, _digest(secret)):
        return None
    if token.last_used_at is None or now - token.last_used_at > _LAST_USE_GRAIN:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
