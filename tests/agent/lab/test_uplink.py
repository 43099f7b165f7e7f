"""How a session on its own machine talks to the server."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_agent.errors import StoppedError
from tidemark_agent.lab import uplink
from tidemark_agent.lab.engine import SupersededError
from tidemark_agent.lab.uplink import LiveLog, Uplink
from tidemark_agent.log import Log
from tidemark_agent.wire.assignment import read_assignment
from tidemark_agent.wire.client import Client, Lease
from tidemark_agent.wire.spool import Spool

from tests.agent.fake_server import TOKEN, Lab, running_server
from tests.agent.lab.world import AGENT, KEY, Silent, session_document

LOG = Log(Silent())


class Line:
    """An uplink to a server that is there, or not."""

    def __init__(self, folder: Path, server: str) -> None:
        (folder / "token").write_text(TOKEN)
        self.stop, self.live = threading.Event(), LiveLog()
        client = Client(server=server, token=lambda: TOKEN, agent=AGENT, log=LOG, stop=self.stop)
        self.spool = Spool(folder / "spool", owner=folder / "token", log=LOG)
        self.uplink = Uplink(
            key=KEY, client=client, spool=self.spool, away_seconds=900, live=self.live, log=LOG, stop=self.stop
        )

    def hold(self) -> Lease:
        self.uplink.hold(read_assignment(session_document(boots=2)))
        assert self.uplink.lease is not None
        return self.uplink.lease


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_CLAIM_PATIENCE", "_LAST_PATIENCE", "_START_PATIENCE", "_GOODBYE_PATIENCE"):
        monkeypatch.setattr(uplink, name, 0.1)


@pytest.fixture
def lab() -> Lab:
    return Lab(assignments={KEY: session_document(boots=2)}, holders={KEY: AGENT})


def test_heartbeat_tells_progress_log_and_how_long_the_machine_may_be_away(tmp_path: Path, lab: Lab) -> None:
    with running_server(lab) as server:
        line = Line(tmp_path, server)
        line.hold()
        line.uplink.tell("boot 0 (base): measuring")
        line.live.write("one line\n")
        line.uplink.announce_reboot()
        line.uplink.release()
    assert [(beat["progress"], beat["away_seconds"], beat["log"]) for beat in lab.heartbeats] == [
        ("boot 0 (base): measuring", 900, "one line\n")
    ]


def test_log_that_did_not_arrive_goes_with_the_next_heartbeat(tmp_path: Path, lab: Lab) -> None:
    line = Line(tmp_path, "http://127.0.0.1:9")
    lease = line.hold()
    line.live.write("one line\n")
    assert lease.beat(0.1)
    assert line.live.take() == "one line\n"
    line.uplink.release()


def test_server_that_wants_no_more_stops_the_work_before_a_reboot(tmp_path: Path, lab: Lab) -> None:
    lab.unwanted = {KEY}
    with running_server(lab) as server:
        line = Line(tmp_path, server)
        lease = line.hold()
        with pytest.raises(StoppedError, match="no more"):
            line.uplink.announce_reboot()
    assert (line.stop.is_set(), lease.reason) == (True, "the server wants no more")
    line.uplink.release()
    assert not line.stop.is_set()
    lease.end("too late")
    assert not line.stop.is_set()


def test_attempt_of_another_agent_is_superseded_everywhere(tmp_path: Path, lab: Lab) -> None:
    lab.holders = {KEY: "somebody-else"}
    with running_server(lab) as server:
        line = Line(tmp_path, server)
        with pytest.raises(SupersededError):
            line.uplink.claim()
        with pytest.raises(SupersededError):
            line.uplink.is_wanted(0)
        assert not line.hold().beat(1.0)
        line.uplink.release()
        line.uplink.end("done", "")
    assert lab.ended == {}


def test_claim_is_repeated_under_the_same_name_after_a_reboot(tmp_path: Path, lab: Lab) -> None:
    with running_server(lab) as server:
        for _ in range(2):
            assert Line(tmp_path, server).uplink.claim()["key"] == KEY


def test_results_that_a_proxy_of_an_absent_server_refused_arrive_before_the_next_claim(
    tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_agent.wire.spool._MOST_FAILURES", 1)
    waiting = [f"attempts/{KEY}/boots/{position}" for position in (0, 1)]
    lab.broken.update(waiting)
    with running_server(lab) as server:
        line = Line(tmp_path, server)
        for path in waiting:
            line.spool.put(path, {"outcome": "panic", "reason": "r"})
        assert line.uplink.deliver()
        assert [item.path for item in line.spool.items()] == waiting
        lab.broken.clear()
        lab.calls.clear()
        line.uplink.claim()
    assert [path.rpartition("/")[2] for _, path in lab.calls] == ["0", "1", "claim"]


def test_unknown_wish_of_an_absent_server_means_go_on(tmp_path: Path) -> None:
    line = Line(tmp_path, "http://127.0.0.1:9")
    assert line.uplink.is_wanted(0)
    line.uplink.store(0, {"outcome": "measured"})
    assert line.uplink.deliver()
    line.uplink.end("done", "")
    assert [item.path for item in line.spool.items()] == [f"attempts/{KEY}/boots/0"]


def test_result_is_spooled_once_however_often_it_is_stored(tmp_path: Path, lab: Lab) -> None:
    with running_server(lab) as server:
        line = Line(tmp_path, server)
        for _ in range(3):
            line.uplink.store(1, {"outcome": "measured"})
        line.uplink.store(10, {"outcome": "measured"})
        assert len(list(line.spool.items())) == 2
        assert line.uplink.deliver()
    assert sorted(lab.boots) == [("session-7", 1), ("session-7", 10)]


def test_answer_to_a_result_may_end_the_session(tmp_path: Path, lab: Lab) -> None:
    lab.unwanted = {KEY}
    with running_server(lab) as server:
        line = Line(tmp_path, server)
        line.uplink.store(0, {"outcome": "measured"})
        assert not line.uplink.deliver()


def test_first_heartbeat_comes_before_the_lease_of_the_claim_is_over(tmp_path: Path, lab: Lab) -> None:
    with running_server(lab) as server:
        line = Line(tmp_path, server)
        assignment = replace(read_assignment(session_document(boots=2)), lease_seconds=0.6)
        line.uplink.hold(assignment)
        deadline = time.monotonic() + 5
        begun = time.monotonic()
        while not lab.heartbeats and time.monotonic() < deadline:
            time.sleep(0.01)
        line.uplink.release()
    assert time.monotonic() - begun < 3
    assert [beat["away_seconds"] for beat in lab.heartbeats] == [900]


def test_boot_that_the_server_does_not_know_ends_the_session(tmp_path: Path) -> None:
    with running_server(Lab()) as server, pytest.raises(SupersededError, match="404"):
        Line(tmp_path, server).uplink.is_wanted(0)


def test_attempt_whose_result_was_refused_ends_as_failed_with_the_reason(tmp_path: Path, lab: Lab) -> None:
    with running_server(lab) as server:
        line = Line(tmp_path, server)
        line.spool.put(f"attempts/{KEY}/boots/0", {})
        line.spool._refuse(next(line.spool.items()).file, "400 invalid: notes")
        line.uplink.end("done", "")
    assert lab.ended[KEY]["outcome"] == "failed"
    assert "boots/0: 400 invalid: notes" in lab.ended[KEY]["reason"]
