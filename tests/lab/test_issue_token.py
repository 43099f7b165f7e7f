"""The command that gives a lab machine its token."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.access.tokens import find_token
from server.core.models import ApiToken
from server.lab.models import Builder, Machine
from tests.builders import build_machine

pytestmark = pytest.mark.django_db


def issue(*words: str) -> str:
    out = StringIO()
    call_command("issue_token", *words, stdout=out)
    return out.getvalue().strip()


def test_token_is_for_this_machine_alone_and_a_new_one_ends_the_old() -> None:
    build_machine("box")
    old = issue("box")
    token = find_token(old)
    assert token is not None
    assert (token.scope, token.subject) == (ApiToken.Scope.MACHINE, "box")
    new = issue("box")
    assert find_token(old) is None
    assert find_token(new) is not None
    assert issue("box", "--revoke") == "1 revoked"
    assert find_token(new) is None


def test_machine_that_is_not_there_gets_none() -> None:
    with pytest.raises(CommandError, match="no machine or builder 'nobody'"):
        issue("nobody")
    assert not ApiToken.objects.exists()


def test_builders_and_the_control_host_get_tokens_of_their_own_scope(settings: Settings) -> None:
    settings.LAB_CONTROL = "lab-control"
    Builder.objects.create(name="forge")
    scopes = {name: found.scope for name in ("forge", "lab-control") if (found := find_token(issue(name)))}
    assert scopes == {"forge": "builder", "lab-control": "control"}


def test_name_of_two_hosts_asks_which_is_meant() -> None:
    build_machine("box")
    Builder.objects.create(name="box")
    with pytest.raises(CommandError, match=r"machine and builder.*--scope"):
        issue("box")
    token = find_token(issue("box", "--scope", "builder"))
    assert token is not None
    assert (token.scope, token.subject) == ("builder", "box")


def test_list_says_whose_tokens_there_are_and_until_when() -> None:
    build_machine("box")
    issue("box", "--days", "30")
    line = issue("--list")
    assert "box" in line
    assert f"{clock.now() + timedelta(days=30):%Y-%m-%d}" in line
    assert line.endswith("valid")
    Machine.objects.update(health="retired")
    assert issue("--list", "box").endswith("its host is gone")
    assert issue("--list", "other") == ""


def test_host_has_to_be_named_and_days_to_make_sense() -> None:
    with pytest.raises(CommandError, match="which host"):
        issue()
    with pytest.raises(CommandError, match="--days"):
        issue("box", "--days", "0")
