"""A host that asks for work itself: what it says, what it does with the answers, and how it ends."""

import io
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.lab import asking
from tidemark_agent.lab.asking import Asking
from tidemark_agent.lab.hello import installed_key
from tidemark_agent.lab.service import DONE, LabService
from tidemark_agent.log import Log

from tests.agent.fake_server import NOTHING, Lab, running_server
from tests.agent.lab.test_service import Site
from tests.agent.lab.world import KEY

OFFER: dict[str, Any] = {"inside": False, "reason": "", "again_in": None, "renew": False}
# Says what it was started with, and goes on until it is told to end.
PROGRAM = """
import json, pathlib, sys, time
file = pathlib.Path(sys.argv[1]) / sys.argv[3]
file.write_text(json.dumps(sys.argv[2:]))
while not file.with_suffix(".end").exists():
    time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(asking, "_LEAST_WAIT", 0.05)
    monkeypatch.setattr(asking, "_LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(asking, "_REFUSED_PAUSE", 0.05)
    monkeypatch.setattr(asking, "_FIRST_PAUSE", 0.02)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Host:
    """A site of files whose service asks, in a thread, with programs that only say that they run."""

    def __init__(self, folder: Path, server: str) -> None:
        self.folder, self.log = folder, io.StringIO()
        self.site = Site(folder, server)
        self.site.config = replace(self.site.config, pull=True)
        self.service: LabService = self.site.service()
        self.asking = Asking(
            self.site.config,
            self.service._client("asks-for-work"),
            Log(self.log),
            self.service.stop,
            folder / "agent.toml",
            self.site.root,
            (sys.executable, "-c", PROGRAM, str(folder)),
        )
        self.status: list[object] = []

    def begin(self, what: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=lambda: self.status.append(what()))
        thread.start()
        return thread

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


def test_session_of_the_machine_itself_is_installed(tmp_path: Path) -> None:
    lab = Lab(offers=[{**OFFER, "key": KEY, "inside": True}], assignments={KEY: {}})
    with running_server(lab) as server:
        host = Host(tmp_path, server)
        assert host.asking.installs()
    assert installed_key(host.site.config.state_dir) == KEY
    (said,) = lab.asks
    assert (said["keys"], said["safe"], said["wait"]) == ([], True, 100.0)
    assert len(lab.arrivals) == 1


def test_other_work_runs_beside_and_more_is_asked_for(tmp_path: Path) -> None:
    lab = Lab(offers=[{**OFFER, "key": "build-1-1"}, {**OFFER, "key": "build-2-1"}])
    with running_server(lab) as server:
        host = Host(tmp_path, server)
        thread = host.begin(host.asking.installs)
        until(lambda: bool(lab.asks) and lab.asks[-1]["keys"] == ["build-1-1", "build-2-1"])
        until((tmp_path / "build-2-1").exists)
        (tmp_path / "build-1-1.end").touch()
        thread.join(20)
        assert host.status == [False]
        thread = host.begin(host.asking.installs)
        until(lambda: lab.asks[-1]["keys"] == ["build-2-1"])
        host.service.stop.end()
        thread.join(20)
        host.asking.end()
    words = json.loads((tmp_path / "build-2-1").read_text())
    assert words == ["run", "build-2-1", "--config", str(tmp_path / "agent.toml")]
    ended = {event["key"]: event["status"] for event in host.events() if event["event"] == "work-ended"}
    assert ended == {"build-1-1": 0}


def test_reason_for_nothing_is_told_once_and_the_pause_is_kept(tmp_path: Path) -> None:
    tired = {**NOTHING, "reason": "desk-1 is in maintenance: a new fan"}
    lab = Lab(offers=[tired, tired])
    with running_server(lab) as server:
        host = Host(tmp_path, server)
        thread = host.begin(host.asking.installs)
        until(lambda: len(lab.asks) > 3)
        host.service.stop.end()
        thread.join(20)
    told = [event["reason"] for event in host.events() if event["event"] == "no-work"]
    assert told == ["desk-1 is in maintenance: a new fan", "nothing waits for it"]


@pytest.mark.parametrize("trouble", ["away", "refused"])
def test_service_that_is_away_or_refuses_is_asked_again(tmp_path: Path, trouble: str) -> None:
    lab = Lab(failures_left=3) if trouble == "away" else Lab(refusal=(409, "two-agents"))
    with running_server(lab) as server:
        host = Host(tmp_path, server)
        thread = host.begin(host.asking.installs)
        until(lambda: len(lab.calls) > 2)
        lab.refusal = None
        until(lambda: len(lab.asks) > 1)
        host.service.stop.end()
        thread.join(20)
    assert host.status == [False]


def test_request_that_broke_is_followed_by_short_ones_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_BROKEN_AFTER", -1.0)
    monkeypatch.setattr(asking, "_SHORT_FOR_SECONDS", 2.0)
    lab = Lab(failures_left=1)
    with running_server(lab) as server:
        host = Host(tmp_path, server)
        thread = host.begin(host.asking.installs)
        until(lambda: bool(lab.asks) and lab.asks[-1]["wait"] == asking._SHORT_WAIT_SECONDS)
        until(lambda: bool(lab.asks[-1]["wait"] == asking._WAIT_SECONDS))
        host.service.stop.end()
        thread.join(20)


def test_service_asks_until_it_is_told_to_end_though_the_answer_is_outstanding(tmp_path: Path) -> None:
    lab = Lab()
    with running_server(lab) as server:
        host = Host(tmp_path, server)
        thread = host.begin(host.service.run)
        until(lambda: len(lab.asks) > 0)
        with lab.lock:
            # The server answers nothing while this is held.
            host.service.stop.end()
            thread.join(20)
            assert host.status == [DONE]
