"""Guessing passwords and tokens: it is counted, it ends, and it keeps nobody else out."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from ipaddress import ip_network

import pytest
import redis
import time_machine
from django.conf import settings as site
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connection
from django.test import Client, RequestFactory
from pytest_django.fixtures import Settings

from server.api import authentication
from server.core.access.tokens import issue_token
from server.core.access.tries import client_network, count_try, forget_old_tries
from server.core.models import ApiToken, Tries
from tests.builders import build_machine

pytestmark = pytest.mark.django_db
PASSWORD = "a-long-and-quiet-word"
HOME = "198.51.100.7"


@pytest.fixture(autouse=True)
def _admin(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    User.objects.create_superuser("ada", "ada@example.org", PASSWORD)


@pytest.fixture(autouse=True)
def clock_stands() -> Iterator[time_machine.Traveller]:
    with time_machine.travel("2026-11-01T12:00:00Z", tick=False) as time:
        yield time


def log_in(password: str, *, address: str = "203.0.113.1", user: str = "ada", client: Client | None = None) -> str:
    """`in`, `wrong` or `wait`."""
    form = {"username": user, "password": password, "next": "/admin/"}
    answer = (client or Client()).post("/admin/login/", form, REMOTE_ADDR=address)
    if answer.status_code == 302:
        return "in"
    return "wait" if b"Too many wrong passwords" in answer.content else "wrong"


def attack(tries: int, addresses: int = 1) -> list[str]:
    return [guess(address=f"203.0.113.{1 + n % addresses}") for n in range(tries)]


def guess(*, address: str = "203.0.113.1", user: str = "ada") -> str:
    """What the form does with a wrong password, without its page."""
    request = RequestFactory().post("/admin/login/", REMOTE_ADDR=address)
    assert authenticate(request, username=user, password="guess") is None
    return "wait" if hasattr(request, "login_refused") else "wrong"


def test_right_password_after_many_wrong_ones_opens_nothing() -> None:
    assert log_in("guess") == "wrong"
    assert attack(60).count("wrong") == 19
    assert log_in(PASSWORD) == "wait"


def test_guesses_from_many_addresses_are_few_for_each() -> None:
    assert attack(200, addresses=40).count("wrong") == 40 * 3


def test_guesses_at_many_users_are_counted_for_their_address() -> None:
    assert [guess(user=f"user{n}") for n in range(50)].count("wrong") == 30


def test_guesses_at_the_same_moment_are_all_counted(transactional_db: None) -> None:
    def one(_: int) -> int:
        try:
            return count_try("login address:here")
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(one, range(40))) == list(range(1, 41))


def test_attacker_locks_nobody_out_who_comes_from_elsewhere() -> None:
    attack(300, addresses=100)
    assert log_in(PASSWORD, address=HOME) == "in"


def test_attacker_at_the_same_address_locks_no_known_browser_out() -> None:
    known = Client()
    assert log_in(PASSWORD, client=known) == "in"
    known.cookies.pop("sessionid")
    attack(60)
    assert log_in(PASSWORD) == "wait"
    assert log_in(PASSWORD, client=known) == "in"


def test_known_browser_has_no_more_tries_than_others_and_only_for_its_user() -> None:
    User.objects.create_superuser("grace", "grace@example.org", PASSWORD)
    known = Client()
    log_in(PASSWORD, client=known)
    said = [log_in("guess", client=known) for _ in range(12)]
    assert said.count("wrong") == 10
    attack(60)
    assert log_in(PASSWORD, user="grace", client=known) == "wait"
    known.cookies["tidemark_browser"] = "forged:1:2"
    assert log_in(PASSWORD, client=known) == "wait"


def test_waiting_ends_though_the_guessing_goes_on(clock_stands: time_machine.Traveller) -> None:
    attack(60)
    for _ in range(5):
        clock_stands.shift(timedelta(minutes=3, seconds=1))
        last = log_in(PASSWORD)
        if last == "in":
            return
        attack(2)
    pytest.fail("a window that began 15 minutes ago still counts")


def test_counts_hold_when_redis_is_emptied() -> None:
    attack(60)
    redis.Redis.from_url(site.CELERY_BROKER_URL.replace("redis+socket://", "unix://")).flushdb()
    assert log_in(PASSWORD) == "wait"


def test_operator_lets_a_user_in(clock_stands: time_machine.Traveller) -> None:
    attack(60)
    call_command("let_in", "Ada")
    assert log_in(PASSWORD, address="203.0.113.1") == "wait"
    call_command("let_in", "ada", "--address", "203.0.113.1")
    assert log_in(PASSWORD) == "in"
    attack(5)
    clock_stands.shift(timedelta(hours=1))
    assert forget_old_tries() > 0
    assert not Tries.objects.exists()


@pytest.mark.parametrize("user", ["", "\0", "x" * 100_000])
def test_odd_names_are_wrong_names(user: str) -> None:
    assert log_in("guess", user=user) == "wrong"


@pytest.mark.parametrize(
    ("peer", "said", "network"),
    [
        ("203.0.113.1", "198.51.100.7", "203.0.113.1"),
        ("127.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("127.0.0.1", "192.0.2.66, 198.51.100.7", "198.51.100.7"),
        ("127.0.0.1", "192.0.2.66, 198.51.100.7, 10.1.2.3", "198.51.100.7"),
        ("127.0.0.1", "10.1.2.3", "10.1.2.3"),
        ("127.0.0.1", "nonsense", "127.0.0.1"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("", "198.51.100.7", "198.51.100.7"),
        ("::1", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.1", "198.51.100.7", "203.0.113.1"),
    ],
)
def test_only_the_sites_own_proxies_say_who_asks(peer: str, said: str, network: str, settings: Settings) -> None:
    settings.TRUSTED_PROXIES = (ip_network("127.0.0.1"), ip_network("::1"), ip_network("10.0.0.0/8"))
    request = RequestFactory().get("/", REMOTE_ADDR=peer, headers={"X-Forwarded-For": said})
    assert client_network(request) == network


def test_wrong_tokens_are_limited_and_right_ones_pass_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    build_machine("box")
    right = issue_token(name="box", scope=ApiToken.Scope.MACHINE, subject="box")
    body = {"agent": "agent-0001", "version": "1", "host": "box"}

    def hello(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return Client().post("/api/v1/agent/hello", body, "application/json", headers=headers).status_code

    monkeypatch.setattr(authentication, "_MOST_WRONG", 5)
    assert [hello("tm_000000000000_wrong") for _ in range(8)] == [401] * 5 + [429] * 3
    assert hello(right) == 200


@pytest.mark.parametrize("password", ["short-one", "password1234", "284719045827", "ada@example.org"])
def test_weak_passwords_are_refused(password: str) -> None:
    with pytest.raises(ValidationError):
        validate_password(password, User.objects.get())


@pytest.mark.parametrize("wanted", ["", "https://evil.example/"])
def test_login_that_asks_for_no_page_of_this_site_leads_to_its_first(wanted: str) -> None:
    client = Client()
    answer = client.post("/admin/login/", {"username": "ada", "password": PASSWORD, "next": wanted})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")
    answer = client.post("/admin/logout/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")
