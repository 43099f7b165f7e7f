"""When the objects of an earlier build are not to be used."""

import queue
import time
from pathlib import Path

import pytest
from tidemark_agent.build import objects
from tidemark_agent.build.checkout import misleads_make

PLAIN, LINK = b"100644", b"120000"


@pytest.mark.parametrize(
    ("before", "after", "status", "path", "misleads"),
    [
        (PLAIN, PLAIN, b"M", b"mm/memory.c", False),
        (PLAIN, PLAIN, b"M", b"include/linux/mm.h", False),
        (PLAIN, PLAIN, b"A", b"include/linux/new.h", True),
        (PLAIN, PLAIN, b"A", b"mm/new.c", False),
        (LINK, LINK, b"M", b"include/dt-bindings", True),
        (LINK, PLAIN, b"D", b"include/dt-bindings", True),
        (PLAIN, PLAIN, b"M", b"scripts/kallsyms.c", True),
        (PLAIN, PLAIN, b"M", b"scripts/sorttable.h", True),
        (PLAIN, PLAIN, b"M", b"arch/x86/tools/relocs.c", True),
        (PLAIN, PLAIN, b"M", b"tools/bpf/resolve_btfids/main.c", True),
        (PLAIN, PLAIN, b"M", b"tools/testing/selftests/mm/cow.c", False),
        (PLAIN, PLAIN, b"M", b"drivers/scripts/x.c", False),
    ],
)
def test_objects_are_not_kept_where_make_would_be_misled(
    before: bytes, after: bytes, status: bytes, path: bytes, *, misleads: bool
) -> None:
    assert misleads_make([b":" + before, after, b"1" * 40, b"2" * 40, status], path) is misleads


def compile_objects(folder: Path, names: range) -> None:
    (folder / "mm").mkdir(exist_ok=True)
    for name in names:
        (folder / "mm" / f"{name}.o").touch()
        (folder / "mm" / f"{name}.d").touch()


def test_whole_build_tells_how_many_objects_of_how_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_LOOK_SECONDS", 0.01)
    first, second, count = tmp_path / "first", tmp_path / "second", tmp_path / "count"
    said: queue.Queue[str] = queue.Queue()
    for folder in (first, second):
        folder.mkdir()
        with objects.told_objects(folder, count, said.put):
            compile_objects(folder, range(3))
            told = said.get(timeout=30)
        assert told.startswith("compiling: ")
    assert told.endswith("of about 3 objects")
    assert count.read_text() == "3"


def test_build_on_kept_objects_counts_what_it_made_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_LOOK_SECONDS", 0.01)
    folder, count = tmp_path / "obj", tmp_path / "count"
    folder.mkdir()
    compile_objects(folder, range(5))
    count.write_text("5")
    said: queue.Queue[str] = queue.Queue()
    # Kept ones are older than a tick of the clock that files have.
    time.sleep(0.05)
    with objects.told_objects(folder, count, said.put):
        compile_objects(folder, range(5, 6))
        told = said.get(timeout=30)
    assert told == "compiling: 1 objects"
    assert count.read_text() == "5"


def test_broken_build_leaves_no_number_for_the_next(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), objects.told_objects(tmp_path, tmp_path / "count", print):
        raise RuntimeError
    assert not (tmp_path / "count").exists()
