"""The spool in bad times: a server that is away for a day or breaks for ever, clocks that jump, disks that are full."""

import errno
import io
import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tidemark_agent.__main__ import main
from tidemark_agent.errors import UnreachableError
from tidemark_agent.log import Log
from tidemark_agent.wire import client
from tidemark_agent.wire.spool import Spool, delay_of, print_spool, put_off

from tests.agent.fake_server import Lab, running_server
from tests.agent.test_spool import BOOT, KEY, RESULT, build_client, build_lab, build_spool, quiet

DAY = 24 * 3600


class Clockwork(threading.Event):
    """An event that is never set; waiting for it takes simulated time only."""

    now = 0.0
    longest = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        self.longest = max(self.longest, timeout or 0.0)
        return False


def spool_at(state: Path, now: float) -> Spool:
    return Spool(state / "spool", owner=state / "token", log=quiet(), clock=lambda: now)


def names(state: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in (state / "spool").glob(pattern))


def test_server_away_for_a_day_loses_nothing_and_gets_everything_once_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clockwork()
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: clock.now))
    away = client.Client(server="http://127.0.0.1:9", token=lambda: "tm", agent="agent-1", log=quiet(), stop=clock)
    position = 0
    while clock.now < DAY:
        build_spool(tmp_path).put(f"attempts/{KEY}/boots/{position}", RESULT)
        with pytest.raises(UnreachableError):
            build_spool(tmp_path).upload(away, patience=600)
        clock.now += 600
        position += 1
    assert position > 50
    assert clock.longest <= 30
    lab = build_lab()
    with running_server(lab) as server:
        sent = build_spool(tmp_path).upload(build_client(server), patience=5)
    assert [item.path for item in sent] == [f"attempts/{KEY}/boots/{n}" for n in range(position)]
    assert [path.rpartition("/")[2] for _, path in lab.calls] == [str(n) for n in range(position)]
    assert names(tmp_path, "*.json") == []


def test_result_on_which_the_server_always_breaks_costs_one_call_a_day_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_agent.wire.spool._MOST_FAILURES", 1)
    build_spool(tmp_path).put(BOOT, RESULT)
    lab = build_lab()
    lab.broken.add(BOOT)
    with running_server(lab) as server:
        # A start of the agent each ten minutes for ten days.
        for start in range(0, 10 * DAY, 600):
            spool_at(tmp_path, 1e9 + start).upload(build_client(server), patience=600)
    assert len(lab.calls) <= 16
    assert names(tmp_path, "*.json")


def test_clock_that_jumped_back_by_years_blocks_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark_agent.wire.spool._MOST_FAILURES", 1)
    build_spool(tmp_path).put(BOOT, RESULT)
    lab = build_lab()
    lab.broken.add(BOOT)
    with running_server(lab) as server:
        spool_at(tmp_path, 2e9).upload(build_client(server), patience=600)
        lab.broken.clear()
        assert len(spool_at(tmp_path, 0.0).upload(build_client(server), patience=600)) == 1


def test_results_keep_their_order_when_the_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = build_spool(tmp_path)
    spool.put(f"attempts/{KEY}/boots/0", RESULT)
    monkeypatch.setattr("tidemark_agent.wire.spool.time.time_ns", lambda: 0)
    for position in (1, 2):
        spool.put(f"attempts/{KEY}/boots/{position}", RESULT)
    assert [item.path[-1] for item in spool.items()] == ["0", "1", "2"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"failures": "x", "next_at": 1, "reason": ""}', "\xff"])
def test_delay_that_cannot_be_read_is_none(tmp_path: Path, content: str) -> None:
    spool = build_spool(tmp_path)
    spool.put(BOOT, RESULT)
    (item,) = spool.items()
    item.file.with_suffix(".later").write_text(content)
    assert delay_of(item.file) is None
    assert put_off(item.file, "again").failures == 1


