"""`Authorization: Bearer ...`: the token of an agent (`tm_`), or of a script of a person (`tmp_`).

Neither opens what is for the other.
"""

from typing import Any, NoReturn

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, Throttled
from rest_framework.request import Request

from server.core.access.people import Person, find_person
from server.core.access.tries import WINDOW, client_network, count_try
from server.core.models import ApiToken
from server.lab.hosts.tokens import find_host_token

# Of one address in one window. Agents of a whole lab may share one, and ask again when theirs is revoked.
_MOST_WRONG = 200


class _Bearer(BaseAuthentication):
    def authenticate_header(self, _request: Request) -> str:
        return 'Bearer realm="tidemark"'


class TokenAuthentication(_Bearer):
    def authenticate(self, request: Request) -> tuple[None, ApiToken] | None:
        secret = _shown(request)
        if secret is None:
            return None
        token = find_host_token(secret)
        return (None, token) if token is not None else _refuse(request)


class PersonAuthentication(_Bearer):
    """`request.auth` is the Person, with the token that was shown."""

    def authenticate(self, request: Request) -> tuple[Any, Person] | None:
        secret = _shown(request)
        if secret is None:
            return None
        person = find_person(secret)
        return (person.user, person) if person is not None else _refuse(request)


def _shown(request: Request) -> str | None:
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    return secret.strip() if kind == "Bearer" else None


def _refuse(request: Request) -> NoReturn:
    # A token that opens is never counted, nor refused for others that share its address.
    if count_try(f"token address:{client_network(request)}") > _MOST_WRONG:
        raise Throttled(WINDOW.total_seconds())
    raise AuthenticationFailed("The token is unknown here, revoked or expired.")
