"""The spool: results survive crashes, refusals and servers that are away."""

import hashlib
import io
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.errors import UnreachableError
from tidemark_agent.log import Log
from tidemark_agent.run import Settings, Worker
from tidemark_agent.wire.client import Client
from tidemark_agent.wire.spool import Spool

from tests.agent.fake_server import TOKEN, Lab, running_server

KEY = "session-7-1"
BOOT = f"attempts/{KEY}/boots/0"
RESULT: dict[str, Any] = {"outcome": "measured", "reason": ""}


def quiet() -> Log:
    return Log(io.StringIO())


def build_spool(state: Path, owner: str = "token") -> Spool:
    return Spool(state / "spool", owner=state / owner, log=quiet())


def build_client(server: str, token: str = TOKEN) -> Client:
    return Client(server=server, token=lambda: token, agent="agent-1", log=quiet(), stop=threading.Event())


def build_lab() -> Lab:
    return Lab(assignments={KEY: {"kind": "session", "session": {"boots": []}}})


def test_result_of_an_agent_that_died_is_sent_by_the_next(tmp_path: Path) -> None:
    build_spool(tmp_path).put(BOOT, RESULT)
    lab = build_lab()
    with running_server(lab) as server:
        sent = build_spool(tmp_path).upload(build_client(server), patience=5)
    assert [item.path for item in sent] == [BOOT]
    assert lab.boots[("session-7", 0)]["outcome"] == "measured"
    assert list((tmp_path / "spool").glob("*.json")) == []


def test_result_stays_while_the_server_is_away(tmp_path: Path) -> None:
    spool = build_spool(tmp_path)
    spool.put(BOOT, RESULT)
    with pytest.raises(UnreachableError):
        spool.upload(build_client("http://127.0.0.1:9"), patience=0)
    assert [item.path for item in spool.items()] == [BOOT]


def test_refused_result_is_put_aside_with_its_reason(tmp_path: Path) -> None:
    spool = build_spool(tmp_path)
    spool.put("attempts/session-9-1/boots/0", RESULT)
    spool.put(BOOT, RESULT)
    lab = build_lab()
    with running_server(lab) as server:
        sent = spool.upload(build_client(server), patience=5)
    assert [item.path for item in sent] == [BOOT]
    refused = sorted((tmp_path / "spool/refused").iterdir())
    assert [path.suffix for path in refused] == [".json", ".reason"]
    assert "404 not-found" in refused[1].read_text()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"owner": 1}', '{"owner": "x", "path": "p", "body": {}, "artifacts": ["../etc"]}']
)
def test_unreadable_file_is_put_aside_and_the_rest_goes_on(tmp_path: Path, content: str) -> None:
    spool = build_spool(tmp_path)
    (tmp_path / "spool/00000000000000000001-bad.json").write_text(content)
    spool.put(BOOT, RESULT)
    assert [item.path for item in spool.items()] == [BOOT]
    assert (tmp_path / "spool/refused/00000000000000000001-bad.reason").read_text().startswith("unreadable")


def test_half_written_file_is_not_a_result(tmp_path: Path) -> None:
    spool = build_spool(tmp_path)
    (tmp_path / "spool/1.json.abcd.partial").write_text(json.dumps({"owner": "x"}))
    assert list(spool.items()) == []


def test_results_leave_in_the_order_they_were_made(tmp_path: Path) -> None:
    spool = build_spool(tmp_path)
    for position in range(12):
        spool.put(f"attempts/{KEY}/boots/{position}", RESULT)
    assert [item.path for item in spool.items()] == [f"attempts/{KEY}/boots/{n}" for n in range(12)]


def test_one_state_directory_keeps_the_results_of_two_machines_apart(tmp_path: Path) -> None:
    build_spool(tmp_path, "token-a").put(BOOT, RESULT)
    assert list(build_spool(tmp_path, "token-b").items()) == []
    assert len(list(build_spool(tmp_path, "token-a").items())) == 1


def test_artifacts_go_before_their_result_and_are_then_dropped(tmp_path: Path) -> None:
    (tmp_path / "bzImage").write_bytes(b"kernel")
    spool = build_spool(tmp_path)
    sha256, size = spool.put_artifact(tmp_path / "bzImage")
    spool.put("attempts/build-1-1/build", {"outcome": "built"}, artifacts=(sha256,))
    lab = Lab(assignments={"build-1-1": {}})
    with running_server(lab) as server:
        spool.upload(build_client(server), patience=5)
    assert size == 6
    assert lab.artifacts == {sha256: b"kernel"}
    assert [method for method, _ in lab.calls] == ["PUT", "POST"]
    assert list((tmp_path / "spool/artifacts").iterdir()) == []


