"""MAINTAINERS as scripts/get_maintainer.pl reads it."""

import time
from pathlib import Path

import pytest

from server.core.programs.git import Repository
from server.sources.trust.senders import maintainers_at, read_maintainers, unmaintained
from tests.sources.posting import Upstream

TEXT = """\
List of maintainers
===================

Descriptions of section entries:

\tM: *Mail* patches to: FullName <address@domain>
\tF: *Files* and directories wildcard patterns.

Maintainers List
----------------

ARM/IMX
M:\tImke Iks <imke@example.org>
N:\timx
N:\t[^a-z]mxc_
N:\t((a+)+)+$

BIT CHANGES
M:\t"Dot, Ted" <dot@example.org>
M:\tbare@example.org
L:\tlinux@example.org
S:\tMaintained
F:\tDocumentation/bits
F:\tdrivers/bits/
F:\tdrivers/net/*bit*.c
F:\tinclude/linux/bits.h
X:\tdrivers/bits/alien/

DEEP
M:\tDeep <deep@example.org>
F:\tfs/**/*deep*.c

NOBODY
L:\tlinux@example.org
F:\tnobody/

THE REST
M:\tLin Root <root@example.org>
F:\t*
F:\t*/
"""
SECTIONS = read_maintainers(TEXT)


def covers(person: str, path: str) -> bool:
    return unmaintained(SECTIONS, person, [path]) == ""


def test_sections_that_name_nobody_are_left_out() -> None:
    assert [section.title for section in SECTIONS] == ["ARM/IMX", "BIT CHANGES", "DEEP", "NOBODY", "THE REST"]
    assert SECTIONS[1].people == {"dot@example.org", "bare@example.org"}
    assert (SECTIONS[3].people, SECTIONS[3].lists) == (frozenset(), ("linux@example.org",))


def test_lists_that_anybody_may_write_to_and_reviewers_are_read() -> None:
    text = """\
X
M:\tMia <Mia@example.org>
R:\tRon <ron@example.org>
L:\topen@example.org (moderated for non-subscribers)
L:\tclosed@example.org (subscribers-only)
L:\t
F:\tmm/
"""
    (section,) = read_maintainers(text)
    assert section.lists == ("open@example.org",)
    assert (section.maintainers, section.reviewers) == (("Mia@example.org",), ("ron@example.org",))


@pytest.mark.parametrize(
    ("path", "covered"),
    [
        ("drivers/bits/core.c", True),
        ("drivers/bits/deep/down.c", True),
        ("drivers/bits/alien/x.c", False),
        ("drivers/net/rabbit.c", True),
        ("drivers/net/phy/rabbit.c", False),
        ("drivers/net/bit.h", False),
        ("include/linux/bits.h", True),
        ("include/linux/bits.h.orig", True),
        ("include/linux/bits", False),
        ("Documentation/bits/a/b.rst", True),
        ("Documentation/bitsandbobs", True),
        ("drivers/bitsy/core.c", False),
        ("tools/drivers/bits/core.c", False),
    ],
)
def test_files_and_exceptions(path: str, covered: bool) -> None:
    assert covers("dot@example.org", path) == covered


@pytest.mark.parametrize(
    ("person", "path", "covered"),
    [
        ("IMKE@example.org", "arch/arm/mach-imx/mm.c", True),
        ("imke@example.org", "drivers/mtd/mxc_nand.c", True),
        ("imke@example.org", "drivers/mtd/amxc_nand.c", False),
        ("imke@example.org", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", False),
        ("deep@example.org", "fs/a/b/very_deep_one.c", True),
        ("deep@example.org", "mm/deep.c", False),
        ("root@example.org", "mm/memory.c", True),
        ("root@example.org", "Makefile", True),
        ("eve@example.org", "mm/memory.c", False),
        ("linux@example.org", "drivers/bits/core.c", False),
    ],
)
def test_expressions_depth_and_people(person: str, path: str, covered: bool) -> None:
    assert covers(person, path) == covered


def test_hostile_lists_cost_no_time() -> None:
    stars = "*a" * 100
    expressions = "N: " + "a" * 5000 + "*b*\nN: (a|a)*$\nN: [\nN: x**\nN: \\\n"
    text = f"S\nM: a@b.c\nF: {stars}b\n{expressions}" + "junk\n" * 50_000
    began = time.process_time()
    sections = read_maintainers(text)
    assert unmaintained(sections, "a@b.c", ["a" * 4096]) == "a" * 4096
    assert time.process_time() - began < 2


def test_list_is_read_from_a_commit_and_may_be_missing(tmp_path: Path) -> None:
    upstream = Upstream.create(tmp_path / "upstream")
    without = upstream.commit({"README": "x\n"})
    with_list = upstream.commit({"MAINTAINERS": TEXT})
    repository = Repository(upstream.path / ".git")
    assert maintainers_at(repository, without) == ()
    assert maintainers_at(repository, with_list) == SECTIONS
