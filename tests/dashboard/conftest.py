"""Pages in tests name static files as they are, and show a template's misspelt names instead of nothing."""

import copy

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from server.dashboard.verdicts.series_parts import PARTS

MISSPELT = "a name that the page does not know"


@pytest.fixture(autouse=True)
def strict_pages(settings: Settings) -> None:
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}
    templates = copy.deepcopy(settings.TEMPLATES)
    templates[0]["OPTIONS"]["string_if_invalid"] = f"{MISSPELT}: %s"
    settings.TEMPLATES = templates


@pytest.fixture
def virtual_verdicts(settings: Settings) -> None:
    settings.VIRTUAL_VERDICTS = True


class Reader:
    """Reads pages as a person does: the text of an answer, which must be whole."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def read_series(self, series_id: int) -> str:
        """All that the pages of a series say: the answer, and what is folded below it."""
        home = f"/series/{series_id}/"
        return "".join(self.read(path) for path in (home, *(f"{home}{part}/" for part in PARTS)))

    def read(self, path: str, status: int = 200) -> str:
        response = self.client.get(path)
        assert response.status_code == status, path
        text = response.content.decode()
        assert MISSPELT not in text
        return text


@pytest.fixture
def staff(admin_client: Client) -> Reader:
    """A reader who belongs to the lab."""
    return Reader(admin_client)


@pytest.fixture
def reader(client: Client) -> Reader:
    return Reader(client)
