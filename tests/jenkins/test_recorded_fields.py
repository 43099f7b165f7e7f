"""What our requests ask for by `tree=` stands in recorded answers: no field of ours is a guess."""

from collections import defaultdict
from typing import Any

import pytest

from server.lab.dispatch.jenkins import answers
from tests.jenkins.recordings.files import ABSENT, FOLDER, exchanges, scenarios

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=ABSENT)
_BUILDS, _JOB, _COMPUTER, _TOP = "builds", "jobs", "computer", "top"
# Where each request's answer begins, as the key below which such objects stand in a list.
TREES = {
    answers.QUEUE_TREE: _TOP,
    answers.JOBS_TREE: _TOP,
    answers.NODES_TREE: _TOP,
    answers.CONTROLLER_TREE: _TOP,
    answers.NODE_TREE: _COMPUTER,
    answers.BUILD_TREE: _BUILDS,
    answers.SEARCH_TREE: _JOB,
    answers.JOB_TREE: _JOB,
}
_CLASSES = {
    "hudson.model.FreeStyleBuild": _BUILDS,
    "hudson.model.FreeStyleProject": _JOB,
    "hudson.slaves.SlaveComputer": _COMPUTER,
}


def _learn(known: dict[str, set[str]], below: str, value: Any) -> None:
    """Which keys objects have, by the key that they stand below; builds, jobs and nodes by what they are."""
    if isinstance(value, list):
        for one in value:
            _learn(known, below, one)
    elif isinstance(value, dict):
        here = _CLASSES.get(value.get("_class", ""), below)
        for key, inner in value.items():
            known[here].add(key)
            _learn(known, key, inner)


def _fields(tree: str, below: str) -> list[tuple[str, str]]:
    """All fields of a projection as (the key that their object stands below, field)."""
    found, word, stack = [], "", [below]
    depth_of_range = 0
    for sign in f"{tree},":
        depth_of_range += (sign == "{") - (sign == "}")
        if depth_of_range or sign == "}":
            continue
        if sign not in ",[]":
            word += sign
            continue
        if word:
            found.append((stack[-1], word))
        if sign == "[":
            stack.append({"allBuilds": _BUILDS}.get(word, word))
        elif sign == "]":
            stack.pop()
        word = ""
    return found


def _known() -> dict[str, set[str]]:
    known: dict[str, set[str]] = defaultdict(set)
    for scenario in scenarios():
        for exchange in exchanges(scenario):
            _learn(known, _TOP, exchange.response.get("json"))
    return known


@pytest.mark.parametrize(("tree", "below"), TREES.items(), ids=[tree[:20] for tree in TREES])
def test_every_field_that_is_asked_for_was_recorded(tree: str, below: str) -> None:
    known = _known()
    fields = _fields(tree, below)
    assert len(fields) > 1
    # What an executor works on is a build, and what an item of the queue is for is a job.
    known["currentExecutable"] = known[_BUILDS]
    known["task"] = known[_JOB]
    assert [f"{place}: {field}" for place, field in fields if field != "*" and field not in known[place]] == []


def test_a_field_that_nobody_recorded_would_be_found() -> None:
    assert _fields("jobs[name,builds[number]{0,20}]", "top") == [
        ("top", "jobs"),
        ("jobs", "name"),
        ("jobs", "builds"),
        ("builds", "number"),
    ]
    assert "guessed" not in _known()["builds"]
