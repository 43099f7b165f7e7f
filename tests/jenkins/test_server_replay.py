"""The test server answers as the recorded controller did, in each situation that it can be brought into.

Not played, and why: agents' own connections and agent.jar (the server is its agents), monitor data of nodes, the texts
of HTML pages, tokens made by their owners (/me/descriptorByName), "Finished waiting" (an instant), group headers.
"""

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.jenkins.replay import RECORDINGS, Replay, call
from tests.jenkins.server import JenkinsServer
from tests.jenkins.server.jobs import make
from tests.jenkins.server.server import QUICK

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recordings are not beside this repository")
_STEP = "sleep 0.03"


@pytest.fixture
def server() -> Iterator[JenkinsServer]:
    """The recorded nodes and job; a step of the job is 30 ms instead of a second."""
    with JenkinsServer(timing=replace(QUICK, quiet_period=5)) as made:
        made.add_node("zen3-01", "avx2 x86_64 bench zen3")
        made.add_node("zen5-01", "x86_64 bench zen5")
        made.add_node("n1-01", "aarch64 bench neoverse-n1", connected=False)
        add_job(made, "bench-zen3", "zen3&&bench")
        yield made


def config(label: str) -> str:
    body: str = json.loads((RECORDINGS / "create-job.json").read_text())["exchanges"][0]["request"]["body"]
    return body.replace("sleep 1", _STEP).replace("zen3&amp;&amp;bench", label.replace("&", "&amp;"))


def add_job(server: JenkinsServer, name: str, label: str, *, concurrent: bool = True) -> None:
    xml = config(label).replace("<concurrentBuild>true", f"<concurrentBuild>{str(concurrent).lower()}")
    server.controller.jobs[name] = make(server.controller, name, xml)


def count_from(server: JenkinsServer, *, item: int, build: int, job: str = "bench-zen3") -> None:
    """The next queue item and build get the recorded numbers."""
    with server.controller.lock:
        server.controller.queue.next_id = item
        server.job(job).next_number = build


def ended(server: JenkinsServer, key: str) -> None:
    server.wait_for(lambda: server.builds_of(key) and not server.builds_of(key)[-1].building)


def begun(server: JenkinsServer, key: str, text: bytes = b"step 1") -> None:
    server.wait_for(lambda: server.builds_of(key) and text in server.builds_of(key)[-1].console.raw)


def workspace(server: JenkinsServer) -> Path:
    return Path(server.node("zen3-01").remote_fs) / "workspace" / "bench-zen3"


def trigger(
    server: JenkinsServer, key: str, *, seconds: int = 1, command: str = "true", job: str = "bench-zen3"
) -> None:
    server.controller.queue.add(
        server.job(job),
        {"RUN_ID": key, "COMMAND": command, "SECONDS_TO_RUN": str(seconds), "KIND": "bench"},
        "dispatcher",
        0,
    )


def test_triggers_are_accepted_folded_and_refused(server: JenkinsServer) -> None:
    count_from(server, item=3, build=3)
    Replay(server, "trigger").same(0, 1, 2, 3, 4)


def test_queue_items_wait_and_leave(server: JenkinsServer) -> None:
    count_from(server, item=3, build=3)
    Replay(server, "trigger").same(0, 1, 2, 3)
    begun(server, "run-0001")
    Replay(server, "queue").same(0, 1, 2, 4)


def test_a_running_build_and_its_log(server: JenkinsServer) -> None:
    count_from(server, item=3, build=3)
    server.node("zen3-01").environment["BASH_ENV"] = "/dev/null"
    server.job("bench-zen3").scripts = [server.job("bench-zen3").scripts[0].replace(_STEP, "sleep 0.2")]
    trigger(server, "run-0001", seconds=8, command="uname -m")
    begun(server, "run-0001")
    replay = Replay(server, "running")
    replay.same(0, 3)
    whole = replay.send(1)
    size = int(whole.headers["X-Text-Size"])
    assert whole.headers["X-More-Data"] == "true"
    assert len(whole.body) == size + whole.body.count(b"\n")
    begun(server, "run-0001", b"step 3")
    piece = call(
        server,
        "GET",
        f"/job/bench-zen3/3/logText/progressiveText?start={size}",
        headers={"Authorization": login(server)},
    )
    assert piece.body.startswith(b"step ")
    assert b"Started" not in piece.body


