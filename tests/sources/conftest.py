from pathlib import Path

import pytest

from server.sources.models import MailingList, Tree, TrustedSender
from server.sources.series import formation
from server.sources.trees.fetch import fetch_tree
from tests.builders import build_list
from tests.sources.posting import Archive, Upstream, small_tree


@pytest.fixture(autouse=True)
def no_thread_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine any thread may take what is long elsewhere, and would rest."""
    monkeypatch.setattr(formation, "_LONG_SECONDS", 60.0)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return small_tree(tmp_path / "upstream")


@pytest.fixture
def tree(upstream: Upstream, db: None) -> Tree:
    """A tree whose branch `master` is watched, and not fetched yet."""
    return Tree.objects.create(name="stable", url=str(upstream.path), branch_patterns=["master"])


@pytest.fixture
def fetched(tree: Tree) -> Tree:
    fetch_tree(tree=tree)
    assert tree.last_error == ""
    return tree


@pytest.fixture
def linux_mm(tree: Tree) -> MailingList:
    """A list whose archive proves its senders; Ada's patches may run."""
    TrustedSender.objects.create(address="ada@example.org")
    return build_list(tree=tree, proof=MailingList.Proof.ARCHIVE)


@pytest.fixture
def inbox(tmp_path: Path, linux_mm: MailingList) -> Path:
    """The folder of an archive that the list is read from."""
    linux_mm.url = str(tmp_path / "linux-mm")
    linux_mm.save()
    return tmp_path / "linux-mm"


@pytest.fixture
def archive(inbox: Path) -> Archive:
    return Archive.create(inbox)
