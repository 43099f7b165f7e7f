"""Every address, every method, every parameter, with what nobody in his right mind would send: never a server error."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.signals import request_finished
from django.db import close_old_connections
from django.test import Client, override_settings
from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator
from pytest_django import DjangoDbBlocker

from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from tests.builders import build_builder
from tests.kept import kept_rows, settle
from tests.lab_scenarios import busy_lab
from tests.scenarios import busy_site

pytestmark = pytest.mark.django_db

_METHODS = [(who, method) for method in ("GET", "POST") for who in ("nobody", "operator")]
_METHODS += [("operator", method) for method in ("OPTIONS", "PROPFIND")]
_METHODS += [("nobody", method) for method in ("HEAD", "PUT", "PATCH", "DELETE", "TRACE")]
# As they stand in an address: percent signs for printf, a NUL, a lone surrogate, broken UTF-8, numbers that no column
# holds, digits of other scripts, days that no calendar has, an array, an object, a path, a quote.
_HOSTILE = [
    "%25d", "%25(x)s", "%25", "%00", "a%00b", "%ED%A0%80", "%FF%FE", "", "-1", "0", "9" * 30, "1e999", "NaN", "%D9%A3",
    "0000-00-00", "0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00", "275760-09-13", "[1,2]", "{}", "..%2F..",
    "'%22;--", "%F0%9F%92%A9", "x" * 3000, "%E2%80%AE", "%0A", "null", "%C2%B2",
]  # fmt: skip
# So many of them for each parameter of each address, in turn: a name is asked with all, and so is a page.
_IN_TURN = 4
_ADMIN = "admin/"
# Parameters of pages, which nothing describes.
_OF_PAGES = ["state", "kind", "page", "list", "mail", "tree", "machine", "format", "after", "before", "branch", "moves"]


@pytest.fixture(scope="module", autouse=True)
def rows(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    state = tmp_path_factory.mktemp("state")
    program = state / "agent.pyz"
    program.write_bytes(b"PK")
    with (
        kept_rows(django_db_blocker, state),
        override_settings(VIRTUAL_VERDICTS=True, NOISE_HOURS=0.0, LOCAL_AGENT=str(program)),
    ):
        busy_lab()
        busy_site()
        settle()
        yield


def test_no_parameter_makes_a_server_error(client: Client) -> None:
    client.raise_request_exception = False
    described = list(_described())
    places = Counter(name for _, names in described for name in names)
    asked: Counter[str] = Counter()
    for address, names in described:
        for name in names:
            # Those that are few addresses' own are asked with all values there.
            for value in _in_turn(asked[name], max(_IN_TURN, -(-len(_HOSTILE) // places[name]))):
                asked[name] += 1
                answer = client.get(f"{address}?{name}={value}")
                assert answer.status_code < 500, f"{address}?{name}={value}"
    assert min(asked.values()) >= len(_HOSTILE)


def test_no_parameter_of_a_page_makes_a_server_error(client: Client) -> None:
    client.raise_request_exception = False
    pages = [one for one in _patterns(get_resolver().url_patterns) if not one.startswith(("api/", _ADMIN))]
    for number, pattern in enumerate(pages):
        address = "/" + re.sub(r"<[^>]*>", "1", pattern)
        for start in range(number, number + len(_HOSTILE), len(_HOSTILE) // _IN_TURN):
            # All at once: a page does not refuse what it does not know.
            values = zip(_OF_PAGES, _in_turn(start, len(_OF_PAGES)), strict=True)
            query = "&".join(f"{name}={value}" for name, value in values)
            assert _status(client, "GET", f"{address}?{query}") < 500, f"{address}?{query}"


@pytest.mark.parametrize(("who", "method"), _METHODS)
def test_no_method_makes_a_server_error(client: Client, who: str, method: str) -> None:
    client.raise_request_exception = False
    if who == "operator":
        client.force_login(User.objects.create_superuser("root"))
    for address in _addresses():
        assert _status(client, method, address) < 500, f"{method} {address}"


def test_no_address_makes_a_server_error(client: Client) -> None:
    client.raise_request_exception = False
    named = [pattern for pattern in _patterns(get_resolver().url_patterns) if "<" in pattern]
    for number, pattern in enumerate(named):
        for value in _in_turn(number * _IN_TURN, _IN_TURN):
            address = "/" + re.sub(r"<[^>]*>", value.replace("\\", "\\\\"), pattern)
            assert _status(client, "GET", address) < 500, address


_BODIES = [b"", b"[]", b"null", b'"%d"', b"{", b"\xff", b'{"agent": "\\u0000"}', b'{"agent": {}}']
_BODIES += [b'{"agent": "\\ud800", "machine": [1], "outcome": "%d", "reason": 1e999}']


@pytest.mark.parametrize("body", _BODIES)
def test_no_body_of_an_agent_makes_a_server_error(client: Client, body: bytes) -> None:
    client.raise_request_exception = False
    builder = build_builder(name="hostile-builder")
    secret = issue_token(name="hostile", scope=ApiToken.Scope.BUILDER, subject=builder.name)
    for address in _addresses():
        if "/agent/" in address:
            answer = client.generic("POST", address, body, content_type="application/json",
                                    headers={"Authorization": f"Bearer {secret}"})  # fmt: skip
            assert answer.status_code < 500, f"{address} {body!r}"


@pytest.mark.parametrize("method", ["OPTIONS", "POST"])
def test_documentation_page_is_asked_with_a_method_it_does_not_have(client: Client, method: str) -> None:
    answer = client.generic(method, "/api/v1/docs/")
    assert answer.status_code == 405


def _in_turn(start: int, count: int) -> Iterator[str]:
    """`count` hostile values from number `start` on, after the last the first again."""
    return (_HOSTILE[number % len(_HOSTILE)] for number in range(start, start + count))


def _status(client: Client, method: str, address: str) -> int:
    answer = client.generic(method, address)
    # As a server does, for what holds a file open: but the connection stays that of the test's transaction.
    request_finished.disconnect(close_old_connections)
    answer.close()
    request_finished.connect(close_old_connections)
    return answer.status_code


def _described() -> Iterator[tuple[str, list[str]]]:
    """Each address of the API that is read, and the names of all its parameters."""
    description: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    for path, operations in description["paths"].items():
        given = operations.get("get", {}).get("parameters", ())
        yield re.sub(r"\{[^}]*\}", "1", path), [one["name"] for one in given if one["in"] == "query"]


def _addresses() -> list[str]:
    return ["/" + re.sub(r"<[^>]*>", "1", pattern) for pattern in _patterns(get_resolver().url_patterns)]


def _patterns(patterns: list[Any], prefix: str = "") -> Iterator[str]:
    for pattern in patterns:
        path = prefix + str(pattern.pattern).lstrip("^").rstrip("$")
        if isinstance(pattern, URLResolver):
            yield from _patterns(pattern.url_patterns, path)
        elif isinstance(pattern, URLPattern) and "(?P" not in path:
            yield path
