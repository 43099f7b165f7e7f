"""The OpenAPI description: valid, complete, and true for every answer."""

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema

from server.api.v1 import urls

_UNDESCRIBED = {"api-schema", "api-docs", "api-nothing-here"}


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return schema


def test_description_is_valid_openapi(description: dict[str, Any]) -> None:
    assert description["openapi"].startswith("3.1")
    validate_schema(description)  # type: ignore[no-untyped-call]


def test_every_endpoint_is_described(description: dict[str, Any]) -> None:
    described = {re.sub(r"\{[^}]*\}", "{}", path) for path in description["paths"]}
    for pattern, name in _endpoints(urls.urlpatterns):
        if name not in _UNDESCRIBED:
            assert f"/api/v1/{pattern}" in described, name


def test_every_choice_has_a_name_of_its_own(description: dict[str, Any]) -> None:
    names = description["components"]["schemas"]
    assert [name for name in names if re.fullmatch(r"\w+[0-9a-f]{3}Enum", name)] == []


@pytest.mark.django_db
def test_description_is_made_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first = client.get("/api/v1/schema/").json()
    monkeypatch.setattr(SchemaGenerator, "parse", None)
    assert client.get("/api/v1/schema/?again").json() == first


def test_no_description_speaks_of_how_the_service_is_written(description: dict[str, Any]) -> None:
    assert "serializer" not in str(description).lower()


def _endpoints(patterns: list[Any], prefix: str = "") -> list[tuple[str, str]]:
    found = []
    for pattern in patterns:
        path = prefix + re.sub(r"<[^>]*>", "{}", str(pattern.pattern))
        if isinstance(pattern, URLResolver):
            found += _endpoints(pattern.url_patterns, path)
        elif isinstance(pattern, URLPattern):
            found.append((path, str(pattern.name)))
    return found
