from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from server.core import clock
from server.core.access.tokens import find_token, issue_token, renew_token
from server.core.models import ApiToken

pytestmark = pytest.mark.django_db


def test_issued_token_is_found_and_only_its_digest_is_stored() -> None:
    secret = issue_token(name="lab", scope=ApiToken.Scope.MACHINE, subject="zen3-01")
    token = find_token(secret)
    assert token is not None
    assert token.subject == "zen3-01"
    assert secret.rpartition("_")[2] not in str(ApiToken.objects.values().get())


def test_new_secret_of_the_same_name_ends_the_old_one() -> None:
    old = issue_token(name="lab", scope=ApiToken.Scope.MACHINE, subject="zen3-01")
    new = issue_token(name="lab", scope=ApiToken.Scope.MACHINE, subject="zen3-01")
    assert find_token(old) is None
    assert find_token(new) is not None


@pytest.mark.parametrize("secret", ["", "tm_", "tm_x", "tm__", "xx_a_b", "tm_\0_\0", "tm_" + "f" * 5000 + "_x"])
def test_garbage_opens_nothing(secret: str) -> None:
    issue_token(name="lab", scope=ApiToken.Scope.MACHINE, subject="zen3-01")
    assert find_token(secret) is None


def test_expired_token_opens_nothing() -> None:
    secret = issue_token(name="lab", scope=ApiToken.Scope.MACHINE, subject="zen3-01")
    ApiToken.objects.update(expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert find_token(secret) is None


def test_right_prefix_with_wrong_secret_opens_nothing() -> None:
    secret = issue_token(name="lab", scope=ApiToken.Scope.MACHINE, subject="zen3-01")
    assert find_token(secret[:-1] + ("a" if secret[-1] != "a" else "b")) is None


def test_renewed_token_lives_as_long_as_the_one_before() -> None:
    with time_machine.travel("2026-01-01T00:00:00Z", tick=False) as time:
        token = find_token(issue_token(name="lab", scope=ApiToken.Scope.MACHINE, subject="zen3-01", days=9))
        assert token is not None
        assert renew_token(token) is None
        time.shift(timedelta(days=7))
        new = renew_token(token)
        assert new is not None
        assert new.expires_at == datetime(2026, 1, 17, tzinfo=UTC)


def test_revoked_token_is_not_renewed() -> None:
    token = find_token(issue_token(name="lab", scope=ApiToken.Scope.MACHINE, subject="zen3-01", days=1))
    assert token is not None
    ApiToken.objects.update(created_at=clock.now() - timedelta(days=30), revoked_at=clock.now())
    assert renew_token(token) is None
