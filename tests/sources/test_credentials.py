"""Trees and archives that ask who comes: what opens them is in a file, and nowhere else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import IntegrityError, transaction
from pytest_django.fixtures import Settings

from server.core.errors import DomainError
from server.sources.archives.epochs import fetched
from server.sources.models import Tree
from server.sources.trees.entries import load_trees
from server.sources.trees.fetch import fetch_tree
from tests.builders import build_list, build_tree
from tests.door import SECRET, Door, door
from tests.sources.posting import Upstream, git


@pytest.fixture
def private(tree: Tree, upstream: Upstream, tmp_path: Path, settings: Settings) -> Iterator[Door]:
    """The tree, behind the door; the file of credentials has the password for another place alone."""
    git(tmp_path, "clone", "-q", "--bare", str(upstream.path), str(tmp_path / "web" / "mm.git"))
    git(tmp_path / "web" / "mm.git", "update-server-info")
    settings.GIT_CREDENTIALS = str(tmp_path / "git credentials")
    Path(settings.GIT_CREDENTIALS).write_text(f"https://robot:{SECRET}@elsewhere.example.org\n")
    with door(tmp_path / "web") as told:
        Tree.objects.update(url=f"{told.url}/mm.git")
        tree.refresh_from_db()
        yield told


def test_private_tree_is_fetched_with_what_its_file_says(
    private: Door, tree: Tree, settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    fetch_tree(tree=tree)
    assert private.let_in == 0
    assert "Authentication failed" in tree.last_error or "could not read Username" in tree.last_error
    content = f"{private.with_password}\n"
    Path(settings.GIT_CREDENTIALS).write_text(content)
    assert len(fetch_tree(tree=tree)) == 1
    assert tree.last_error == ""
    # Neither on a command line while git ran, nor in what anybody logged; and git has left the file alone.
    assert private.let_in > 0
    assert SECRET not in "".join(private.seen)
    captured = capfd.readouterr()
    assert SECRET not in f"{captured.out}{captured.err}"
    assert Path(settings.GIT_CREDENTIALS).read_text() == content


def test_password_that_is_refused_stays_in_its_file(private: Door, tree: Tree, settings: Settings) -> None:
    content = f"{private.url.replace('//', '//robot:old-password@')}\n"
    Path(settings.GIT_CREDENTIALS).write_text(content)
    fetch_tree(tree=tree)
    assert tree.failures == 1
    assert "old-password" not in tree.last_error
    assert Path(settings.GIT_CREDENTIALS).read_text() == content


@pytest.mark.django_db
def test_file_of_an_archive_is_fetched_with_the_same(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "manifest.js.gz").write_bytes(b"{}")
    settings.GIT_CREDENTIALS = str(tmp_path / "credentials")
    with door(tmp_path / "web") as told:
        Path(settings.GIT_CREDENTIALS).write_text("")
        with pytest.raises(DomainError, match="HTTP 401"):
            fetched(f"{told.url}/manifest.js.gz", largest=100)
        Path(settings.GIT_CREDENTIALS).write_text(f"{told.with_password}\n")
        assert fetched(f"{told.url}/manifest.js.gz", largest=100) == (f"{told.url}/manifest.js.gz", b"{}")
        assert SECRET not in "".join(told.seen)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "url", ["https://robot:s3cret@git.example.org/mm.git", "https://git.example.org/?token=s3cret"]
)
def test_address_with_a_credential_is_stored_nowhere(url: str, tmp_path: Path) -> None:
    file = tmp_path / "trees.toml"
    file.write_text(f'[[tree]]\nname = "mm"\nurl = "{url}"\nbranches = ["master"]\n')
    with pytest.raises(DomainError, match=r"\(mm\): url: holds a user.*TIDEMARK_GIT_CREDENTIALS") as refused:
        load_trees(file)
    assert "s3cret" not in refused.value.message
    tree = build_tree("mm")
    with pytest.raises(IntegrityError), transaction.atomic():
        build_tree("other", url=url)
    with pytest.raises(IntegrityError), transaction.atomic():
        build_list("other", url=url, tree=tree)
