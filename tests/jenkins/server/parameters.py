"""Parameters of jobs: their definitions, and the values that a trigger gives."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass

_DEFINITIONS = "properties/hudson.model.ParametersDefinitionProperty/parameterDefinitions"


class BadChoiceError(ValueError):
    """A value outside the choices: Jenkins answers 500."""


@dataclass(frozen=True)
class Definition:
    """One parameter; `choices` is empty but for choice parameters."""

    name: str
    kind: str
    default: str
    description: str | None
    choices: tuple[str, ...] = ()
    trim: bool = False


def read(root: ET.Element) -> list[Definition]:
    """The definitions in a config.xml."""
    holder = root.find(_DEFINITIONS)
    return [_definition(element) for element in (holder if holder is not None else [])]


def _definition(element: ET.Element) -> Definition:
    choices = tuple(each.text or "" for each in element.iterfind("choices//string"))
    return Definition(
        name=element.findtext("name") or "",
        kind=element.tag.rpartition(".")[2],
        default=choices[0] if choices else element.findtext("defaultValue") or "",
        description=element.findtext("description"),
        choices=choices,
        trim=element.findtext("trim") == "true",
    )


def values(definitions: list[Definition], given: Mapping[str, str]) -> dict[str, str]:
    """What a build gets: unknown names vanish silently, missing ones have their default. Raises BadChoiceError."""
    result = {}
    for definition in definitions:
        value = given.get(definition.name, definition.default)
        if definition.choices and value not in definition.choices:
            raise BadChoiceError(definition.name)
        result[definition.name] = value.strip() if definition.trim else value
    return result


def values_action(given: Mapping[str, str]) -> dict[str, object]:
    """How an item or a build shows its parameters."""
    kind = "hudson.model.StringParameterValue"
    return {
        "_class": "hudson.model.ParametersAction",
        "parameters": [{"_class": kind, "name": name, "value": value} for name, value in given.items()],
    }


def causes_action(users: list[str]) -> dict[str, object]:
    """Who started it; one more cause for each trigger that was folded into it."""
    causes = [
        {
            "_class": "hudson.model.Cause$UserIdCause",
            "shortDescription": f"Started by user {user}",
            "userId": user,
            "userName": user,
        }
        for user in users
    ]
    return {"_class": "hudson.model.CauseAction", "causes": causes}


def definitions_action(definitions: list[Definition], *, named: bool) -> dict[str, object]:
    return {
        "_class": "hudson.model.ParametersDefinitionProperty",
        "parameterDefinitions": [_shown(definition, named=named) for definition in definitions],
    }


def _shown(definition: Definition, *, named: bool) -> dict[str, object]:
    default: dict[str, object] = {"_class": "hudson.model.StringParameterValue"}
    if named:
        default["name"] = definition.name
    shown: dict[str, object] = {
        "_class": f"hudson.model.{definition.kind}",
        "defaultParameterValue": {**default, "value": definition.default},
        "description": definition.description,
        "name": definition.name,
        "type": definition.kind,
    }
    return {**shown, "choices": list(definition.choices)} if definition.choices else shown
