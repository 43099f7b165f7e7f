"""What all pages share: errors, robots, headers, and a frame that a screen reader can follow."""

import re

import pytest
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.test import Client, RequestFactory
from django.views import defaults

from tests.dashboard.conftest import Reader


@pytest.mark.django_db
def test_address_that_does_not_exist_gets_a_page_of_the_site(reader: Reader) -> None:
    text = reader.read("/no/such/place?<script>", status=404)
    assert "404: not found" in text
    assert '<nav aria-label="Site">' in text
    assert "<script>" not in text


def test_forbidden_page_has_the_same_frame(rf: RequestFactory) -> None:
    response = defaults.permission_denied(rf.get("/"), PermissionDenied())
    assert response.status_code == 403
    assert b'<nav aria-label="Site">' in response.content


def test_failure_page_needs_nothing_that_may_have_failed() -> None:
    response = defaults.server_error(HttpRequest())
    assert response.status_code == 500
    assert b'<nav aria-label="Site">' in response.content
    assert b"X-Request-Id" in response.content


def test_robots_are_told_what_not_to_read(client: Client) -> None:
    response = client.get("/robots.txt")
    assert response["Content-Type"].startswith("text/plain")
    assert b"Disallow: /admin/" in response.content


@pytest.mark.django_db
def test_pages_allow_no_inline_style_and_only_scripts_with_a_nonce(client: Client) -> None:
    policy = client.get("/")["Content-Security-Policy"]
    assert "unsafe-inline" not in policy
    assert "unsafe-eval" not in policy


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/", "/series/", "/machines/", "/status/"])
def test_page_has_one_heading_one_main_and_no_inline_style(reader: Reader, path: str) -> None:
    text = reader.read(path)
    assert len(re.findall(r"<h1\b", text)) == 1
    assert len(re.findall(r"<main\b", text)) == 1
    assert "style=" not in text
    assert "<style" not in text
    assert text.count("<table") == text.count("<caption")


@pytest.mark.django_db
def test_pages_are_read_and_not_written(client: Client) -> None:
    assert client.post("/series/").status_code == 405
