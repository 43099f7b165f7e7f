"""`tidemark-agent restore`, by hand."""

from pathlib import Path

import pytest
from tidemark_agent.prepare.preparation import restore_settings

from tests.agent.prepare.dying import bury
from tests.agent.prepare.tree import CPU, KernelTree, prepared, server


def left_by_a_killed_agent(root: Path, state: Path) -> KernelTree:
    tree = server(root)
    # The command asks the real systemctl and swapoff: there is nothing for them to do.
    tree.put("proc/swaps", "Filename Type Size Used Priority")
    tree.remove("units/cron.service")
    # The files that this tree answers in the kernel's own form are not for plain writing.
    tree.put("sys/kernel/mm/transparent_hugepage/enabled", "always")
    tree.put("sys/kernel/mm/transparent_hugepage/defrag", "madvise")
    tree.put("proc/self/cgroup", "")
    for path in tree.root.rglob("cgroup.controllers"):
        path.unlink()
    preparation = prepared(tree, state)
    preparation.apply()
    bury(preparation)
    return tree


def test_settings_that_a_killed_agent_left_are_put_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = left_by_a_killed_agent(tmp_path / "root", tmp_path)
    assert tree.text(f"{CPU}/cpufreq/boost") == "0"
    assert restore_settings(tmp_path, root=tree.root) == 0
    assert tree.text(f"{CPU}/cpufreq/boost") == "1"
    assert capsys.readouterr().out == "restored\n"


def test_problem_is_told_and_is_the_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = left_by_a_killed_agent(tmp_path / "root", tmp_path)
    tree.put(f"{CPU}/cpufreq/boost", "7")
    assert restore_settings(tmp_path, root=tree.root) == 1
    assert "somebody else changed it" in capsys.readouterr().err


def test_nothing_to_restore_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert restore_settings(tmp_path) == 0
    assert "nothing to restore" in capsys.readouterr().out
