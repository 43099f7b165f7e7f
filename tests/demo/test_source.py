from pathlib import Path

import pytest

from demo import source
from demo.processes import DemoError, git
from demo.source import BRANCH, ensure_tree
from demo.treemaker import commit_package, commits
from tests.demo.test_treemaker import source_package


class ServedPackages:
    """A package archive with versions 1, 2 and 3 of small sources; `offline` makes each request fail."""

    offline = False
    requests: list[str]
    folder: Path

    def __init__(self, _home: Path, _package: str) -> None:
        pass

    def _ask(self, what: str) -> None:
        type(self).requests.append(what)
        if self.offline or what in self.requests[:-1]:
            raise DemoError(f"{what} cannot be downloaded")

    def refresh(self) -> list[str]:
        self._ask("lists")
        return ["6.1.1-1", "6.1.2-1", "6.1.3-1"]

    def download(self, version: str) -> Path:
        self._ask(version)
        return source_package(self.folder, version, {"VERSION": f"{version}\n"})

    def discard(self) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[ServedPackages]:
    class Served(ServedPackages):
        requests: list[str] = []
        folder = tmp_path

    monkeypatch.setattr(source, "SourcePackages", Served)
    return Served


def ignore(_text: str) -> None:
    pass


def test_tree_holds_the_oldest_and_the_newest_version(served: type[ServedPackages], tmp_path: Path) -> None:
    tree = ensure_tree(tmp_path / "cache", ignore)
    assert served.requests == ["lists", "6.1.1-1", "6.1.3-1"]
    assert git(tree.repository, "show", f"{BRANCH}:VERSION") == "6.1.3-1"
    assert git(tree.repository, "show", f"{BRANCH}^:VERSION") == "6.1.1-1"
    assert tree.head == git(tree.repository, "rev-parse", "HEAD")


def test_tree_that_is_there_needs_no_network(served: type[ServedPackages], tmp_path: Path) -> None:
    first = ensure_tree(tmp_path / "cache", ignore)
    served.offline = True
    assert ensure_tree(tmp_path / "cache", ignore) == first


def test_interrupted_tree_goes_on_where_it_was(
    served: type[ServedPackages], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_arguments: object) -> str:
        raise KeyboardInterrupt

    whole = commit_package
    calls: list[Path] = []

    def once(repository: Path, branch: str, package: Path, message: str) -> str:
        calls.append(package)
        return whole(repository, branch, package, message) if len(calls) == 1 else interrupt()

    monkeypatch.setattr(source, "commit_package", once)
    with pytest.raises(KeyboardInterrupt):
        ensure_tree(tmp_path / "cache", ignore)
    assert len(commits(tmp_path / "cache" / "linux", BRANCH)) == 1
    monkeypatch.setattr(source, "commit_package", whole)
    served.requests = []
    served.folder = tmp_path / "again"
    served.folder.mkdir()
    ensure_tree(tmp_path / "cache", ignore)
    assert served.requests == ["6.1.3-1"]
    assert len(commits(tmp_path / "cache" / "linux", BRANCH)) == 2


def test_version_that_is_gone_is_chosen_anew_next_time(served: type[ServedPackages], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "versions").write_text("6.1.0-1\n")
    served.requests = ["6.1.0-1"]
    with pytest.raises(DemoError, match="cannot be downloaded"):
        ensure_tree(cache, ignore)
    served.requests = []
    ensure_tree(cache, ignore)
    assert served.requests[0] == "lists"


def test_full_disk_is_told_before_anything_is_downloaded(
    served: type[ServedPackages], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_NEEDED_BYTES", 1 << 60)
    with pytest.raises(DemoError, match="no room"):
        ensure_tree(tmp_path / "cache", ignore)
    assert served.requests == []
