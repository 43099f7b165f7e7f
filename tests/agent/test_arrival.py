"""`install`, `run` and `hello` as Jenkins and systemd call them."""

import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.__main__ import main
from tidemark_agent.config import PowerConfig
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.lab import hello
from tidemark_agent.lab.hello import current_key, install_key, installed_by, installed_key, say_hello, say_hello_aside
from tidemark_agent.lab.journal import Journal
from tidemark_agent.log import Log
from tidemark_agent.run import cycle_power
from tidemark_agent.wire.assignment import PowerJob, read_assignment
from tidemark_agent.wire.client import Client
from tidemark_agent.wire.host import Place, boot_id, place_here, place_of

from scripts.build_agent import AGENTS
from tests.agent.fake_server import TOKEN, Answer, Lab, running_server
from tests.agent.lab.world import Silent, session_document

KEY = "session-7-1"
JENKINS = {"JOB_NAME": "tidemark-session-rome-1", "BUILD_NUMBER": "12", "NODE_NAME": "rome-1"}


@pytest.fixture
def lab() -> Lab:
    return Lab(assignments={KEY: session_document(boots=2)})


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in JENKINS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hello, "_PAUSE_SECONDS", 0.05)


def configuration(folder: Path, server: str, more: str = "") -> Path:
    (folder / "token").write_text(TOKEN)
    path = folder / "agent.toml"
    path.write_text(f'server = "{server}"\ntoken_file = "{folder}/token"\nstate_dir = "{folder}/state"\n{more}')
    return path


def install(folder: Path, server: str, *words: str) -> int:
    return main(["install", KEY, "--config", str(configuration(folder, server)), *words])


