from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from server.sources.models import Branch, MailingList, Tree
from server.sources.trees import fetch_tree
from tests.builders import build_list
from tests.sources.posting import Upstream, small_tree


@pytest.fixture(autouse=True)
def trusted_ada(settings: Settings) -> None:
    settings.TRUSTED_SENDERS = frozenset({"ada@example.org"})


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return small_tree(tmp_path / "upstream")


@pytest.fixture
def tree(upstream: Upstream, db: None) -> Tree:
    """A tree whose branch `master` is watched, and not fetched yet."""
    tree = Tree.objects.create(name="stable", url=str(upstream.path))
    Branch.objects.create(tree=tree, name="master")
    return tree


@pytest.fixture
def fetched(tree: Tree) -> Tree:
    fetch_tree(tree=tree)
    assert tree.last_error == ""
    return tree


@pytest.fixture
def linux_mm(tree: Tree) -> MailingList:
    return build_list(tree=tree)
