"""The command line."""

from pathlib import Path

import pytest
from tidemark_agent.__main__ import main
from tidemark_agent.lab.installed import installed_key
from tidemark_agent.run import REFUSED


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(f'server = "http://127.0.0.1:9"\ntoken_file = "{tmp_path}/token"\nstate_dir = "{tmp_path}/state"\n')
    return path


def test_installed_key_waits_for_the_service(configuration: Path, tmp_path: Path) -> None:
    for key in ("session-7-1", "session-8-1"):
        assert main(["install", key, "--config", str(configuration)]) == 0
    assert installed_key(tmp_path / "state") == "session-8-1"


@pytest.mark.parametrize("key", ["", "../x", "-x", "a b", "x" * 61])
def test_key_that_could_be_a_path_is_refused(configuration: Path, key: str) -> None:
    with pytest.raises(SystemExit):
        main(["install", "--config", str(configuration), "--", key])


@pytest.mark.parametrize("command", [["install", "session-7-1"], ["service"], ["restore"]])
def test_missing_configuration_is_refused(tmp_path: Path, command: list[str]) -> None:
    assert main([*command, "--config", str(tmp_path / "none.toml")]) == REFUSED


def test_nothing_to_restore_is_well(configuration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", "--config", str(configuration)]) == 0
    assert "nothing to restore" in capsys.readouterr().out
