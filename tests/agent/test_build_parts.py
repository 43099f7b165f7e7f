"""The parts of a kernel build that need no kernel: configuration, logs, notes, object directories."""

import os
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_agent.build.failure import first_error, log_tail
from tidemark_agent.build.modules import lost_symbols
from tidemark_agent.build.objects import ObjectDirs, is_published, take_file
from tidemark_agent.errors import KernelError
from tidemark_agent.system.elf import build_id_of_file, build_id_of_notes

_NOBODY = 65534


def test_kept_config_loses_nothing() -> None:
    fragment = 'CONFIG_SMP=y\n# CONFIG_NET is not set\nCONFIG_LOCALVERSION="-x"\nCONFIG_PCI=n\n'
    config = '# Linux\nCONFIG_SMP=y\nCONFIG_LOCALVERSION="-x"\n# CONFIG_PCI is not set\n'
    assert lost_symbols(fragment, config) == {}


def test_symbols_that_were_dropped_forced_or_changed_are_named() -> None:
    fragment = "CONFIG_THP=y\n# CONFIG_IO_URING is not set\nCONFIG_NR_CPUS=64\nCONFIG_MOD=m\n"
    config = "CONFIG_IO_URING=y\nCONFIG_NR_CPUS=8\nCONFIG_MOD=y\n"
    assert lost_symbols(fragment, config) == {
        "CONFIG_THP": "y (has n)",
        "CONFIG_IO_URING": "n (has y)",
        "CONFIG_NR_CPUS": "64 (has 8)",
        "CONFIG_MOD": "m (has y)",
    }


def test_last_line_of_a_fragment_wins_and_comments_do_not_count() -> None:
    assert lost_symbols("CONFIG_A=y\nCONFIG_A=m\n# about CONFIG_B=y\n\n", "CONFIG_A=m\n") == {}


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (
            "/build/src/mm/memory.c: In function 'f':\n/build/src/mm/memory.c:5028:32: error: too few arguments\n",
            "mm/memory.c:5028:32: error: too few arguments",
        ),
        ("/build/src/a.c:1:10: fatal error: x.h: No such file\n", "a.c:1:10: fatal error: x.h: No such file"),
        (
            "a.c:1:2: warning: unused\nld: mm/a.o: undefined reference to `x'\n",
            "ld: mm/a.o: undefined reference to `x'",
        ),
        ("/build/src/lib/x.S:12: Error: no such instruction: `foo'\n", "lib/x.S:12: Error: no such instruction: `foo'"),
        ("mm/Kconfig:12: syntax error\n", "mm/Kconfig:12: syntax error"),
        ("make: *** [Makefile:250: __sub-make] Error 2\n", "make: *** [Makefile:250: __sub-make] Error 2"),
        ("all is well\n", ""),
    ],
)
def test_first_error_line_is_the_reason(log: str, error: str) -> None:
    assert first_error(log, prefixes=("/build/src",)) == error


@given(st.text(max_size=300))
def test_any_log_has_at_most_a_short_reason(log: str) -> None:
    assert len(first_error(log)) <= 500


def test_log_tail_is_cut_between_characters() -> None:
    tail = log_tail("é" * 100_000)
    assert len(tail.encode()) <= 64 * 1024
    assert set(tail) == {"é"}
    assert log_tail("\n".join(str(n) for n in range(1000))).splitlines()[0] == "800"


def note(name: bytes, kind: int, value: bytes) -> bytes:
    parts = struct.pack("<III", len(name), len(value), kind) + name + b"\0" * (-len(name) % 4)
    return parts + value + b"\0" * (-len(value) % 4)


def test_build_id_is_found_among_other_notes() -> None:
    notes = note(b"Xen\0", 3, b"other") + note(b"GNU\0", 1, b"abi!") + note(b"GNU\0", 3, bytes(range(20)))
    assert build_id_of_notes(notes) == bytes(range(20)).hex()
    assert build_id_of_notes(note(b"Linux\0", 257, b"\0")) == ""


@given(st.binary(max_size=400))
def test_no_bytes_break_the_notes_reader(data: bytes) -> None:
    build_id_of_notes(data)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_elf_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "elf"
    path.write_bytes(b"\x7fELF\x02\x01" + data)
    assert build_id_of_file(path) == ""


