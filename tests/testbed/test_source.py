"""The kernel source is unpacked once, whole or not at all."""

import subprocess
from pathlib import Path

import pytest

from tests.testbed import source
from tests.testbed.source import PACKAGE, SUITE, kernel_source, version_file

VERSION = "7.3.9-1"


class Served:
    """A package index with one version."""

    refreshed = 0

    def __init__(self, home: Path, package: str, suite: str) -> None:
        assert (package, suite) == (PACKAGE, SUITE)
        self.package = home.parent.parent / "served.deb"

    def refresh(self) -> list[str]:
        Served.refreshed += 1
        return ["7.3.8-1", VERSION]

    def download(self, version: str) -> Path:
        assert version == VERSION
        return self.package

    def discard(self) -> None:
        pass


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for which a package of the newest version is served."""
    content, control = tmp_path / "deb" / "usr" / "src", tmp_path / "deb" / "DEBIAN"
    for folder in (content, control, tmp_path / "linux-source-7.3" / "mm"):
        folder.mkdir(parents=True)
    (tmp_path / "linux-source-7.3" / "mm" / "util.c").write_text("int one;\n")
    subprocess.run(["tar", "-cJf", content / f"{PACKAGE}.tar.xz", PACKAGE], cwd=tmp_path, check=True)
    fields = (
        f"Package: {PACKAGE}\nVersion: {VERSION}\nArchitecture: all\nMaintainer: A <a@example.org>\nDescription: x\n"
    )
    (control / "control").write_text(fields)
    subprocess.run(["dpkg-deb", "-b", "deb", "served.deb"], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setattr(source, "SourcePackages", Served)
    Served.refreshed = 0
    return tmp_path / "cache"


def test_newest_source_is_unpacked_once(cache: Path) -> None:
    for _ in range(2):
        tree = kernel_source(cache)
        assert (tree / "mm" / "util.c").read_text() == "int one;\n"
    assert version_file(cache).read_text() == f"{VERSION}\n"
    assert Served.refreshed == 1


def test_what_a_killed_run_left_does_not_count(cache: Path) -> None:
    for name in ("linux/mm/half.c", "unpacking/usr/src/half"):
        (cache / name).parent.mkdir(parents=True)
        (cache / name).write_text("half")
    tree = kernel_source(cache)
    assert sorted(path.name for path in (tree / "mm").iterdir()) == ["util.c"]
    assert not (cache / "unpacking").exists()
