"""Who may what: every address of version 1 x everybody who may ask. A new address without a line here fails."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings
from django.urls import URLPattern, URLResolver
from pytest_django import DjangoDbBlocker

from server.api.v1 import urls
from server.core.access.people import issue_person_token
from server.core.access.tokens import issue_token
from server.core.models import ApiToken, PersonToken
from server.lab.models import Attempt, SessionState
from tests.builders import build_attempt, build_builder, build_machine, build_session
from tests.kept import kept_rows, settle

pytestmark = pytest.mark.django_db
WHO = ("nobody", "user", "triager", "admin", "token", "narrow", "box", "other", "forge", "control")
Scope = PersonToken.Scope

# Anybody reads. What one row tells is asked of a row that is not there: 404, and nobody is asked who he is.
LISTS = (
    "acceptance benchmark branch build builder case delivery finding head-move list machine machine-question message "
    "metric mail-command power-cycle report series session tag timeline tree uarch wanted-revision attempt"
)
ROWS = (
    "timeline series-detail series-patches series-history series-case series-approval session-detail session-cells "
    "session-samples machine-detail machine-noise builder-detail finding-detail finding-case finding-patchwork "
    "finding-kcidb finding-regzbot finding-trailers timeline-detail build-detail attempt-detail tree-detail "
    "message-detail nothing-here"
)
# With an empty body, which no act takes: whoever may act hears 400, and nothing is changed.
ACTS = {
    "series-list": Scope.SUBMIT,
    "series-approval": Scope.APPROVE,
    "series-retest": Scope.RETEST,
    "finding-retest": Scope.RETEST,
    "finding-assign": Scope.TRIAGE,
    "finding-withdraw": Scope.TRIAGE,
    "finding-reopen": Scope.TRIAGE,
    "finding-duplicate": Scope.TRIAGE,
    "finding-fix": Scope.TRIAGE,
    "finding-accept": Scope.TRIAGE,
    "acceptance-withdraw": Scope.TRIAGE,
    "report-approve": Scope.MODERATE,
    "report-reject": Scope.MODERATE,
    "report-hold": Scope.MODERATE,
    "report-release": Scope.MODERATE,
    "report-edit": Scope.MODERATE,
    "machine-maintenance": Scope.MAINTENANCE,
    "machine-enrolment": Scope.ENROL,
    "build-again": Scope.BUILDS,
}
# The four agents, in the order of WHO; the attempt is of a session on `box`, and unknown to all others.
AGENTS = {
    "agent-hello POST": (400, 400, 400, 400),
    "agent-work POST": (400, 400, 400, 400),
    "agent-token POST": (400, 400, 400, 400),
    "agent-artifact GET": (404, 404, 404, 404),
    "agent-artifact PUT": (403, 403, 409, 403),
    **{
        f"agent-{step} POST": (400, 404, 404, 404)
        for step in ("claim", "arrive", "heartbeat", "build", "boot-start", "boot", "end")
    },
}


def _table() -> dict[str, tuple[int, ...]]:
    table = {f"api-{name}-list GET": (200,) * 10 for name in LISTS.split()}
    table |= {f"api-{name} GET": (200,) * 10 for name in ("queue", "schema", "docs", "transitions", "catalogue")}
    table |= {f"api-{name} GET": (404,) * 10 for name in ROWS.split()}
    # Without what they have to be asked for.
    table |= {"api-compare GET": (400,) * 10, "api-measurement-list GET": (400,) * 10}
    table |= {"api-what-if GET": (400,) * 10}
    for name, scope in ACTS.items():
        triager = 400 if scope == Scope.TRIAGE else 403
        table[f"api-{name} POST"] = (401, 403, triager, 400, 400, 403, 401, 401, 401, 401)
    # Whoever may sign in has subscriptions, and nobody reads those of another.
    for name in ("list GET", "list POST", "change POST", "secret POST", "end POST"):
        status = {"list GET": 200, "list POST": 400}.get(name, 404)
        table[f"api-subscription-{name}"] = (401, status, status, status, status, 403, 401, 401, 401, 401)
    # Nobody named takes it on himself: there is nothing to miss in the body.
    table["api-finding-assign POST"] = (401, 403, 404, 404, 404, 403, 401, 401, 401, 401)
    # A host that has no token yet: its code is what counts.
    table["agent-enrolment POST"] = (400,) * 10
    return table | {name: (401,) * 6 + agents for name, agents in AGENTS.items()}


TABLE = _table()


def _endpoints() -> dict[str, str]:
    """The address by name and method, for rows that are not there, save the attempt."""
    values = {"str:key": "{key}", "slug:key": "none", "str:sha256": "0" * 64, "int:position": "0", "int:pk": "0"}
    found: dict[str, str] = {}
    for pattern, path in _patterns(urls.urlpatterns, "/api/v1/"):
        cls = getattr(pattern.callback, "cls", None)
        several = pattern.name != "api-nothing-here"
        methods = [name.upper() for name in ("get", "post", "put", "patch", "delete") if several and hasattr(cls, name)]
        address = re.sub(r"<([^>]*)>", lambda mark: values.get(mark[1], "none"), path)
        found |= {f"{pattern.name} {method}": address for method in methods or ["GET"]}
    return found


def _patterns(patterns: list[Any], prefix: str) -> Iterator[tuple[URLPattern, str]]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from _patterns(pattern.url_patterns, prefix + str(pattern.pattern))
        else:
            yield pattern, prefix + (str(pattern.pattern) or "no-such-thing/")


ENDPOINTS = _endpoints()


@pytest.fixture(scope="module")
def people(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Client]]:
    with kept_rows(django_db_blocker, tmp_path_factory.mktemp("state")), override_settings(LAB_CONTROL="control"):
        yield _made()


def _made() -> dict[str, Client]:
    build_attempt(build_session(machine=build_machine("box"), state=SessionState.RUNNING))
    build_machine("other")
    build_builder("forge")
    triager, admin = User.objects.create_user("triager"), User.objects.create_superuser("admin")
    triager.user_permissions.add(Permission.objects.get(codename="change_finding"))
    logins = {"user": User.objects.create_user("user"), "triager": triager, "admin": admin}
    found = {"nobody": Client(), **{name: Client() for name in logins}}
    for name, user in logins.items():
        found[name].force_login(user)
    found["token"] = _bearer(issue_person_token(admin, name="all", scopes=Scope.values).secret)
    for scope in Scope:
        rest = [other for other in Scope.values if other != scope]
        found[f"all-but-{scope}"] = _bearer(issue_person_token(admin, name=f"no-{scope}", scopes=rest).secret)
    kinds = {"box": ApiToken.Scope.MACHINE, "other": ApiToken.Scope.MACHINE}
    kinds |= {"forge": ApiToken.Scope.BUILDER, "control": ApiToken.Scope.CONTROL}
    found |= {name: _bearer(issue_token(name=name, scope=kind, subject=name)) for name, kind in kinds.items()}
    settle()
    return found


def _bearer(secret: str) -> Client:
    return Client(headers={"Authorization": f"Bearer {secret}"})


def _asked(people: Mapping[str, Client], name: str, who: str) -> int:
    endpoint, _, method = name.partition(" ")
    scope = Scope.SUBSCRIBE if "subscription" in endpoint else ACTS.get(endpoint.removeprefix("api-")) or Scope.SUBMIT
    client = people[f"all-but-{scope}" if who == "narrow" else who]
    path = ENDPOINTS[name].replace("{key}", Attempt.objects.values_list("key", flat=True).get())
    body: dict[str, Any] = {} if method == "GET" else {"data": b"{}", "content_type": "application/json"}
    if endpoint == "api-series-list" and method == "POST":
        body = {"data": b"", "content_type": "application/mbox"}
    if method == "PUT":
        body = {"data": b"x", "content_type": "application/octet-stream"}
    answer = client.generic(method, path, **body)
    if answer.streaming:
        answer.getvalue()
    return answer.status_code


def test_every_address_has_a_line() -> None:
    assert sorted(ENDPOINTS) == sorted(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_each_may_what_the_table_says(people: dict[str, Client], name: str) -> None:
    expected = dict(zip(WHO, TABLE[name], strict=True))
    # Where everybody hears the same, one of each kind is asked: without a login, with one, and with either token.
    asked = WHO if len(set(TABLE[name])) > 1 else ("nobody", "user", "token", "box")
    assert {who: _asked(people, name, who) for who in asked} == {who: expected[who] for who in asked}


def test_a_person_is_held_to_what_he_may_now(people: dict[str, Client]) -> None:
    maker = User.objects.create_user("maker")
    maker.user_permissions.add(Permission.objects.get(codename="change_machine"))
    client = _bearer(issue_person_token(maker, name="nightly", scopes=["maintenance", "triage"]).secret)
    path = "/api/v1/machines/box/maintenance/"

    def status(path: str = path) -> int:
        return client.post(path, {}, "application/json").status_code

    # A scope is no right: the token opens what its owner may.
    assert (status(), status("/api/v1/findings/1/accept/")) == (400, 403)
    maker.user_permissions.clear()
    assert status() == 403
    User.objects.filter(pk=maker.pk).update(is_active=False)
    assert status() == 401


def test_missing_scope_is_named(people: dict[str, Client]) -> None:
    answer = people["all-but-retest"].post("/api/v1/series/1/retest/", {}, "application/json")
    assert (answer.status_code, answer.json()["code"]) == (403, "scope-missing")
    assert "retest" in answer.json()["title"]
