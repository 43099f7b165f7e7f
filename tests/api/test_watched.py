"""What scripts read about trees, lists and mails, and about the mail side of a series."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from server.core import clock
from server.core.reasons import Because
from server.sources.models import Branch, Epoch, HeadMove, Message, Patch, Series, Tag, Tree, WantedRevision
from tests.builders import build_list, build_message, build_revision, build_series, build_tree

pytestmark = pytest.mark.django_db


def read(client: Client, name: str, *args: Any, **query: Any) -> Any:
    response = client.get(reverse(name, args=args), query)
    assert response.status_code == 200, response.content
    return response.json()


@pytest.fixture
def tree() -> Tree:
    """A tree with one branch that was forced an hour ago, a tag and a choice of two days ago."""
    error = "fatal: repository 'https://bob:hunter2@git.example.org/mm.git?token=hunter2/' not found"
    tree = build_tree("mm", url="https://git.example.org/mm.git", heads_per_day=3, failures=2, last_error=error)
    Tree.objects.filter(pk=tree.pk).update(merges_by=["grace@example.org"])
    old, new = build_revision(tree), build_revision(tree)
    branch = Branch.objects.create(tree=tree, name="mm-new", head=new, head_at=clock.now())
    at = clock.now() - timedelta(hours=1)
    HeadMove.objects.create(branch=branch, kind="forced", before=old, after=new, decision="head measured", at=at)
    Tag.objects.create(tree=tree, name="v6.19-rc1", revision=old)
    created = clock.now() - timedelta(days=2)
    WantedRevision.objects.create(tree=tree, revision=new, why="merge", detail="by torvalds", created_at=created)
    return tree


def test_series_tells_its_base_senders_states_and_versions(client: Client) -> None:
    series = build_series(base_how="named by the author", base_certain=True, benchmarks=["mm-basic"], rfc=True)
    older = build_series(state=Series.State.SUPERSEDED, superseded_by=series)
    Patch.objects.filter(series=series).update(trailers=["Acked-by: A <a@b>"])
    Message.objects.filter(patches__series=series).update(insertions=3, paths=["mm/memory.c"])
    told = read(client, "api-series-detail", series.pk)
    assert (told["base_how"], told["base_certain"], told["benchmarks"]) == ("named by the author", True, ["mm-basic"])
    assert told["rfc"] is True
    assert told["supersedes"] == [
        {"id": older.pk, "version": 1, "minor": 0, "message_id": older.root_message_id, "state": "superseded"}
    ]
    assert read(client, "api-series-detail", older.pk)["superseded_by"] == series.pk
    assert [step["state"] for step in told["transitions"]] == ["applied"]
    assert told["senders"] == [
        {"address": "ada@example.org", "name": "Ada Author", "mails": 3, "proved": None, "proofs": []}
    ]
    patch = told["patches"][0]
    assert patch["diffstat"] == {"files": 0, "insertions": 3, "deletions": 0}
    assert (patch["paths"], patch["trailers"]) == (["mm/memory.c"], ["Acked-by: A <a@b>"])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"change_id": "20261101-x"}, True),
        ({"change_id": "other"}, False),
        ({"base_certain": "false"}, True),
        ({"base_certain": "true"}, False),
        ({"since": "2026-01-01T00:00:00Z"}, True),
        ({"since": "2999-01-01T00:00:00Z"}, False),
        ({"since": "0001-01-01T00:00:00+14:00"}, True),
        ({"since": "9999-12-31T23:59:59-14:00"}, False),
        ({"since": "2026-01-01T00:00:00-23:59"}, True),
    ],
)
def test_series_can_be_narrowed_by_what_their_mails_say(client: Client, query: dict[str, str], found: bool) -> None:
    build_series(change_id="20261101-x", base_certain=False)
    assert bool(read(client, "api-series-list", **query)["results"]) is found


def test_tree_tells_its_policy_and_no_password(client: Client, tree: Tree) -> None:
    response = client.get(reverse("api-tree-detail", args=[tree.name]))
    assert b"hunter2" not in response.content
    told = response.json()
    assert told["url"] == "https://git.example.org/mm.git"
    assert (told["heads_per_day"], told["merges_by"], told["failures"]) == (3, ["grace@example.org"], 2)
    assert [branch["name"] for branch in told["branches"]] == ["mm-new"]


@pytest.mark.parametrize(
    ("name", "query", "found"),
    [
        ("api-branch-list", {"tree": "mm"}, True),
        ("api-branch-list", {"deleted": "false"}, True),
        ("api-branch-list", {"deleted": "true"}, False),
        ("api-head-move-list", {"kind": "forced", "branch": "mm-new"}, True),
        ("api-head-move-list", {"kind": "deleted"}, False),
        ("api-wanted-revision-list", {"tree": "mm", "why": "merge"}, True),
        ("api-wanted-revision-list", {"why": "tag"}, False),
        ("api-tag-list", {"tree": "mm"}, True),
        ("api-tag-list", {"until": "2026-01-01T00:00:00Z"}, False),
    ],
)
@pytest.mark.usefixtures("tree")
def test_what_happened_in_trees_can_be_narrowed(client: Client, name: str, query: dict[str, str], found: bool) -> None:
    assert bool(read(client, name, **query)["results"]) is found


@pytest.mark.usefixtures("tree")
def test_moves_and_choices_since_a_moment(client: Client) -> None:
    yesterday = (clock.now() - timedelta(days=1)).isoformat()
    moves = read(client, "api-head-move-list", since=yesterday)["results"]
    assert [(move["branch"], move["kind"], move["decision"]) for move in moves] == [
        ("mm-new", "forced", "head measured")
    ]
    assert read(client, "api-wanted-revision-list", since=yesterday)["results"] == []


def test_lists_tell_how_far_each_epoch_was_read(client: Client) -> None:
    mailing_list = build_list(url="https://lists.example.org/linux-mm")
    Epoch.objects.create(mailing_list=mailing_list, number=3, last_commit="ab" * 20)
    build_list("imported", tree=None, url="")
    lists = {told["name"]: told for told in read(client, "api-list-list")["results"]}
    assert lists["imported"]["tree"] is None
    watched = lists["linux-mm"]
    assert watched["url"] == "https://lists.example.org/linux-mm"
    assert watched["epochs"] == [{"number": 3, "last_commit": "ab" * 20, "rewritten_at": None}]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"list": "linux-mm"}, True),
        ({"author": "ADA@example.org"}, True),
        ({"author": "bob@example.org"}, False),
        ({"message_id": "<one@example.org>"}, True),
        ({"message_id": "two@example.org"}, False),
        ({"kind": "unusable"}, True),
        ({"kind": "patch"}, False),
        ({"explained": "true"}, True),
        ({"explained": "false"}, False),
        ({"since": "2999-01-01T00:00:00Z"}, False),
    ],
)
def test_mails_can_be_narrowed(client: Client, query: dict[str, str], found: bool) -> None:
    build_message(message_id="one@example.org", kind=Message.Kind.UNUSABLE, reason_code=Because.UNUSABLE)
    assert bool(read(client, "api-message-list", **query)["results"]) is found


def test_list_of_mails_has_neither_addresses_nor_what_they_hold(client: Client) -> None:
    build_message(raw=b"the body")
    response = client.get(reverse("api-message-list"))
    assert b"ada@example.org" not in response.content
    assert b"the body" not in response.content


def test_mail_tells_its_series_and_where_its_text_is(client: Client) -> None:
    series = build_series()
    told = read(client, "api-message-detail", series.cover_id)
    assert told["in_series"] == [series.pk]
    assert told["raw"] == f"/messages/{series.cover_id}/raw/"
    Message.objects.update(kind=Message.Kind.DELETED, raw=b"")
    assert read(client, "api-message-detail", series.cover_id)["raw"] is None
