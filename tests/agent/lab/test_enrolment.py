"""`enrol URL CODE`: what is written, what is told, and that nothing is used up where something is wrong here."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.__main__ import main
from tidemark_agent.config import read_config
from tidemark_agent.lab import enrolment

from tests.agent.fake_server import TOKEN, Answer, Lab, ok, problem, running_server

CODE = "ABCD-EFGH-JKLM-NPQR"


def taken(**other: Any) -> Answer:
    told = {"scope": "machine", "subject": "desk-1", "token": TOKEN, "pull": True, "accepted": False}
    return ok({**told, "at": datetime.now(UTC).isoformat(), **other})


def enrol(folder: Path, server: str, *words: str) -> int:
    home = ["--config", str(folder / "etc/agent.toml"), "--state-dir", str(folder / "state")]
    return main(["enrol", server, CODE, *home, *words])


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_host_writes_its_token_and_configuration_and_says_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(enrolments=[taken()])
    with running_server(lab) as server:
        assert enrol(tmp_path, f"{server}/") == 0
    config = read_config(tmp_path / "etc/agent.toml")
    assert (config.server, config.pull, config.state_dir) == (server, True, tmp_path / "state")
    assert config.token_file.read_text().strip() == TOKEN
    assert (mode(config.token_file), mode(tmp_path / "etc/agent.toml")) == (0o600, 0o600)
    (said,) = lab.codes
    assert (said["code"], said["facts"]["arch"] != "", said["facts"]["cpus"] > 0) == (CODE, True, True)
    told = capsys.readouterr().out
    for words in ("machine desk-1", f"{server}/machines/desk-1/", "systemctl enable --now tidemark-agent.service"):
        assert words in told


def test_host_that_is_enrolled_already_keeps_its_token_unless_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(enrolments=[taken(), taken(token="tm_1_another-for-tests")])
    with running_server(lab) as server:
        assert enrol(tmp_path, server) == 0
        assert enrol(tmp_path, server) == 3
        assert "enrolled already" in capsys.readouterr().err
        assert len(lab.codes) == 1
        assert enrol(tmp_path, server, "--again") == 0
    assert (tmp_path / "etc/token").read_text().strip() == "tm_1_another-for-tests"


def test_configuration_of_an_operator_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = Lab(enrolments=[taken()])
    file = tmp_path / "etc/agent.toml"
    file.parent.mkdir()
    with running_server(lab) as server:
        text = f'server = "{server}"\ntoken_file = "{tmp_path}/own"\nstate_dir = "{tmp_path}/state"\n'
        file.write_text(text)
        assert enrol(tmp_path, server) == 0
        assert enrol(tmp_path, "http://127.0.0.1:9") == 3
    assert file.read_text() == text
    assert (tmp_path / "own").read_text().strip() == TOKEN
    told = capsys.readouterr()
    assert ("pull = true" in told.out, "is for the service at" in told.err) == (True, True)


@pytest.mark.parametrize("before", ["", 'ca_file = "/old/ca.pem"\n'])
def test_certificates_that_are_named_stay_named_in_a_configuration_that_was_there(tmp_path: Path, before: str) -> None:
    file, trusted = tmp_path / "etc/agent.toml", tmp_path / "ca.pem"
    file.parent.mkdir()
    trusted.write_text("of our own")
    with running_server(Lab(enrolments=[taken()])) as server:
        kept = f'# ours\nserver = "{server}"\n{before}token_file = "{tmp_path}/own"\n\n[programs]\nperf = "/opt/perf"\n'
        file.write_text(kept)
        file.chmod(0o640)
        assert enrol(tmp_path, server, "--ca-file", str(trusted)) == 0
    config = read_config(file)
    assert (config.ca_file, config.programs) == (trusted, {"perf": Path("/opt/perf")})
    assert file.read_text() == f'ca_file = "{trusted}"\n{kept.replace(before, "")}'
    assert mode(file) == 0o640


@pytest.mark.parametrize("words", ["[\nca_file = no key\n", "ca_file = no key\n"])
def test_configuration_that_would_not_stay_what_it_is_is_refused_before_the_code_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    lab = Lab(enrolments=[taken()])
    file, trusted = tmp_path / "etc/agent.toml", tmp_path / "ca.pem"
    file.parent.mkdir()
    trusted.write_text("of our own")
    with running_server(lab) as server:
        begins = f'server = "{server}"\ntoken_file = "{tmp_path}/own"\nstate_dir = "{tmp_path}/state"\n'
        kept = f"{begins}boot.words = '''\n{words}'''\nca_file = \"/old/ca.pem\"\n"
        file.write_text(kept)
        assert enrol(tmp_path, server, "--again", "--ca-file", str(trusted)) == 3
        assert (file.read_text(), lab.codes, (tmp_path / "own").exists()) == (kept, [], False)
        told = capsys.readouterr().err
        assert (str(file) in told, f'ca_file = "{trusted}"' in told) == (True, True)
        file.write_text(kept.replace("/old/ca.pem", str(trusted)))
        assert enrol(tmp_path, server, "--again", "--ca-file", str(trusted)) == 0


def test_configuration_that_is_a_link_stays_one(tmp_path: Path) -> None:
    file, real, trusted = tmp_path / "etc/agent.toml", tmp_path / "site/desk-1.toml", tmp_path / "ca.pem"
    file.parent.mkdir()
    real.parent.mkdir()
    file.symlink_to(real)
    trusted.write_text("of our own")
    with running_server(Lab(enrolments=[taken()])) as server:
        real.write_text(f'server = "{server}"\ntoken_file = "{tmp_path}/own"\nstate_dir = "{tmp_path}/state"\n')
        assert enrol(tmp_path, server, "--ca-file", str(trusted)) == 0
    assert (file.is_symlink(), read_config(real).ca_file) == (True, trusted)
    assert [kept.name for kept in real.parent.iterdir()] == [real.name]


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("code-unknown", 404, "small letters"),
        ("code-expired", 409, "enrol_machine"),
        ("code-used", 409, "makes another"),
        ("other-uarch", 409, "the right machine"),
    ],
)
def test_refusal_is_told_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, status: int, words: str
) -> None:
    with running_server(Lab(enrolments=[problem(status, code)])) as server:
        assert enrol(tmp_path, server) == 3
    assert words in capsys.readouterr().err
    assert not (tmp_path / "etc/token").exists()


def test_service_that_is_not_there_or_is_none_uses_nothing_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert enrol(tmp_path, "http://127.0.0.1:9") == 75
    assert "no answer of a Tidemark service at http://127.0.0.1:9" in capsys.readouterr().err
    with running_server(Lab(enrolments=[Answer(200, b"<html>welcome", "text/html")])) as server:
        assert enrol(tmp_path, server) == 75
    assert "the answer is no JSON" in capsys.readouterr().err
    assert enrol(tmp_path, "tidemark.example.org") == 3
    assert "no address of a service" in capsys.readouterr().err


def test_clock_that_is_off_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    with running_server(Lab(enrolments=[taken(at=at)])) as server:
        assert enrol(tmp_path, server) == 0
    assert "Its clock is" in capsys.readouterr().out
    why = "the server's certificate is not trusted (certificate is not yet valid); see ca_file in agent.toml"
    assert "clock says" in enrolment._unreached("https://t.example", why)


def test_folder_that_cannot_be_written_is_found_before_the_code_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(enrolments=[taken()])
    (tmp_path / "etc").write_text("no folder")
    with running_server(lab) as server:
        assert enrol(tmp_path, server) == 1
    assert lab.codes == []
    assert "files failed" in capsys.readouterr().err
