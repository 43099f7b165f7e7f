"""The frame that all pages share: where it leads, signing in and out, and what is said of errors."""

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.test import Client, RequestFactory
from django.views import defaults
from pytest_django.fixtures import Settings

from tests.builders import build_tree
from tests.dashboard.conftest import Reader

PASSWORD = "correct horse battery"


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada", password=PASSWORD, is_staff=True)


def sign_in(client: Client, **more: str) -> str:
    answer = client.post("/login/", {"username": "ada", "password": PASSWORD, **more})
    return str(answer.get("Location", ""))


@pytest.mark.django_db
def test_navigation_leads_to_every_part(reader: Reader) -> None:
    nav = reader.read("/").split('aria-label="Site"')[1].split("</nav>")[0]
    for path in ("/", "/trees/", "/findings/", "/series/", "/machines/", "/queue/", "/api/v1/docs/"):
        assert f'href="{path}"' in nav
    assert 'href="/login/?next=%2F"' in nav
    assert "Sign out" not in nav


@pytest.mark.django_db
def test_who_signs_in_is_named_comes_back_and_signs_out(client: Client, ada: User) -> None:
    assert sign_in(client, next="/findings/?state=open") == "/findings/?state=open"
    text = client.get("/machines/").content.decode()
    assert ada.username in text
    assert "Sign in" not in text
    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/")["Location"] == "/"
    assert "Sign in" in client.get("/machines/").content.decode()


@pytest.mark.django_db
@pytest.mark.usefixtures("ada")
@pytest.mark.parametrize("away", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"])
def test_signing_in_leads_to_no_other_site(client: Client, away: str) -> None:
    assert "evil" not in client.get("/login/", {"next": away}).content.decode().split("<main")[1]
    assert sign_in(client, next=away) == "/"


@pytest.mark.django_db
def test_wrong_password_is_said_in_the_frame(client: Client, ada: User) -> None:
    answer = client.post("/login/", {"username": ada.username, "password": "wrong"})
    text = answer.content.decode()
    assert 'role="alert"' in text
    assert '<nav aria-label="Site">' in text
    assert 'value="ada"' in text


@pytest.mark.django_db
def test_admin_is_entered_by_the_same_page(client: Client, ada: User) -> None:
    assert client.get("/admin/")["Location"] == "/admin/login/?next=/admin/"
    assert '<nav aria-label="Site">' in client.get("/admin/login/?next=/admin/").content.decode()
    assert sign_in(client, next="/admin/") == "/admin/"
    assert client.get("/admin/").status_code == 200
    assert ada.is_staff


@pytest.mark.django_db
def test_form_without_its_mark_gets_a_page_that_says_what_to_do(ada: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    answer = client.post("/findings/act/", {"act": "assign-me"})
    text = answer.content.decode()
    assert answer.status_code == 403
    assert "reload the page" in text
    assert '<nav aria-label="Site">' in text
    assert answer["Content-Security-Policy"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "sentence"),
    [("/findings/7/", "There is no finding 7."), ("/series/8/", "There is no series 8."), ("/no/such/", "nothing at")],
)
def test_page_that_is_not_there_keeps_its_sentence(reader: Reader, path: str, sentence: str) -> None:
    assert sentence in reader.read(path, status=404)


def test_page_that_is_not_there_repeats_nothing_that_acts(rf: RequestFactory) -> None:
    answer = defaults.page_not_found(rf.get("/<script>"), Http404("There is no tree <script>alert(1)</script>."))
    text = answer.content.decode()
    assert "There is no tree &lt;script&gt;alert(1)&lt;/script&gt;." in text
    assert "<script>alert" not in text


def test_page_that_is_not_there_hides_what_only_programmers_say(rf: RequestFactory) -> None:
    text = defaults.page_not_found(rf.get("/x"), Http404("No Series matches the given query.")).content.decode()
    assert "matches the given query" not in text


def test_forbidden_page_says_which_right_is_missing(rf: RequestFactory) -> None:
    text = defaults.permission_denied(rf.get("/"), PermissionDenied("eve lacks the right lab.<b>")).content.decode()
    assert "eve lacks the right lab.&lt;b&gt;" in text


@pytest.mark.django_db
def test_description_of_the_api_stands_in_the_frame_and_knows_who_is_there(client: Client, ada: User) -> None:
    text = client.get("/api/v1/docs/").content.decode()
    assert '<nav aria-label="Site">' in text
    assert 'id="swagger-ui"' in text
    assert "Sign in" in text
    client.force_login(ada)
    assert "Sign out" in client.get("/api/v1/docs/").content.decode()


@pytest.mark.django_db
def test_trees_are_listed(reader: Reader, settings: Settings) -> None:
    assert "No tree is watched yet." in reader.read("/trees/")
    build_tree("akpm")
    assert 'href="/trees/akpm/"' in reader.read("/trees/")
    assert settings.LOGIN_URL == "login"
