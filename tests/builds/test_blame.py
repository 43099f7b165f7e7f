from typing import Any

import pytest

from server.builds.blame import Blame, blame, blame_of_series, error_file
from server.builds.models import Build, BuildState
from tests.builders import build_build, build_series

pytestmark = pytest.mark.django_db
ERROR = "mm/memory.c:7:1: error: expected ';'"
OTHER = "fs/inode.c:9: error: no such field"


def build(error: str = "", state: str = "", **fields: Any) -> Build:
    row = build_build(state=state or (BuildState.FAILED if error else BuildState.BUILT), **fields)
    row.reason = error
    row.save()
    return row


@pytest.mark.parametrize(
    ("base", "patched", "who", "sentence"),
    [
        ("", "", Blame.NONE, ""),
        ("", ERROR, Blame.PATCH, f"the series breaks the build: {ERROR}"),
        (ERROR, ERROR, Blame.BASE, f"the base does not build ({ERROR}); the series is not to blame"),
        (ERROR, "", Blame.BASE, "the series builds, but there is nothing to compare it with"),
        (ERROR, OTHER, Blame.BOTH, f"the base does not build ({ERROR}), and neither does the series ({OTHER})"),
    ],
)
def test_base_breakage_is_told_from_the_series_own(base: str, patched: str, who: Blame, sentence: str) -> None:
    found = blame(build(base), build(patched))
    assert found.blame is who
    assert sentence in found.sentence


def test_nobody_is_blamed_before_both_are_final_and_a_removed_kernel_was_built() -> None:
    for state in (BuildState.WANTED, BuildState.RUNNING, BuildState.CANCELED):
        assert blame(build(state=state), build(ERROR)).blame is Blame.NONE
    assert blame(build(state=BuildState.EXPIRED), build(ERROR)).blame is Blame.PATCH


def test_trouble_of_ours_is_nobody_else_s_fault() -> None:
    ours = build("power cut", given_up=True)
    for pair in ((ours, build(ERROR)), (build(), ours)):
        found = blame(*pair)
        assert (found.blame, "for reasons of this service: power cut" in found.sentence) == (Blame.OURS, True)


def test_patch_that_touches_the_file_of_the_error_is_named() -> None:
    series = build_series()
    first, second = (patch.message for patch in series.patches.order_by("index"))
    assert "no patch touches mm/memory.c" in blame_of_series(build(), build(ERROR), series.pk).sentence
    second.paths = ["mm/memory.c", "mm/swap.c"]
    second.save()
    assert "(mm/memory.c is touched by patch 2)" in blame_of_series(build(), build(ERROR), series.pk).sentence
    first.paths = ["mm/memory.c"]
    first.save()
    assert "(mm/memory.c is touched by patches 1, 2)" in blame_of_series(build(), build(ERROR), series.pk).sentence


@pytest.mark.parametrize(
    ("error", "file"),
    [
        (ERROR, "mm/memory.c"),
        ("In file included from mm/memory.c:41:\n./include/linux/mm.h:12:5: error: x", "include/linux/mm.h"),
        ("mm/Kconfig:12: syntax error", "mm/Kconfig"),
        ("ld: vmlinux: error: undefined symbol folio_x", ""),
        ("/usr/include/stdio.h:1:1: error: x", ""),
        ("../../etc/passwd.c:1: error", ""),
        ("Killed", ""),
        ("scripts/Makefile.build:250: mm/x.o] Error 1", "scripts/Makefile.build"),
    ],
)
def test_file_of_the_first_error_is_one_of_the_tree(error: str, file: str) -> None:
    assert error_file(build(error)) == file
