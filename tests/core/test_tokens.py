from datetime import UTC, datetime

import pytest

from server.core.models import ApiToken
from server.core.tokens import find_token, issue_token

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