def login(server: JenkinsServer) -> str:
    return f"Basic {base64.b64encode(f'{server.user}:{server.token}'.encode()).decode()}"


def test_a_finished_build_its_log_and_artifacts(server: JenkinsServer) -> None:
    count_from(server, item=3, build=3)
    trigger(server, "run-0001", seconds=8, command="uname -m")
    ended(server, "run-0001")
    replay = Replay(server, "success")
    replay.same(0, 1, 2, 4, 5, 6)
    rest = replay.send(3)
    assert "X-More-Data" not in rest.headers


def test_a_failing_program(server: JenkinsServer) -> None:
    count_from(server, item=6, build=6)
    replay = Replay(server, "failure")
    replay.same(0)
    ended(server, "run-0005")
    replay.same(1, 2)


def test_items_wait_for_a_busy_machine(server: JenkinsServer) -> None:
    count_from(server, item=7, build=7)
    trigger(server, "w1", seconds=100)
    begun(server, "w1")
    trigger(server, "w2")
    trigger(server, "w3")
    time.sleep(0.05)
    Replay(server, "queue-waiting-executor").same(0, 1, 2, 3)


def test_cancel_and_stop(server: JenkinsServer) -> None:
    count_from(server, item=8, build=8)
    trigger(server, "busy", seconds=100)
    begun(server, "busy")
    trigger(server, "w3")
    replay = Replay(server, "aborted")
    replay.same(0, 1, 2)
    server.controller.stop(server.builds_of("busy")[0], "dispatcher")
    ended(server, "busy")
    replay.same(3)
    server.wait_for((workspace(server) / "out" / "result.json").exists)
    replay.same(4, 5, 6)
    ended(server, "abort-me")
    replay.same(7, 8, 9)


def test_a_lost_agent_fails_its_build_and_the_next_one_runs(server: JenkinsServer) -> None:
    count_from(server, item=11, build=10)
    replay = Replay(server, "agent-lost")
    replay.same(0)
    begun(server, "lost-1", b"step 3")
    server.kill_agent("zen3-01")
    ended(server, "lost-1")
    replay.same(1, 3, 4)
    time.sleep(0.05)
    replay.same(5)
    server.connect("zen3-01")
    ended(server, "lost-1-retry")
    replay.same(6, 7)
    assert b"Backing channel 'zen3-01' is disconnected" in replay.send(2).body


def test_credentials_that_are_refused(server: JenkinsServer) -> None:
    replay = Replay(server, "bad-credentials-401")
    replay.same(0, 1, 2, secret="wrong")
    replay.same(3, 4)


def test_a_password_needs_a_crumb_of_its_session(server: JenkinsServer) -> None:
    replay = Replay(server, "crumb-missing-403")
    password = server.users.by_name["dispatcher"].password
    replay.same(0, secret=password)
    replay.same(1, secret=password)
    answer = replay.send(1, secret=password)
    crumb = {"Jenkins-Crumb": json.loads(answer.body)["crumb"]}
    cookie = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}
    replay.same(2, secret=password, headers={**crumb, **cookie})
    replay.same(3, secret=password, headers=crumb)
    replay.same(4)


def test_missing_permissions_are_named(server: JenkinsServer) -> None:
    Replay(server, "forbidden-403").same(0, 1, 2, 3, 4)


def test_what_does_not_exist(server: JenkinsServer) -> None:
    Replay(server, "job-missing-404").same(0, 1, 2, 3, 4, 5, 6, 7)


def test_jobs_are_made_and_changed() -> None:
    with JenkinsServer() as server:
        Replay(server, "create-job").same(0, 1, 2, 3, 4)


def test_nodes_are_made_and_read() -> None:
    with JenkinsServer() as server:
        replay = Replay(server, "create-node")
        replay.same(0, 1, 2, 4, 5, 6, 7)
        assert server.node("zen3-01").secret.encode() in replay.send(3).body