def test_key_is_installed_once_the_service_is_ready(
    tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in JENKINS.items():
        monkeypatch.setenv(name, value)
    lab.unready = 2
    with running_server(lab) as server:
        assert install(tmp_path, server) == 0
    assert len(lab.arrivals) == 3
    said = lab.arrivals[0]
    assert (said["job"], said["number"], said["node"]) == ("tidemark-session-rome-1", 12, "rome-1")
    assert said["boot_id"] == boot_id()
    assert said["host"]
    assert installed_key(tmp_path / "state") == KEY
    assert installed_by(tmp_path / "state") == {"job": "tidemark-session-rome-1", "number": 12, "node": "rome-1"}
    assert "is installed" in capsys.readouterr().err


def test_words_go_before_the_environment_and_by_hand_neither_is_needed(tmp_path: Path, lab: Lab) -> None:
    with running_server(lab) as server:
        assert install(tmp_path, server, "--job", "j", "--number", "3", "--node", "n") == 0
        lab.arrivals.clear()
        assert install(tmp_path, server) == 0
    assert not {"job", "number", "node"} & set(lab.arrivals[0])


def test_second_build_of_one_key_installs_nothing_and_succeeds(
    tmp_path: Path, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_server(lab) as server:
        assert install(tmp_path, server, "--job", "j", "--number", "3") == 0
        (tmp_path / "state/lab/installed").unlink()
        assert install(tmp_path, server, "--job", "j", "--number", "4") == 0
    assert installed_key(tmp_path / "state") == ""
    assert "another build has session-7-1" in capsys.readouterr().err


def test_service_that_does_not_get_ready_is_given_up(tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hello.install, "__kwdefaults__", {"seconds": 0.5})
    lab.unready = 10**6
    with running_server(lab) as server:
        assert install(tmp_path, server) == 75
    assert installed_key(tmp_path / "state") == ""


def test_unreachable_service_and_refused_token_have_their_own_exit_status(
    tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hello.install, "__kwdefaults__", {"seconds": 0.3})
    assert install(tmp_path, "http://127.0.0.1:9") == 75
    lab.refusal = (403, "forbidden")
    with running_server(lab) as server:
        assert install(tmp_path, server) == 3
    assert main(["install", KEY, "--config", str(tmp_path / "agent.toml")]) == 75
    (tmp_path / "token").unlink()
    assert main(["install", KEY, "--config", str(tmp_path / "agent.toml")]) == 3
    assert "the token cannot be read" in capsys.readouterr().err
    assert installed_key(tmp_path / "state") == ""


def test_place_takes_what_jenkins_says_and_nothing_that_makes_no_sense(tmp_path: Path) -> None:
    place = place_here(environment=JENKINS)
    assert (place.job, place.number, place.node) == ("tidemark-session-rome-1", 12, "rome-1")
    for number in ("", "-1", "x", "1e3", "9" * 30, "²"):
        assert place_here(number=number, environment={}).number is None
    assert len(place_here(job="j" * 500, environment={}).job) == 100
    assert boot_id(tmp_path) == ""
    assert place_of({"job": "j", "number": "7"}).number is None
    assert Place().body().keys() == {"version"}


def test_hello_tells_system_and_attempt(tmp_path: Path, lab: Lab) -> None:
    with running_server(lab) as server:
        config = str(configuration(tmp_path, server))
        assert main(["hello", "--config", config]) == 0
        install_key(tmp_path / "state", KEY)
        assert main(["hello", "--config", config]) == 0
        assert main(["hello", "--builder", "--config", config]) == 0
    assert [(said["safe"], said["key"]) for said in lab.hellos] == [(True, ""), (True, KEY), (None, "")]
    assert all(said["boot_id"] == boot_id() for said in lab.hellos)


def test_token_that_comes_to_its_end_is_renewed_in_its_file(tmp_path: Path, lab: Lab) -> None:
    lab.next_token = "tm_111111_the-next-one"
    with running_server(lab) as server:
        config = str(configuration(tmp_path, server))
        (tmp_path / "token").chmod(0o600)
        assert main(["hello", "--config", config]) == 0
    assert (tmp_path / "token").read_text() == "tm_111111_the-next-one\n"
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert sorted(file.name for file in tmp_path.glob("token*")) == ["token", "token.lock"]


@pytest.mark.parametrize("bad", ["", "two words", "tm_1\n2"])
def test_token_that_is_none_leaves_the_old_one_in_its_place(
    tmp_path: Path, lab: Lab, bad: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.next_token = bad or "x"
    monkeypatch.setattr("tests.agent.fake_server.ok", lambda value, status=200: _spoiled(value, bad, status))
    with running_server(lab) as server:
        assert main(["hello", "--config", str(configuration(tmp_path, server))]) == 0
    assert (tmp_path / "token").read_text() == TOKEN
    assert "token-not-renewed" in capsys.readouterr().err
    assert not list(tmp_path.glob("token.*.partial"))


def _spoiled(value: dict[str, Any], token: str, status: int) -> Answer:
    return Answer(status, json.dumps({**value, "token": token} if "token" in value else value).encode())


def test_token_is_not_asked_for_where_it_could_not_be_kept(
    tmp_path: Path, lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_target: Path) -> Path:
        raise PermissionError("read-only")

    lab.next_token = "tm_111111_the-next-one"
    monkeypatch.setattr("tidemark_agent.wire.host.temporary_for", refuse)
    with running_server(lab) as server:
        assert main(["hello", "--config", str(configuration(tmp_path, server))]) == 0
    assert "token-not-renewed" in capsys.readouterr().err
    assert all("token" not in path for _, path in lab.calls)


def test_kernel_under_test_renews_no_token(tmp_path: Path, lab: Lab) -> None:
    log, stop = Log(Silent()), threading.Event()
    lab.next_token = "tm_111111_the-next-one"
    root = tmp_path / "root"
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text(boot_id())
    (root / "proc/cmdline").write_text("tidemark.boot=" + "a" * 32)
    (tmp_path / "token").write_text(TOKEN)
    with running_server(lab) as server:
        client = Client(server=server, token=lambda: TOKEN, agent="a" * 32, log=log, stop=stop)
        say_hello(client, log, token_file=tmp_path / "token", key="", boots=True, root=root)
    assert lab.hellos[0]["safe"] is False
    assert (tmp_path / "token").read_text() == TOKEN


def test_hello_that_nobody_hears_says_so(tmp_path: Path, lab: Lab) -> None:
    started = time.monotonic()
    assert main(["hello", "--config", str(configuration(tmp_path, "http://127.0.0.1:9"))]) == 75
    assert time.monotonic() - started < 10
    lab.refusal = (403, "forbidden")
    with running_server(lab) as server:
        assert main(["hello", "--config", str(configuration(tmp_path, server))]) == 3


def test_hello_beside_the_work_never_raises(tmp_path: Path) -> None:
    log, stop = Log(Silent()), threading.Event()
    client = Client(server="http://127.0.0.1:9", token=lambda: TOKEN, agent="a" * 32, log=log, stop=stop)
    stop.set()
    thread = say_hello_aside(client, log, token_file=tmp_path / "token", key="", boots=True)
    thread.join(10)
    assert not thread.is_alive()


def test_session_under_way_is_the_attempt_of_a_hello(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "lab")
    journal.append("begun", key=KEY, agent="a", build_id="00", boot_id="b")
    install_key(tmp_path, "session-8-1")
    assert current_key(tmp_path) == KEY
    (tmp_path / "lab/session.jsonl").write_text("no journal\n")
    assert current_key(tmp_path) == "session-8-1"


def run_power(folder: Path, command: list[str], more: str = "", **fields: Any) -> tuple[int, Lab]:
    about = {"machine": "rome-1", "node": "rome-node", "reason": "did not come back", "timeout_seconds": 30, **fields}
    assignment = {
        "kind": "power-cycle",
        "key": "power-cycle-1-1",
        "trace": "t",
        "lease_seconds": 3,
        "power_cycle": about,
    }
    lab = Lab(assignments={"power-cycle-1-1": assignment})
    with running_server(lab) as server:
        power = f"[power]\ncommand = {json.dumps(command)}\n{more}"
        words = ["run", "power-cycle-1-1", "--config", str(configuration(folder, server, power))]
        done = subprocess.run(
            [sys.executable, "-m", "tidemark_agent", *words],
            cwd=AGENTS,
            capture_output=True,
            check=False,
            timeout=60,
            env={**os.environ, **JENKINS},
        )
    return done.returncode, lab


def test_power_cycle_runs_the_operators_command_without_a_shell(tmp_path: Path) -> None:
    note = tmp_path / "note"
    script = f'import sys; open({str(note)!r}, "w").write(" ".join(sys.argv[1:]))'
    code, lab = run_power(tmp_path, [sys.executable, "-c", script, "{machine}", "{node}", "$(reboot); {machine}"])
    assert (code, lab.ended["power-cycle-1-1"]["outcome"]) == (0, "done")
    assert note.read_text() == "rome-1 rome-node $(reboot); rome-1"
    assert (lab.claims[0]["job"], lab.claims[0]["number"]) == ("tidemark-session-rome-1", 12)
    assert lab.hellos[0]["key"] == "power-cycle-1-1"


@pytest.mark.parametrize(
    ("command", "more", "reason"),
    [
        (["/bin/sh", "-c", "echo no such outlet; exit 4"], "", "failed with 4: no such outlet"),
        (["/bin/sleep", "60"], "timeout_seconds = 1", "did not end within 1 s"),
    ],
)
def test_power_cycle_that_fails_says_why(tmp_path: Path, command: list[str], more: str, reason: str) -> None:
    code, lab = run_power(tmp_path, command, more)
    assert (code, lab.ended["power-cycle-1-1"]["outcome"]) == (1, "failed")
    assert reason in lab.ended["power-cycle-1-1"]["reason"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("/no/such/command",), "cannot be run"),
        ((), r"power\.command is not in its configuration"),
        (("/bin/echo", "{password}"), r"\{password\}"),
    ],
)
def test_power_command_that_makes_no_sense_is_not_run(tmp_path: Path, command: tuple[str, ...], reason: str) -> None:
    job = PowerJob(machine="rome-1", node="rome-1", reason="", timeout_seconds=0)
    with pytest.raises(InfrastructureError, match=reason):
        cycle_power(job, PowerConfig(command), scratch=tmp_path, log=Log(Silent()), stop=threading.Event())


@pytest.mark.parametrize("machine", ["rome-1; reboot", "-f", "../x", "", "$(reboot)"])
def test_machine_whose_name_is_no_word_is_not_switched(machine: str) -> None:
    about = {"kind": "power-cycle", "key": "k", "trace": "t", "lease_seconds": 3, "power_cycle": {"machine": machine}}
    with pytest.raises(InfrastructureError, match="cannot be understood"):
        read_assignment(about)
