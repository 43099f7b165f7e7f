import io
import lzma
import subprocess
import tarfile
from pathlib import Path

import pytest

from demo.processes import DemoError, git
from demo.treemaker import commit_archive, commit_package, commits, prepare_repository

BRANCH = "linux-6.1.y"


def source_archive(files: dict[str, str], *, mtime: int = 1_700_000_000) -> bytes:
    """A tar as kernel sources come: all below one folder, with a script and a symlink."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        top = tarfile.TarInfo("linux-source-6.1")
        top.type, top.mtime = tarfile.DIRTYPE, mtime
        tar.addfile(top)
        for name, text in files.items():
            member = tarfile.TarInfo(f"linux-source-6.1/{name}")
            member.mtime = mtime
            if text.startswith("-> "):
                member.type, member.linkname = tarfile.SYMTYPE, text[3:]
                tar.addfile(member)
                continue
            member.size = len(text.encode())
            member.mode = 0o755 if name.endswith(".sh") else 0o644
            tar.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def source_package(folder: Path, version: str, files: dict[str, str]) -> Path:
    """A linux-source package as Debian makes them."""
    root = folder / f"package-{version}"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text(
        f"Package: linux-source-6.1\nVersion: {version}\nArchitecture: all\nMaintainer: Nobody <n@example.org>\n"
        "Description: Linux\n"
    )
    (root / "usr" / "src").mkdir(parents=True)
    (root / "usr" / "src" / "linux-source-6.1.tar.xz").write_bytes(lzma.compress(source_archive(files)))
    final = folder / f"linux-source-6.1_{version}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, final], check=True, capture_output=True)
    return final


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "linux"
    prepare_repository(path, BRANCH)
    return path


def listing(repository: Path) -> dict[str, str]:
    lines = git(repository, "ls-tree", "-r", "-z", BRANCH).split("\0")
    return {line.split("\t")[1]: line.split()[0] for line in lines if line}


def test_archive_becomes_one_commit_with_modes_links_and_odd_names(repository: Path) -> None:
    files = {
        "Makefile": "all:\n",
        ".gitignore": "*.o\n",
        "ignored.o": "kept\n",
        "scripts/run.sh": "#!/bin/sh\n",
        "link": "-> Makefile",
        'odd "name" \\ é': "text\n",
    }
    commit_archive(repository, BRANCH, io.BytesIO(source_archive(files)), "linux: One\n")
    modes = listing(repository)
    assert set(modes) == set(files)
    assert modes["scripts/run.sh"] == "100755"
    assert modes["link"] == "120000"
    assert modes["Makefile"] == "100644"
    assert git(repository, "cat-file", "blob", f"{BRANCH}:link") == "Makefile"
    assert git(repository, "cat-file", "blob", f"{BRANCH}:ignored.o") == "kept"
    git(repository, "fsck", "--strict")


def test_second_archive_replaces_the_content_and_keeps_the_history(repository: Path) -> None:
    first = commit_archive(repository, BRANCH, io.BytesIO(source_archive({"a": "1\n", "b": "2\n"})), "linux: One\n")
    second = commit_archive(repository, BRANCH, io.BytesIO(source_archive({"a": "3\n"})), "linux: Two\n")
    assert listing(repository).keys() == {"a"}
    assert git(repository, "rev-parse", f"{second}^") == first
    assert commits(repository, BRANCH) == {"linux: Two": second, "linux: One": first}


def test_same_archives_give_the_same_hash_everywhere(tmp_path: Path) -> None:
    hashes = set()
    for name in ("one", "two"):
        prepare_repository(tmp_path / name, BRANCH)
        hashes.add(commit_archive(tmp_path / name, BRANCH, io.BytesIO(source_archive({"a": "1\n"})), "linux: One\n"))
    assert len(hashes) == 1


def test_import_that_breaks_off_leaves_the_branch_and_can_be_repeated(repository: Path) -> None:
    whole = source_archive({f"file{number}": "x" * 5000 for number in range(50)})
    with pytest.raises(DemoError, match="fast-import"):
        commit_archive(repository, BRANCH, io.BytesIO(whole[:100_000]), "linux: One\n")
    assert commits(repository, BRANCH) == {}
    (repository / "objects" / "pack" / "tmp_pack_left").write_bytes(b"half")
    prepare_repository(repository, BRANCH)
    assert not (repository / "objects" / "pack" / "tmp_pack_left").exists()
    commit_archive(repository, BRANCH, io.BytesIO(whole), "linux: One\n")
    assert len(listing(repository)) == 50


def test_package_is_committed_without_being_unpacked_to_disk(repository: Path, tmp_path: Path) -> None:
    package = source_package(tmp_path, "6.1.5-1", {"Makefile": "all:\n"})
    before = set(tmp_path.iterdir())
    commit_package(repository, BRANCH, package, "linux: 6.1.5-1\n")
    assert listing(repository).keys() == {"Makefile"}
    assert set(tmp_path.iterdir()) == before


def test_broken_package_is_told_with_the_program_that_refused_it(repository: Path, tmp_path: Path) -> None:
    package = tmp_path / "linux-source-6.1_6.1.5-1.deb"
    package.write_bytes(b"no package")
    with pytest.raises(DemoError, match="dpkg-deb: error"):
        commit_package(repository, BRANCH, package, "linux: 6.1.5-1\n")
    assert commits(repository, BRANCH) == {}
