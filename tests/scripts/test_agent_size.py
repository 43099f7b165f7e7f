"""The agent is one small file that any Python 3.11 runs."""

import subprocess
import sys
from pathlib import Path

from scripts.build_agent import build_agent

MOST_BYTES = 1_000_000


def test_zipapp_is_below_a_megabyte_and_knows_its_commands(tmp_path: Path) -> None:
    version = build_agent(tmp_path / "agent.pyz")
    assert (tmp_path / "agent.pyz").stat().st_size < MOST_BYTES
    words = [sys.executable, "-I", str(tmp_path / "agent.pyz")]
    said = subprocess.run([*words, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.strip() == version
    helped = subprocess.run([*words, "--help"], capture_output=True, text=True, check=True).stdout
    assert all(word in helped for word in ("run", "service", "probe", "restore", "cases", "reproduce", "spool"))