def test_artifact_that_another_result_needs_is_kept(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"log")
    spool = build_spool(tmp_path)
    sha256, _ = spool.put_artifact(tmp_path / "log")
    spool.put("attempts/build-1-1/build", {}, artifacts=(sha256,))
    build_spool(tmp_path, "other").put("attempts/build-2-1/build", {}, artifacts=(sha256,))
    with running_server(Lab(assignments={"build-1-1": {}})) as server:
        spool.upload(build_client(server), patience=5)
    assert (tmp_path / "spool/artifacts" / sha256).exists()


def test_result_on_which_the_server_breaks_waits_and_the_next_one_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_agent.wire.spool._MOST_FAILURES", 1)
    spool = build_spool(tmp_path)
    bad = f"attempts/{KEY}/boots/1"
    spool.put(bad, RESULT)
    spool.put(BOOT, RESULT)
    lab = build_lab()
    lab.broken.add(bad)
    with running_server(lab) as server:
        assert [item.path for item in spool.upload(build_client(server), patience=600)] == [BOOT]
        assert [item.path for item in spool.items()] == [bad]
        lab.broken.clear()
        assert spool.upload(build_client(server), patience=600) == []
        later = Spool(tmp_path / "spool", owner=tmp_path / "token", log=quiet(), clock=lambda: time.time() + 61)
        assert [item.path for item in later.upload(build_client(server), patience=600)] == [bad]
    assert [path.name for path in (tmp_path / "spool").glob("*.later")] == []


def test_results_that_were_put_off_are_tried_before_something_new_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_agent.wire.spool._MOST_FAILURES", 1)
    spool = build_spool(tmp_path)
    spool.put(BOOT, RESULT)
    lab = build_lab()
    lab.broken.add(BOOT)
    with running_server(lab) as server:
        assert spool.upload(build_client(server), patience=600) == []
        lab.broken.clear()
        assert spool.upload(build_client(server), patience=600) == []
        assert [item.path for item in spool.upload(build_client(server), patience=600, all_at_once=True)] == [BOOT]


@pytest.mark.parametrize("status", [401, 403])
def test_token_that_is_not_taken_refuses_no_result(tmp_path: Path, status: int) -> None:
    spool = build_spool(tmp_path)
    spool.put(BOOT, RESULT)
    lab = build_lab()
    lab.refusal = (status, "token")
    with running_server(lab) as server:
        assert spool.upload(build_client(server), patience=5) == []
        assert [item.path for item in spool.items()] == [BOOT]
        lab.refusal = None
        assert len(spool.upload(build_client(server), patience=5)) == 1
    assert list((tmp_path / "spool/refused").iterdir()) == []


def test_machine_goes_on_to_work_with_a_result_that_cannot_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_agent.wire.spool._MOST_FAILURES", 1)
    spool = build_spool(tmp_path)
    spool.put("attempts/session-3-1/boots/0", RESULT)
    lab = build_lab()
    lab.broken.add("attempts/session-3-1/boots/0")
    lab.holders[KEY] = "somebody"
    settings = Settings(server="", token_file=tmp_path / "token", state=tmp_path)
    with running_server(lab) as server:
        client = build_client(server)
        worker = Worker(key=KEY, settings=settings, client=client, spool=spool, log=quiet(), stop=threading.Event())
        worker.work()
    assert [path.rpartition("/")[2] for _, path in lab.calls] == ["0", "claim"]


def test_artifact_is_named_after_the_bytes_that_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "bzImage"
    source.write_bytes(b"first")

    def copy_late(source: Path, target: Path) -> None:
        source.write_bytes(b"second")
        target.write_bytes(source.read_bytes())

    monkeypatch.setattr("tidemark_agent.wire.spool.shutil.copyfile", copy_late)
    sha256, size = build_spool(tmp_path).put_artifact(source)
    kept = (tmp_path / "spool/artifacts" / sha256).read_bytes()
    assert (hashlib.sha256(kept).hexdigest(), len(kept)) == (sha256, size)


def test_only_old_artifacts_that_no_result_needs_are_forgotten(tmp_path: Path) -> None:
    spool = build_spool(tmp_path)
    names = {}
    for word in ("needed", "orphan", "young"):
        (tmp_path / word).write_text(word)
        names[word], _ = spool.put_artifact(tmp_path / word)
    build_spool(tmp_path, "other").put("attempts/build-2-1/build", {}, artifacts=(names["needed"],))
    two_days_ago = time.time() - 2 * 24 * 3600
    for word in ("needed", "orphan"):
        os.utime(tmp_path / "spool/artifacts" / names[word], (two_days_ago, two_days_ago))
    with running_server(build_lab()) as server:
        build_spool(tmp_path).upload(build_client(server), patience=5)
        assert (tmp_path / "spool/artifacts" / names["orphan"]).exists()  # Its result may still come.
        spool.put(BOOT, RESULT)
        build_spool(tmp_path).upload(build_client(server), patience=5)
    left = {path.name for path in (tmp_path / "spool/artifacts").iterdir()}
    assert left == {names["needed"], names["young"]}