def test_labels_without_a_node_that_is_there(server: JenkinsServer) -> None:
    server.add_node("n1-02", "aarch64 bench neoverse-n1", connected=False)
    add_job(server, "nolabel-job", "no-such-arch")
    add_job(server, "bench-n1", "neoverse-n1&&bench")
    count_from(server, item=1195, build=1)
    replay = Replay(server, "no-matching-label")
    replay.same(0)
    time.sleep(0.05)
    replay.same(1, 2)
    time.sleep(0.05)
    replay.same(3)
    server.remove_node("n1-02")
    replay.same(4, 5, 6, 7, 8)


def test_nodes_marked_offline_disconnected_and_back(server: JenkinsServer) -> None:
    count_from(server, item=17, build=17)
    trigger(server, "busy", seconds=10)
    begun(server, "busy")
    replay = Replay(server, "offline")
    replay.same(0, 1, 2)
    time.sleep(0.05)
    replay.same(3)
    ended(server, "busy")
    replay.same(4, 5, 6)
    begun(server, "off-1")
    replay.same(7)
    ended(server, "off-1")
    replay.same(8, 9)
    server.wait_for(lambda: server.node("zen3-01").connected)
    replay.same(10)
    add_job(server, "bench-zen5", "zen5")
    trigger(server, "long", seconds=100, job="bench-zen5")
    begun(server, "long")
    replay.same(11)


def test_a_planned_reboot_between_two_builds(server: JenkinsServer) -> None:
    count_from(server, item=1193, build=79)
    trigger(server, "install", seconds=8)
    begun(server, "install")
    replay = Replay(server, "reboot-cycle")
    replay.same(0, 1, 2)
    time.sleep(0.05)
    replay.same(3)
    ended(server, "install")
    replay.same(4, 5)
    server.kill_agent("zen3-01")
    replay.same(6)
    server.connect("zen3-01")
    replay.same(7, 8)
    ended(server, "reboot-run")
    replay.same(9)


def test_blocked_quieting_down_and_reserved(server: JenkinsServer) -> None:
    for name, label in (("any-job", ""), ("serial-job", "zen5")):
        add_job(server, name, label, concurrent=name != "serial-job")
    count_from(server, item=1197, build=2, job="serial-job")
    replay = Replay(server, "queue-other-reasons")
    replay.same(0)
    time.sleep(0.05)
    replay.same(1)
    trigger(server, "s0", seconds=0, job="serial-job")
    ended(server, "s0")
    count_from(server, item=1198, build=3, job="serial-job")
    trigger(server, "s1", seconds=30, job="serial-job")
    begun(server, "s1")
    replay.same(2)
    time.sleep(0.05)
    replay.same(3, 4, 5)
    time.sleep(0.05)
    replay.same(6, 7, 8)


def test_many_builds_at_once_and_a_search_by_key(server: JenkinsServer) -> None:
    count_from(server, item=6, build=6)
    trigger(server, "run-0005", command="exit 3")
    ended(server, "run-0005")
    replay = Replay(server, "poll-many")
    replay.same(3)
    assert replay.send(4).body.decode() == replay.exchanges[4]["response"]["body"]


def test_a_killed_controller_loses_its_queue_and_gives_ids_out_again(server: JenkinsServer) -> None:
    count_from(server, item=1166, build=61)
    server.save_queue()
    trigger(server, "runs", seconds=100)
    begun(server, "runs")
    trigger(server, "ctl-q2")
    server.restart(kill=True)
    replay = Replay(server, "controller-restart")
    replay.same(0, 1, 2, 3, 4)
    trigger(server, "another")
    assert server.controller.queue.find(1166) is not None
    ended(server, "another")
    assert server.builds_of("another")[0].number == 62


def test_a_stopped_controller_keeps_its_queue_but_not_what_ran(server: JenkinsServer) -> None:
    add_job(server, "nolabel-job", "no-such-arch")
    count_from(server, item=1166, build=62)
    trigger(server, "ctl-SIGTERM-q1", seconds=100)
    begun(server, "ctl-SIGTERM-q1")
    trigger(server, "ctl-SIGTERM-q2")
    trigger(server, "ctl-SIGTERM-q3", job="nolabel-job")
    before = server.controller.session
    server.restart(kill=False)
    replay = Replay(server, "controller-restart")
    replay.same(7, 8)
    ended(server, "ctl-SIGTERM-q2")
    replay.same(9, 10)
    assert server.controller.session != before
