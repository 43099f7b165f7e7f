"""Tokens of people, for their scripts: each opens some of what its owner may do, and never more than that."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from server.core import clock
from server.core.access.tokens import OF_PERSON, NewToken, opened, sealed, valid
from server.core.errors import DomainError
from server.core.models import LONGEST_ACTOR, PersonToken

MOST_DAYS = 3650
_LONGEST_NAME = 60
_VALID = valid(lambda: PersonToken.objects.filter(user__is_active=True).select_related("user"))
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{_LONGEST_NAME}}}")


@dataclass(frozen=True)
class Person:
    """Who asks: somebody who is logged in, or whose script shows a token."""

    user: User
    token: PersonToken | None = None

    @property
    def actor(self) -> str:
        """As histories name who did it, and by what."""
        name = self.user.get_username()
        return f"{name} (token {self.token.name})"[:LONGEST_ACTOR] if self.token else name

    def lacks(self, scope: PersonToken.Scope) -> bool:
        """Whether the token was not made for this; somebody who is logged in needs none."""
        return self.token is not None and scope not in self.token.scopes


def issue_person_token(user: User, *, name: str, scopes: Collection[str], days: float | None = None) -> NewToken:
    """A new token of this user; that of the same name is no longer taken.

    It is valid for `days`, or for as long as the site's setting says. DomainError `bad-name`, `bad-scope`, `bad-days`,
    or `inactive` for a user who may not log in.
    """
    _check(user, name, scopes, days)
    with transaction.atomic():
        revoke_person_tokens(user, name=name)
        row = PersonToken(user=user, name=name, scopes=sorted(set(scopes)))
        return sealed(row, timedelta(days=days or settings.TOKEN_DAYS), mark=OF_PERSON)


def find_person(secret: str) -> Person | None:
    """Whose token it is, and the token; None where it opens nothing: it has ended, or its owner may not log in."""
    token = opened(secret, _VALID.first, mark=OF_PERSON)
    return None if token is None else Person(token.user, token)


def revoke_person_tokens(user: User, *, name: str = "") -> int:
    """End the user's token of that name, or all; returns how many were valid."""
    now = clock.now()
    held: QuerySet[PersonToken] = PersonToken.objects.filter(user=user, revoked_at=None)
    held = held.filter(name=name) if name else held
    valid = held.filter(expires_at__gt=now).count()
    held.update(revoked_at=now)
    return valid


def _check(user: User, name: str, scopes: Collection[str], days: float | None) -> None:
    if not user.is_active:
        raise DomainError("inactive", f"{user.get_username()} may not log in, and so holds no token")
    if not _NAME.fullmatch(name):
        said = f"a token's name has letters, digits, - and _, {_LONGEST_NAME} at most: everybody sees it"
        raise DomainError("bad-name", said)
    if not scopes or (unknown := sorted(set(scopes) - set(PersonToken.Scope.values))):
        told = f"there is no scope {', '.join(unknown)}" if scopes else "a token needs a scope"
        raise DomainError("bad-scope", f"{told}; there are: {', '.join(PersonToken.Scope.values)}")
    if days is not None and not 0 < days <= MOST_DAYS:
        raise DomainError("bad-days", f"a token lives more than 0 days and at most {MOST_DAYS}")