def test_file_of_a_build_is_taken(tmp_path: Path) -> None:
    (tmp_path / "obj/arch").mkdir(parents=True)
    (tmp_path / "obj/arch/image").write_bytes(b"kernel")
    take_file(tmp_path / "obj", "arch/image", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"kernel"


@pytest.mark.parametrize("trick", ["link", "directory-link", "fifo", "missing"])
def test_build_cannot_hand_out_other_files(tmp_path: Path, trick: str) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "image").write_text("token")
    objects = tmp_path / "obj"
    objects.mkdir()
    if trick == "directory-link":
        (objects / "arch").symlink_to(secret)
    else:
        (objects / "arch").mkdir()
    if trick == "link":
        (objects / "arch/image").symlink_to(secret / "image")
    if trick == "fifo":
        os.mkfifo(objects / "arch/image")
    with pytest.raises(KernelError):
        take_file(objects, "arch/image", tmp_path / "out")
    assert not (tmp_path / "out").exists() or b"token" not in (tmp_path / "out").read_bytes()


def test_objects_of_a_series_never_reach_the_next_build(tmp_path: Path) -> None:
    dirs = ObjectDirs(root=tmp_path, tools="", stop=threading.Event())
    (dirs.open(keep=True) / "mm.o").write_text("base")
    dirs.close()
    poisoned = dirs.open(keep=False)
    assert (poisoned / "mm.o").read_text() == "base"
    (poisoned / "mm.o").write_text("evil")
    dirs.close()
    assert (dirs.open(keep=True) / "mm.o").read_text() == "base"


def test_objects_written_by_a_killed_build_are_dropped_and_older_ones_stay(tmp_path: Path) -> None:
    dirs = ObjectDirs(root=tmp_path, tools="", stop=threading.Event())
    objects = dirs.open(keep=True)
    (objects / "old.o").write_text("good")
    dirs.close()
    # Longer than the clock of file systems takes for a step.
    time.sleep(0.05)
    dirs.open(keep=True)
    (objects / "half.o").write_text("ha")
    # The agent is killed here: nobody calls close.
    assert sorted(path.name for path in dirs.open(keep=True).iterdir()) == ["old.o"]


@contextmanager
def bound_by_permissions(root: Path) -> Iterator[None]:
    """Tests may run as root, who may delete anything; here they are a plain user to whom all below `root` belongs."""
    if os.geteuid() != 0:
        yield
        return
    for path in (root, *root.rglob("*")):
        os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_directories_that_a_series_locked_are_deleted_all_the_same() -> None:
    # Not below tmp_path, into which only its owner gets.
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        dirs = ObjectDirs(root=root, tools="", stop=threading.Event())
        copy = dirs.open(keep=False)
        for mode in (0o555, 0o000):
            (copy / f"locked-{mode}/deep").mkdir(parents=True)
            (copy / f"locked-{mode}/deep/evil.o").write_text("evil")
            (copy / f"locked-{mode}/deep").chmod(mode)
            (copy / f"locked-{mode}").chmod(mode)
        copy.chmod(0o555)
        with bound_by_permissions(root):
            dirs.close()
        assert [path.name for path in root.iterdir()] == ["obj"]


def test_copy_that_cannot_be_deleted_is_never_built_in_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark_agent.build.objects.remove_tree", lambda *_args: None)
    dirs = ObjectDirs(root=tmp_path, tools="", stop=threading.Event())
    (dirs.open(keep=True) / "mm.o").write_text("base")
    dirs.close()
    (dirs.open(keep=False) / "evil.o").write_text("evil")
    dirs.close()
    assert [path.name for path in dirs.open(keep=False).iterdir()] == ["mm.o"]


def test_deleting_a_copy_opens_nothing_that_it_links_to(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir(mode=0o500)
    dirs = ObjectDirs(root=tmp_path / "root", tools="", stop=threading.Event())
    (dirs.open(keep=False) / "link").symlink_to(tmp_path / "secret")
    dirs.close()
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o500


def test_only_refs_of_watched_trees_leave_traces() -> None:
    assert is_published("refs/tidemark/trees/stable/linux-6.1.y")
    foreign = (
        "refs/tidemark/bases/3",
        "refs/tidemark/series/3/2",
        "refs/tidemark/series/reverts/abc",
        "refs/heads/main",
        "refs/tidemark/new/1",
    )
    assert [ref for ref in foreign if is_published(ref)] == []
