"""The service around the sessions: what it begins, what it hands over, and when it goes home."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tidemark_agent.config import AgentConfig, BootConfig
from tidemark_agent.errors import StoppedError, UnreachableError
from tidemark_agent.lab import service, uplink
from tidemark_agent.lab.hello import forget_key, install_key, installed_key
from tidemark_agent.lab.journal import Journal, progress_of
from tidemark_agent.lab.service import DONE, FAILED, REFUSED, LabService, Stop, run_service, serve
from tidemark_agent.lab.uplink import LiveLog
from tidemark_agent.log import Log
from tidemark_agent.wire.spool import Spool

from tests.agent.fake_server import TOKEN, Lab, running_server
from tests.agent.lab.world import KEY, session_document


class Site:
    """A tree of files that looks like a machine, with an agent on it."""

    def __init__(self, folder: Path, server: str, command_line: str = "ro") -> None:
        self.root = folder / "root"
        self.write("proc/sys/kernel/random/boot_id", "0f6e0a3e-0000-4000-8000-000000000001\n")
        self.write("proc/cmdline", f"{command_line}\n")
        (folder / "token").write_text(TOKEN)
        self.restarts = folder / "restarts"
        self.config = AgentConfig(
            server=server,
            token_file=folder / "token",
            state_dir=folder / "state",
            boot=BootConfig(restart=("sh", "-c", f"echo restart >> {self.restarts}")),
        )

    def write(self, name: str, content: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def run(self) -> int:
        return self.service().run()

    def service(self) -> LabService:
        live = LiveLog()
        return LabService(self.config, live, Log(live), Stop(), self.root)

    def restarted(self) -> int:
        return len(self.restarts.read_text().splitlines()) if self.restarts.exists() else 0

    def ended(self) -> list[list[dict[str, Any]]]:
        files = sorted((self.config.state_dir / "lab/ended").glob("*.jsonl"))
        return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_RESTART_SECONDS", 0.0)
    monkeypatch.setattr(service, "_LOCK_PATIENCE", 0.1)
    monkeypatch.setattr(service, "_DRAIN_PATIENCE", 0.1)
    for name in ("_CLAIM_PATIENCE", "_LAST_PATIENCE", "_START_PATIENCE"):
        monkeypatch.setattr(uplink, name, 0.1)


def test_machine_with_nothing_to_do_is_left_alone(tmp_path: Path) -> None:
    site = Site(tmp_path, "http://127.0.0.1:9")
    assert (site.run(), site.restarted()) == (DONE, 0)


def test_test_kernel_without_a_session_goes_home_three_times_at_most(tmp_path: Path) -> None:
    site = Site(tmp_path, "http://127.0.0.1:9", "ro tidemark.boot=abc")
    assert [site.run() for _ in range(5)] == [DONE, DONE, DONE, FAILED, FAILED]
    assert site.restarted() == 3
    site.write("proc/cmdline", "ro\n")
    assert site.run() == DONE
    site.write("proc/cmdline", "ro tidemark.boot=abc\n")
    assert (site.run(), site.restarted()) == (DONE, 4)


def test_installed_key_is_not_begun_in_a_test_kernel(tmp_path: Path) -> None:
    site = Site(tmp_path, "http://127.0.0.1:9", "ro tidemark.boot=abc")
    install_key(site.config.state_dir, KEY)
    site.run()
    assert installed_key(site.config.state_dir) == KEY


def test_session_that_another_agent_holds_is_over_at_once(tmp_path: Path) -> None:
    lab = Lab(assignments={KEY: session_document(boots=2)}, holders={KEY: "somebody-else"})
    with running_server(lab) as server:
        site = Site(tmp_path, server)
        install_key(site.config.state_dir, KEY)
        assert site.run() == DONE
    assert installed_key(site.config.state_dir) == ""
    (entries,) = site.ended()
    assert [entry["event"] for entry in entries] == ["begun", "closing", "ended"]
    assert lab.ended == {}


def test_driver_that_needs_no_reboot_is_told_from_one_that_cannot_be_here(tmp_path: Path) -> None:
    lab = Lab(assignments={KEY: session_document(boots=2, driver="qemu")})
    with running_server(lab) as server:
        site = Site(tmp_path, server)
        install_key(site.config.state_dir, KEY)
        assert site.run() == DONE
    assert lab.ended[KEY]["outcome"] == "failed"
    assert "qemu does not work inside the machine" in lab.ended[KEY]["reason"]


def test_agent_keeps_its_name_while_the_server_is_away(tmp_path: Path) -> None:
    site = Site(tmp_path, "http://127.0.0.1:9")
    install_key(site.config.state_dir, KEY)
    for _ in range(2):
        with pytest.raises(UnreachableError):
            site.run()
    lines = (site.config.state_dir / "lab/session.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["begun"]


def test_results_that_wait_are_sent_without_any_session(tmp_path: Path) -> None:
    lab = Lab(assignments={KEY: session_document(boots=2)})
    with running_server(lab) as server:
        site = Site(tmp_path, server)
        spool = Spool(site.config.state_dir / "spool", owner=site.config.token_file, log=Log(LiveLog()))
        spool.put(f"attempts/{KEY}/boots/1", {"outcome": "measured"})
        assert site.run() == DONE
    assert lab.boots["session-7", 1]["outcome"] == "measured"


def test_journal_that_cannot_be_understood_is_put_aside_and_the_next_key_begun(tmp_path: Path) -> None:
    lab = Lab(assignments={KEY: session_document(boots=2, driver="qemu")})
    with running_server(lab) as server:
        site = Site(tmp_path, server)
        install_key(site.config.state_dir, KEY)
        broken = site.config.state_dir / "lab/session.jsonl"
        broken.write_bytes(b"\0\0\0\n")
        assert site.run() == DONE
    (aside,) = (site.config.state_dir / "lab/aside").glob("*.jsonl")
    assert aside.read_bytes() == b"\0\0\0\n"
    assert len(site.ended()) == 1


def test_disk_that_takes_nothing_ends_the_session_not_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(assignments={KEY: session_document(boots=2)})
    with running_server(lab) as server:
        site = Site(tmp_path, server)
        site.write("sys/kernel/kexec_loaded", "0\n")
        install_key(site.config.state_dir, KEY)
        append = Journal.append

        def full(journal: Any, event: str, **fields: Any) -> Any:
            if event not in {"begun", "claimed"}:
                raise OSError(28, "No space left on device")
            return append(journal, event, **fields)

        monkeypatch.setattr(Journal, "append", full)
        with pytest.raises(StoppedError, match="no disk space left"):
            site.run()
    assert "no disk space left" in lab.ended[KEY]["reason"]
    assert site.restarted() == 0


def test_disk_that_takes_nothing_under_a_test_kernel_leads_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "http://127.0.0.1:9", "ro tidemark.boot=abc")
    journal = Journal(site.config.state_dir / "lab")
    journal.append("begun", key=KEY, agent="a", build_id="5afe", boot_id="b")
    journal.append("claimed", assignment=session_document(boots=2))
    journal.append("armed", position=0, nonce="abc", boot_id="b", known=[])

    def full(_journal: Any, _event: str, **_fields: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "append", full)
    with pytest.raises(StoppedError, match="no disk space left"):
        site.run()
    assert site.restarted() == 1


def test_configuration_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert run_service(tmp_path / "agent.toml") == REFUSED


def test_key_that_came_meanwhile_is_not_forgotten(tmp_path: Path) -> None:
    install_key(tmp_path, "session-1-1")
    forget_key(tmp_path, "session-0-1")
    assert installed_key(tmp_path) == "session-1-1"
    (tmp_path / "lab/installed").write_bytes(b"\xff")
    assert installed_key(tmp_path) == ""


def test_agent_that_cannot_take_its_lock_leaves_a_test_kernel(tmp_path: Path) -> None:
    site = Site(tmp_path, "http://127.0.0.1:9", "ro tidemark.boot=abc")
    Journal(site.config.state_dir / "lab").append("begun", key=KEY, agent="a", build_id="5afe", boot_id="b")
    (site.config.state_dir / "lab/service.lock").mkdir()
    assert (serve(site.service()), site.restarted()) == (FAILED, 1)
    site.write("proc/cmdline", "ro\n")
    assert (serve(site.service()), site.restarted()) == (FAILED, 1)


def test_agent_that_crashes_leaves_a_test_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path, "http://127.0.0.1:9", "ro tidemark.boot=abc")
    journal = Journal(site.config.state_dir / "lab")
    journal.append("begun", key=KEY, agent="a", build_id="5afe", boot_id="b")
    journal.append("claimed", assignment=session_document(boots=2))
    journal.append("armed", position=0, nonce="abc", boot_id="b", known=[])

    def broken(_service: LabService) -> int:
        raise ValueError("a slip of ours")

    monkeypatch.setattr(LabService, "run", broken)
    assert (serve(site.service()), site.restarted()) == (FAILED, 1)
    (outcome,) = progress_of(journal.entries()).outcomes.values()
    assert (outcome["outcome"], outcome["reason"]) == ("infrastructure", service._FAILED_INSIDE)


def test_session_keeps_the_command_line_of_the_safe_kernel(tmp_path: Path) -> None:
    site = Site(tmp_path, "http://127.0.0.1:9", "root=/dev/vda1 quiet")
    install_key(site.config.state_dir, KEY)
    with pytest.raises(UnreachableError):
        site.run()
    assert progress_of(Journal(site.config.state_dir / "lab").entries()).safe_command_line == "root=/dev/vda1 quiet"


def test_signal_to_end_outlives_the_end_of_a_boot() -> None:
    stop = Stop()
    stop.set()
    stop.clear()
    assert not stop.is_set()
    stop.end()
    stop.clear()
    assert stop.is_set()


def test_service_that_was_told_to_end_does_not_go_on_when_the_server_wants_no_more(tmp_path: Path) -> None:
    told = Site(tmp_path, "http://127.0.0.1:9").service()
    told.stop.end()

    def run() -> None:
        raise StoppedError("told to end")

    lease = SimpleNamespace(reason="the server wants no more", superseded=False)
    # Nothing else of them may be used: the session is to be left as it is.
    with pytest.raises(StoppedError, match="told to end"):
        told._carry(SimpleNamespace(run=run), SimpleNamespace(lease=lease))  # type: ignore[arg-type]  # (stand-ins)


def test_token_that_is_not_taken_may_be_renewed_while_the_service_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_FIRST_PAUSE", 0.05)
    lab = Lab(assignments={KEY: session_document(boots=2, driver="qemu")})
    with running_server(lab) as server:
        site = Site(tmp_path, server)
        (tmp_path / "token").write_text("tm_000000_revoked")
        install_key(site.config.state_dir, KEY)
        renewal = threading.Timer(0.3, (tmp_path / "token").write_text, [TOKEN])
        renewal.start()
        assert site.run() == DONE
        renewal.join()
    assert lab.ended[KEY]["outcome"] == "failed"
    assert len(site.ended()) == 1
