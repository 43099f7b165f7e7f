"""The codes of reasons: in the answers, and in the documentation."""

import re

import pytest
from django.test import Client
from django.urls import reverse

from server.core.reasons import Because
from tests.builders import build_message, build_series
from tests.house.sources import ROOT


def test_documentation_lists_every_code_with_its_meaning() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8").partition("## Reasons")[2]
    listed = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", text.partition("## Errors")[0], re.MULTILINE)
    assert listed == [(code.value, code.label) for code in Because]


@pytest.mark.django_db
def test_answer_tells_the_code_beside_the_sentence(client: Client) -> None:
    series = build_series(state="held")
    assert series.note(Because.NOT_TRUSTED("ada is nobody whom we know"))
    found = client.get(reverse("api-series-detail", args=(series.pk,))).json()
    assert (found["reason"], found["reason_code"]) == ("ada is nobody whom we know", "not-trusted")
    assert found["transitions"][-1]["reason_code"] == "not-trusted"


@pytest.mark.django_db
def test_mails_with_a_reason_are_asked_for_by_its_code(client: Client) -> None:
    told = build_message(message_id="told@x", reason_code=Because.NO_DIFF)
    build_message(message_id="plain@x")
    found = client.get(reverse("api-message-list"), {"explained": "true"}).json()["results"]
    assert [row["id"] for row in found] == [told.pk]
    assert found[0]["reason_code"] == "no-diff"
