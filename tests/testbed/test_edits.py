"""The kernel source that all kernels of the testbed share is never left edited."""

from pathlib import Path

import pytest

from tests.testbed.edits import Edit, apply_edits, put_back
from tests.testbed.paths import TestbedError

TEXT = "int one;\nint two;\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "linux"
    (folder / "mm").mkdir(parents=True)
    (folder / "mm" / "util.c").write_text(TEXT)
    return folder


def test_edited_files_are_put_back(source: Path, tmp_path: Path) -> None:
    edits = [Edit("mm/util.c", "one", "three"), Edit("mm/util.c", "two", "four")]
    apply_edits(source, tmp_path / "pristine", edits)
    assert (source / "mm/util.c").read_text() == "int three;\nint four;\n"
    put_back(source, tmp_path / "pristine")
    assert (source / "mm/util.c").read_text() == TEXT
    assert not (tmp_path / "pristine").exists()


def test_a_killed_build_s_edits_are_put_back_by_the_next(source: Path, tmp_path: Path) -> None:
    apply_edits(source, tmp_path / "pristine", [Edit("mm/util.c", "one", "three")])
    # The killed build was just writing a second file away.
    (tmp_path / "pristine" / "mm" / "other.c.part").write_text("half")
    put_back(source, tmp_path / "pristine")
    apply_edits(source, tmp_path / "pristine", [Edit("mm/util.c", "two", "four")])
    put_back(source, tmp_path / "pristine")
    assert (source / "mm/util.c").read_text() == TEXT
    assert [path.name for path in (source / "mm").iterdir()] == ["util.c"]


def test_an_edit_that_does_not_fit_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="does not have"):
        apply_edits(source, tmp_path / "pristine", [Edit("mm/util.c", "no such line", "x")])


def test_a_file_that_needs_no_undoing_keeps_its_time(source: Path, tmp_path: Path) -> None:
    """Else make would compile what has not changed."""
    file = source / "mm" / "util.c"
    before = file.stat().st_mtime_ns
    (tmp_path / "pristine" / "mm").mkdir(parents=True)
    (tmp_path / "pristine" / "mm" / "util.c").write_text(TEXT)
    put_back(source, tmp_path / "pristine")
    assert file.stat().st_mtime_ns == before
