"""The contract of the API (docs/api/openapi.json) holds: what it promises is still there, and it tells all there is."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from scripts.openapi import CONTRACT, described
from tests.api.contract import breaks

Document = dict[str, Any]


@pytest.fixture(scope="module")
def contract() -> Document:
    found: Document = json.loads(CONTRACT.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def now() -> Document:
    return described()


def test_nothing_that_was_promised_is_gone(contract: Document, now: Document) -> None:
    assert breaks(contract, now) == []


def test_contract_tells_all_there_is(contract: Document, now: Document) -> None:
    assert contract == now, "make openapi, and read the diff"


def test_agents_are_told_every_status(contract: Document) -> None:
    statuses = {"400", "401", "403", "404", "409", "413", "415", "429", "503"}
    for path, operations in contract["paths"].items():
        for operation in operations.values():
            if path.startswith("/api/v1/agent/"):
                assert statuses <= set(operation["responses"]), path


# --- the comparison itself: each kind of break is seen, and what only adds is none -----


def described_small() -> Document:
    thing = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "kind": {"enum": ["a", "b"], "type": "string"},
            "note": {"type": ["string", "null"]},
            "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}},
        },
        "required": ["id", "kind"],
    }
    form = {
        "type": "object",
        "properties": {"reason": {"type": "string", "maxLength": 50}, "why": {"enum": ["x", "y"], "type": "string"}},
        "required": ["reason"],
    }
    reference = {"schema": {"$ref": "#/components/schemas/Thing"}}
    get = {
        "operationId": "thing_list",
        "parameters": [
            {"in": "query", "name": "kind", "schema": {"type": "string", "enum": ["a", "b"]}},
            {"in": "query", "name": "size", "schema": {"type": "integer", "maximum": 500}},
        ],
        "responses": {"200": {"content": {"application/json": reference}}, "404": {"description": ""}},
    }
    post = {
        "operationId": "thing_make",
        "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Form"}}}},
        "responses": {"200": {"content": {"application/json": reference}}},
    }
    return {
        "paths": {"/things/": {"get": get, "post": post}, "/one/": {"get": {"operationId": "one", "responses": {}}}},
        "components": {"schemas": {"Thing": thing, "Form": form}},
    }


def get_of(document: Document) -> Document:
    found: Document = document["paths"]["/things/"]["get"]
    return found


def thing_of(document: Document) -> Document:
    found: Document = document["components"]["schemas"]["Thing"]
    return found


def form_of(document: Document) -> Document:
    found: Document = document["components"]["schemas"]["Form"]
    return found


Change = Callable[[Document], object]
THINGS = "GET /things/"
BREAKS: list[tuple[Change, str]] = [
    (lambda d: d["paths"].pop("/one/"), "/one/ is gone"),
    (lambda d: d["paths"]["/things/"].pop("post"), "POST /things/ is gone"),
    (lambda d: get_of(d).update(operationId="things"), f"{THINGS}: its name thing_list is gone"),
    (lambda d: get_of(d)["parameters"].pop(0), f"{THINGS}: the parameter kind is gone"),
    (lambda d: get_of(d)["parameters"][0].update(required=True), f"{THINGS}: the parameter kind is required now"),
    (
        lambda d: get_of(d)["parameters"].append({"in": "query", "name": "new", "required": True, "schema": {}}),
        f"{THINGS}: the parameter new is required now",
    ),
    (
        lambda d: get_of(d)["parameters"][0]["schema"].update(enum=["a"]),
        f"{THINGS}: parameter kind does not take b any more",
    ),
    (
        lambda d: get_of(d)["parameters"][0]["schema"].update(type="integer"),
        f"{THINGS}: parameter kind may not be string any more",
    ),
    (
        lambda d: get_of(d)["parameters"][1]["schema"].update(maximum=100),
        f"{THINGS}: parameter size may not be larger than 100 any more",
    ),
    (
        lambda d: get_of(d)["parameters"][1]["schema"].update(minimum=1),
        f"{THINGS}: parameter size has to be at least 1 (minimum) now",
    ),
    (lambda d: get_of(d)["responses"].pop("404"), f"{THINGS}: the answer 404 is gone"),
    (
        lambda d: get_of(d)["responses"]["200"].update(content={"text/csv": {}}),
        f"{THINGS}: 200 is no application/json any more",
    ),
    (lambda d: thing_of(d)["properties"].pop("note"), f"{THINGS}: 200.note is gone"),
    (lambda d: thing_of(d).update(required=["id"]), f"{THINGS}: 200.kind may be left out now"),
    (lambda d: thing_of(d)["properties"]["id"].update(type=["integer", "null"]), f"{THINGS}: 200.id may be null now"),
    (lambda d: thing_of(d)["properties"]["id"].pop("type"), f"{THINGS}: 200.id may be anything now"),
    (lambda d: thing_of(d)["properties"]["kind"].update(enum=["a"]), f"{THINGS}: 200.kind is never b any more"),
    (lambda d: form_of(d).update(required=["reason", "why"]), "POST /things/: body.why is required now"),
    (lambda d: form_of(d)["properties"].pop("why"), "POST /things/: body.why is gone"),
    (
        lambda d: form_of(d)["properties"]["reason"].update(maxLength=10),
        "POST /things/: body.reason may not be longer than 10 any more",
    ),
    (
        lambda d: form_of(d)["properties"]["reason"].update(pattern="^x"),
        "POST /things/: body.reason has to match ^x now",
    ),
    (
        lambda d: d["paths"]["/things/"]["post"]["requestBody"].update(content={"text/plain": {}}),
        "POST /things/: it takes no application/json any more",
    ),
]


@pytest.mark.parametrize(("change", "sentence"), BREAKS, ids=[sentence for _, sentence in BREAKS])
def test_what_is_taken_away_is_named(change: Change, sentence: str) -> None:
    changed = copy.deepcopy(described_small())
    change(changed)
    assert sentence in breaks(described_small(), changed)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["paths"].update({"/new/": {}}),
        lambda d: get_of(d)["parameters"].append({"in": "query", "name": "new", "schema": {}}),
        lambda d: get_of(d)["parameters"][0]["schema"].update(enum=["a", "b", "c"]),
        lambda d: get_of(d)["parameters"][1]["schema"].update(maximum=1000),
        lambda d: get_of(d)["responses"].update({"503": {}}),
        lambda d: thing_of(d)["properties"].update(new={"type": "string"}),
        lambda d: thing_of(d)["properties"]["kind"].update(enum=["a", "b", "c"]),
        lambda d: thing_of(d)["properties"]["note"].update(type="string"),
        lambda d: thing_of(d).update(required=["id", "kind", "note"]),
        lambda d: form_of(d)["properties"].update(more={"type": "string"}),
        lambda d: form_of(d).update(required=[]),
        lambda d: d["paths"]["/things/"]["post"].update(summary="said otherwise"),
    ],
)
def test_what_is_added_takes_nothing_away(change: Change) -> None:
    changed = copy.deepcopy(described_small())
    change(changed)
    assert breaks(described_small(), changed) == []
