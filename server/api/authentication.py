"""`Authorization: Bearer tm_...`: the token of an agent."""

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from server.core.models import ApiToken
from server.core.tokens import find_token


class TokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[None, ApiToken] | None:
        kind, _, secret = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer":
            return None
        token = find_token(secret.strip())
        if token is None:
            raise AuthenticationFailed("The token is unknown, revoked or expired.")
        return (None, token)

    def authenticate_header(self, _request: Request) -> str:
        return 'Bearer realm="tidemark"'
