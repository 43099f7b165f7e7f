from pathlib import Path

import pytest

from demo import source
from demo.processes import DemoError
from demo.source import SourcePackages


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the mirror should be; nothing is there."""
    monkeypatch.setenv("TIDEMARK_DEBIAN_MIRROR", f"file://{tmp_path}/mirror/")
    return tmp_path / "mirror"


def test_registry_that_cannot_be_reached_is_told_with_what_to_do(served: Path, tmp_path: Path) -> None:
    with pytest.raises(DemoError, match=r"package lists cannot be read") as error:
        SourcePackages(tmp_path / "apt", "linux-source-6.1").refresh()
    assert "TIDEMARK_DEBIAN_MIRROR" in str(error.value)
    assert str(served) in str(error.value)


@pytest.mark.usefixtures("served")
def test_sources_and_lists_are_its_own(tmp_path: Path) -> None:
    with pytest.raises(DemoError):
        SourcePackages(tmp_path / "apt", "linux-source-6.1").refresh()
    text = (tmp_path / "apt" / "sources.list").read_text()
    assert [line.split()[-2:] for line in text.splitlines()] == [["bookworm", "main"], ["bookworm-security", "main"]]
    assert f'Dir::State "{tmp_path}/apt/state";' in (tmp_path / "apt" / "apt.conf").read_text()


def test_sources_of_the_host_are_taken_when_no_mirror_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_DEBIAN_MIRROR", raising=False)
    lines = (
        "http://a.example/debian/ bookworm main\n"
        "http://a.example/debian/ bookworm contrib\n"
        "http://a.example/security/ bookworm-security main\n"
        "http://a.example/debian/ bookworm main\n"
        "http://b.example/ nodistro main\n"
    )
    monkeypatch.setattr(source, "run", lambda _command: lines)
    assert source._sources("bookworm") == [
        "http://a.example/debian/ bookworm main",
        "http://a.example/security/ bookworm-security main",
    ]


def test_another_suite_comes_from_the_mirror_of_the_host_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_DEBIAN_MIRROR", raising=False)
    lines = "http://a.example/debian/ bookworm main\nhttp://a.example/security/ bookworm-security main\n"
    monkeypatch.setattr(source, "run", lambda _command: lines)
    assert source._sources("trixie-backports") == ["http://a.example/debian/ trixie-backports main"]


def test_another_suite_comes_from_the_mirror_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_DEBIAN_MIRROR", "http://m.example/")
    assert source._sources("trixie-backports") == ["http://m.example/debian trixie-backports main"]


def test_host_without_debian_12_is_told_to_name_a_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_DEBIAN_MIRROR", raising=False)
    monkeypatch.setattr(source, "run", lambda _command: "http://b.example/ noble main\n")
    with pytest.raises(DemoError, match="name a mirror"):
        source._sources("bookworm")


def test_package_that_is_there_is_not_fetched_again(served: Path, tmp_path: Path) -> None:
    assert not served.exists()
    found = SourcePackages(tmp_path / "apt", "linux-source-6.1")
    package = tmp_path / "apt" / "packages" / "linux-source-6.1_6.1.1-1.deb"
    package.parent.mkdir(parents=True)
    package.touch()
    assert found.download("6.1.1-1") == package
    found.discard()
    assert not package.exists()
