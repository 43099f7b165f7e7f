"""Addresses that people give the service: without any credential in them, and so as strangers may see them.

An address stands on pages, in logs, in what git says and on command lines. What opens it is kept in a file
(settings.GIT_CREDENTIALS); an address that brings it along is refused.
"""

import re
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db.models import CheckConstraint, Q

# Up to the last @ before the path: a password may hold one itself.
_USER = re.compile(r"(?<=://)[^/\s]*@")
# Whatever follows the path: a query such as ?token=..., or a fragment. Git quotes addresses in its errors.
_BEHIND_PATH = re.compile(r"(?<=://)([^\s?#]*+)(?:[?#]\S*)?")
# The same for PostgreSQL: somebody's name before the host, or anything behind the path.
_OPENS = r"^[^/]*://([^/]*@|[^?#]*[?#])"


def without_credentials(text: str) -> str:
    """`text` with `user:password@`, queries and fragments left out of every URL in it: an address, or an error."""
    return _BEHIND_PATH.sub(r"\1", _USER.sub("", text))


def check_address(url: str) -> None:
    """Raises ValidationError, which does not repeat it, where `url` holds what may be a credential."""
    if re.search(_OPENS, url):
        raise ValidationError(
            "holds a user, a query or a fragment, which everybody could see: leave it out, and put what opens it into "
            "the file that TIDEMARK_GIT_CREDENTIALS names"
        )


def address_check(name: str) -> CheckConstraint:
    """That no row of a table has a `url` with a credential in it."""
    return CheckConstraint(condition=~Q(url__regex=_OPENS), name=name)


def configured_address(name: str, value: str) -> str:
    """`value` of the setting `name`, which others will see; ImproperlyConfigured where it holds a credential."""
    if re.search(_OPENS, value):
        raise ImproperlyConfigured(
            f"{name} holds a user, a query or a fragment, which agents, logs and pages would show: leave it out"
        )
    return value


def origin(url: str) -> tuple[str, str]:
    """Scheme and host, with its port: what a credential is for."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2]
