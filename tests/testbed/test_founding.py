"""The founding case for real: one patch, other effects on other CPUs, and the flags that say why.

The patch copies a folio by one memcpy() where the kernel copies page by page. What each function is made of depends on
the CPU (arch/x86/lib/copy_page_64.S, copy_mc.c, memcpy_64.S of the kernel):

    folio_copy      rep movsq, if rep_good  ->  rep movsb, if fsrm, else a loop of movq
    folio_mc_copy   rep movsb, if erms      ->  the same
                    memcpy, if not

The emulator's clock counts instructions and takes each round of a string instruction for one, so a page costs about
512 by movsq, 4096 by movsb and 1536 by the loop. Real CPUs have other prices; which code runs is the same.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.testbed.kernels import BASE, PATCHED, kernel
from tests.testbed.measured import Guest, measured

pytestmark = pytest.mark.real(minutes=3)
FLAGS = {"erms", "fsrm", "rep_good"}
COPY, MC_COPY = "folio-copy/folio_copy-2m-hot-0to0", "folio-copy/folio_mc_copy-2m-hot-0to0"
# A control: this code is the same in both kernels.
PAGES = "folio-copy/copy_highpage-2m-hot-0to0"


def compared(folder: Path, agent: Path, *, cpu: str, words: str = "") -> tuple[set[str], Mapping[str, float]]:
    """The flags that both boots recorded, and patched / base for each case."""
    sides = {}
    for recipe in (BASE, PATCHED):
        guest = Guest(kernel(recipe), cpu, counted=True, words=words)
        sides[recipe.name] = measured(guest, [COPY, MC_COPY, PAGES], agent=agent, folder=folder / recipe.name)
    base, patched = sides[BASE.name], sides[PATCHED.name]
    assert base.facts["flags"] == patched.facts["flags"]
    ratios = {case: patched.median(case) / base.median(case) for case in (COPY, MC_COPY, PAGES)}
    return FLAGS & set(base.facts["flags"]), ratios


def test_patch_is_good_for_machine_check_copies_where_erms_is_and_nowhere_else(
    agent_program: Path, tmp_path: Path
) -> None:
    flags, ratios = compared(tmp_path / "haswell", agent_program, cpu="Haswell")
    assert flags == {"erms", "rep_good"}
    assert ratios[MC_COPY] == pytest.approx(1536 / 4132, rel=0.02)
    assert ratios[COPY] == pytest.approx(1536 / 534, rel=0.04)
    assert ratios[PAGES] == pytest.approx(1.0, abs=0.02)

    flags, ratios = compared(tmp_path / "epyc", agent_program, cpu="EPYC")
    assert flags == {"rep_good"}
    assert ratios[MC_COPY] == pytest.approx(1.0, abs=0.05)
    assert ratios[COPY] == pytest.approx(1536 / 534, rel=0.04)
    assert ratios[PAGES] == pytest.approx(1.0, abs=0.02)


def test_fsrm_alone_takes_the_gain_away_and_makes_the_loss_larger(agent_program: Path, tmp_path: Path) -> None:
    # The emulator's models know no fsrm, but the kernel can be told that its CPU has it.
    flags, ratios = compared(tmp_path / "fsrm", agent_program, cpu="Haswell", words="setcpuid=fsrm")
    assert flags == {"erms", "fsrm", "rep_good"}
    assert ratios[MC_COPY] == pytest.approx(1.0, abs=0.03)
    assert ratios[COPY] == pytest.approx(4103 / 534, rel=0.04)
    assert ratios[PAGES] == pytest.approx(1.0, abs=0.02)
