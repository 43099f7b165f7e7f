"""Users, their tokens and permissions."""

import base64
import binascii
import secrets
from dataclasses import dataclass, field

READ = "hudson.model.Hudson.Read"
ADMINISTER = "hudson.model.Hudson.Administer"
ITEM_READ = "hudson.model.Item.Read"
BUILD = "hudson.model.Item.Build"
CANCEL = "hudson.model.Item.Cancel"
CREATE = "hudson.model.Item.Create"
CONFIGURE = "hudson.model.Item.Configure"
DELETE = "hudson.model.Item.Delete"
NODE_CREATE = "hudson.model.Computer.Create"
NODE_CONFIGURE = "hudson.model.Computer.Configure"
NODE_DELETE = "hudson.model.Computer.Delete"
CONNECT = "hudson.model.Computer.Connect"
DISCONNECT = "hudson.model.Computer.Disconnect"

_VIEWER = frozenset({READ, ITEM_READ})
_DISPATCHER = _VIEWER | {BUILD, CANCEL, CONNECT, DISCONNECT}
_NODE_ADMIN = _VIEWER | {CREATE, CONFIGURE, DELETE, NODE_CREATE, NODE_CONFIGURE, NODE_DELETE, CONNECT, DISCONNECT}
_ADMIN = _DISPATCHER | _NODE_ADMIN | {ADMINISTER}


@dataclass
class User:
    name: str
    permissions: frozenset[str]
    token: str = field(default_factory=lambda: "11" + secrets.token_hex(16))
    password: str = field(default_factory=lambda: secrets.token_hex(8))
    expired: bool = False


@dataclass(frozen=True)
class Login:
    """Who sent a request, and whether by password (then a POST needs a crumb)."""

    user: User
    by_password: bool


class RefusedError(Exception):
    """Credentials that nobody has: 401."""


class Users:
    """The users of the recordings."""

    def __init__(self) -> None:
        made = (
            User("dispatcher", _DISPATCHER),
            User("viewer", _VIEWER),
            User("nodeadmin", _NODE_ADMIN),
            User("admin", _ADMIN),
        )
        self.by_name = {user.name: user for user in made}
        self.crumbs: dict[str, str] = {}

    def log_in(self, authorization: str | None) -> Login | None:
        """None for nobody at all. Raises RefusedError."""
        if authorization is None:
            return None
        scheme, _, encoded = authorization.partition(" ")
        try:
            name, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise RefusedError from error
        user = self.by_name.get(name)
        if scheme.lower() != "basic" or user is None:
            raise RefusedError
        if secrets.compare_digest(secret.encode(), user.token.encode()) and not user.expired:
            return Login(user, by_password=False)
        if secrets.compare_digest(secret.encode(), user.password.encode()):
            return Login(user, by_password=True)
        raise RefusedError

    def crumb(self, cookie: str | None) -> tuple[str, str]:
        """A crumb and the session cookie that it holds for."""
        session = cookie or secrets.token_hex(8)
        return self.crumbs.setdefault(session, secrets.token_hex(32)), session

    def crumb_holds(self, crumb: str | None, cookie: str | None) -> bool:
        return crumb is not None and cookie is not None and self.crumbs.get(cookie) == crumb
