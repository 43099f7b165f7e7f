"""The command line."""

from pathlib import Path

import pytest
from tidemark_agent.__main__ import main
from tidemark_agent.run import REFUSED


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(f'server = "http://127.0.0.1:9"\ntoken_file = "{tmp_path}/token"\nstate_dir = "{tmp_path}/state"\n')
    return path


@pytest.mark.parametrize("key", ["", "../x", "-x", "a b", "x" * 61])
def test_key_that_could_be_a_path_is_refused(configuration: Path, key: str) -> None:
    with pytest.raises(SystemExit):
        main(["install", "--config", str(configuration), "--", key])


@pytest.mark.parametrize(
    "command", [["install", "session-7-1"], ["service"], ["restore"], ["hello"], ["run", "build-1-1"]]
)
def test_missing_configuration_is_refused(tmp_path: Path, command: list[str]) -> None:
    assert main([*command, "--config", str(tmp_path / "none.toml")]) == REFUSED


def test_nothing_to_restore_is_well(configuration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", "--config", str(configuration)]) == 0
    assert "nothing to restore" in capsys.readouterr().out


def test_who_may_only_install_cannot_name_another_configuration(
    configuration: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It could send the token of root, who owns it, to a server of its own."""
    monkeypatch.setenv("SUDO_UID", "1000")
    assert main(["install", "session-7-1", "--config", str(configuration)]) == REFUSED
    assert "--config is not allowed" in capsys.readouterr().err
