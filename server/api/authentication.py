"""`Authorization: Bearer tm_...`: the token of an agent."""

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, Throttled
from rest_framework.request import Request

from server.core.access.tries import WINDOW, client_network, count_try
from server.core.models import ApiToken
from server.lab.hosts.tokens import find_host_token

# Of one address in one window. Agents of a whole lab may share one, and ask again when theirs is revoked.
_MOST_WRONG = 200


class TokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[None, ApiToken] | None:
        kind, _, secret = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer":
            return None
        token = find_host_token(secret.strip())
        if token is None:
            # A token that opens is never counted, nor refused for others that share its address.
            if count_try(f"token address:{client_network(request)}") > _MOST_WRONG:
                raise Throttled(WINDOW.total_seconds())
            raise AuthenticationFailed("The token is unknown, revoked or expired.")
        return (None, token)

    def authenticate_header(self, _request: Request) -> str:
        return 'Bearer realm="tidemark"'