def test_revoked_token_costs_one_call_for_many_results(tmp_path: Path) -> None:
    spool = build_spool(tmp_path)
    for position in range(5):
        spool.put(f"attempts/{KEY}/boots/{position}", RESULT)
    lab = build_lab()
    with running_server(lab) as server:
        assert spool.upload(build_client(server, "tm_other"), patience=5) == []
    assert len(lab.calls) == 1
    assert len(list(spool.items())) == 5


def fill_disk(monkeypatch: pytest.MonkeyPatch, state: Path, room: int) -> None:
    """From now on no more than `room` bytes more can be written below `state`, unless files there are deleted."""
    limit = used(state) + room
    write = Path.write_bytes

    def write_bytes(path: Path, data: Any) -> int:
        if used(state) + len(data) > limit:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, data)

    def allocate(descriptor: int, start: int, size: int) -> None:
        if used(state) + size > limit:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.truncate(descriptor, start + size)

    monkeypatch.setattr("pathlib.Path.write_bytes", write_bytes)
    monkeypatch.setattr("tidemark_agent.system.disk.os.posix_fallocate", allocate)


def used(state: Path) -> int:
    return sum(path.stat().st_size for path in state.rglob("*") if path.is_file())


def test_result_made_when_the_disk_is_full_is_kept_in_the_reserve_and_ends_the_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = build_spool(tmp_path)
    assert spool.trouble() == ""
    fill_disk(monkeypatch, tmp_path, 10)
    spool.put(BOOT, {**RESULT, "console_tail": "x" * 100_000})
    assert "no disk space left" in spool.trouble()
    lab = build_lab()
    with running_server(lab) as server:
        assert [item.path for item in spool.upload(build_client(server), patience=5)] == [BOOT]
    assert spool.trouble() == ""
    assert lab.boots["session-7", 0]["console_tail"] == "x" * 100_000


def test_disk_that_was_full_from_the_start_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = build_spool(tmp_path)
    fill_disk(monkeypatch, tmp_path, 10)
    assert "no disk space left" in spool.trouble()
    with pytest.raises(OSError, match="No space"):
        spool.put(BOOT, RESULT)
    assert names(tmp_path, "*") == ["artifacts", "refused"]


def test_list_says_what_waits_and_what_was_refused_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_agent.wire.spool._MOST_FAILURES", 1)
    spool = build_spool(tmp_path)
    spool.put("attempts/session-9-1/boots/0", RESULT)
    spool.put("attempts/session-9-1/\x1b[2Jboots/1", RESULT)
    spool.put(BOOT, RESULT)
    (tmp_path / "spool/0-torn.json").write_text("{")
    lab = build_lab()
    lab.broken.add(BOOT)
    with running_server(lab) as server:
        spool.upload(build_client(server), patience=5)
    assert print_spool(tmp_path / "spool") == 0
    said = capsys.readouterr().out
    assert said.startswith("1 waiting, 3 refused")
    assert f"waiting  {BOOT}, " in said
    assert "failed 1 times, next try in 1 min: POST" in said
    assert "attempts/session-9-1/boots/0" in said
    assert "404 not-found" in said
    assert "attempts/session-9-1/?[2Jboots/1" in said
    assert "0-torn.json (cannot be read): unreadable" in said
    assert "\x1b" not in said


def test_empty_spool_is_listed_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spool", "--state-dir", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out.startswith("0 waiting, 0 refused")


def test_uploaded_and_refused_results_leave_no_trace_of_their_delays(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", owner=tmp_path / "token", log=Log(io.StringIO()), clock=lambda: time.time() + DAY)
    spool.put("attempts/session-9-1/boots/0", RESULT)
    (item,) = spool.items()
    put_off(item.file, "broken")
    assert json.loads(item.file.with_suffix(".later").read_text())["failures"] == 1
    with running_server(Lab()) as server:
        spool.upload(build_client(server), patience=5)
    assert names(tmp_path, "*.later") == []
    assert len(names(tmp_path, "refused/*.json")) == 1
