"""The test server's faults do what was measured with a real controller, or what a broken wire does."""

import base64
import http.client
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from tests.jenkins.replay import Answered, call
from tests.jenkins.server import JenkinsServer
from tests.jenkins.server.server import QUICK


@pytest.fixture
def server() -> Iterator[JenkinsServer]:
    with JenkinsServer() as made:
        made.add_node("zen3-01", "zen3")
        yield made


def ask(server: JenkinsServer, method: str, url: str) -> Answered:
    login = base64.b64encode(f"{server.user}:{server.token}".encode()).decode()
    return call(server, method, url, headers={"Authorization": f"Basic {login}"})


def run(server: JenkinsServer, script: str, key: str = "k-1") -> None:
    """Start a job with this script and wait until it has said `ready`."""
    if "job" not in server.controller.jobs:
        server.add_job("job", f"#!/bin/bash\n{script}\n", label="zen3-01")
    assert ask(server, "POST", f"/job/job/buildWithParameters?delay=0sec&RUN_ID={key}").status == 201
    server.wait_for(lambda: server.builds_of(key) and b"ready" in server.builds_of(key)[-1].console.raw)


def ended(server: JenkinsServer, key: str = "k-1") -> str:
    server.wait_for(lambda: not server.builds_of(key)[-1].building)
    return server.builds_of(key)[-1].result or ""


def is_alive(pid_file: Path) -> bool:
    """Whether that process runs; one that has died and waits for its parent does not."""
    try:
        status = Path(f"/proc/{int(pid_file.read_text())}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_what_a_killed_agent_had_started_lives_on_while_it_is_silent(server: JenkinsServer, tmp_path: Path) -> None:
    run(server, f"echo $$ > {tmp_path}/pid; echo ready; sleep 300")
    server.kill_agent("zen3-01")
    assert ended(server) == "FAILURE"
    assert is_alive(tmp_path / "pid")


def test_an_orphan_that_prints_dies(server: JenkinsServer, tmp_path: Path) -> None:
    run(server, f"echo $$ > {tmp_path}/pid; while echo ready; do sleep 0.05; done")
    server.kill_agent("zen3-01")
    server.wait_for(lambda: not is_alive(tmp_path / "pid"))


def test_a_stopped_program_that_ignores_sigterm_outlives_its_build(server: JenkinsServer, tmp_path: Path) -> None:
    run(server, f"trap '' TERM; echo $$ > {tmp_path}/pid; echo ready; while :; do sleep 0.05; done")
    assert ask(server, "POST", "/job/job/1/stop").status == 302
    assert ended(server) == "ABORTED"
    assert is_alive(tmp_path / "pid")


# Notes when it is told to end, and has a child without the build's environment that does the same.
FAMILY = """
import os, signal, subprocess, sys, time
name, folder = sys.argv[1:]
def note(*_):
    with open(f"{folder}/ended", "a") as file:
        print(name, file=file)
    sys.exit(1)
signal.signal(signal.SIGTERM, note)
if name == "parent":
    subprocess.Popen([sys.executable, "-S", __file__, "child", folder], env={})
    while not os.path.exists(f"{folder}/child"):
        time.sleep(0.01)
    print("ready", flush=True)
else:
    with open(f"{folder}/new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{folder}/new", f"{folder}/child")
time.sleep(300)
"""


def run_family(server: JenkinsServer, folder: Path) -> None:
    (folder / "family.py").write_text(FAMILY)
    run(server, f"exec {sys.executable} -S {folder}/family.py parent {folder}")


def ended_in_order(server: JenkinsServer, folder: Path) -> list[str]:
    told = folder / "ended"
    server.wait_for(lambda: told.exists() and len(told.read_text().split()) == 2)
    return told.read_text().split()


def test_child_of_a_stopped_build_is_gone_before_its_parent_is_told(server: JenkinsServer, tmp_path: Path) -> None:
    run_family(server, tmp_path)
    ask(server, "POST", "/job/job/1/stop")
    assert ended_in_order(server, tmp_path) == ["child", "parent"]
    assert ended(server) == "ABORTED"


@pytest.mark.parametrize("kill", [False, True])
def test_controller_that_goes_down_ends_what_its_builds_had_started(
    server: JenkinsServer, tmp_path: Path, *, kill: bool
) -> None:
    run_family(server, tmp_path)
    server.go_down(kill=kill)
    assert ended_in_order(server, tmp_path) == ["child", "parent"]
    server.come_up()
    assert (server.builds_of("k-1"), server.job("job").next_number) == ([], 2)


def test_job_that_is_deleted_takes_its_builds_along(server: JenkinsServer, tmp_path: Path) -> None:
    run_family(server, tmp_path)
    server.delete_job("job")
    assert ended_in_order(server, tmp_path) == ["child", "parent"]
    assert ask(server, "GET", "/job/job/1/api/json").status == 404


def test_children_are_ended_with_their_build_unless_they_hide(server: JenkinsServer, tmp_path: Path) -> None:
    hidden = f"BUILD_ID=dontKillMe bash -c 'echo $$ > {tmp_path}/hidden; exec sleep 300' &"
    run(server, f"sleep 300 & echo $! > {tmp_path}/child; {hidden} sleep 0.1; echo ready")
    assert ended(server) == "SUCCESS"
    server.wait_for(lambda: not is_alive(tmp_path / "child"))
    assert is_alive(tmp_path / "hidden")
    os.kill(int((tmp_path / "hidden").read_text()), 9)


def test_a_frozen_agents_build_ends_by_disconnecting_alone(server: JenkinsServer) -> None:
    run(server, "echo ready; sleep 300")
    server.freeze_agent("zen3-01")
    assert ask(server, "POST", "/job/job/1/stop").status == 302
    time.sleep(0.1)
    assert server.builds_of("k-1")[0].building
    assert ask(server, "POST", "/computer/zen3-01/doDisconnect").status == 302
    assert ended(server) == "FAILURE"


def test_an_agent_that_thaws_in_time_goes_on_with_its_build(server: JenkinsServer) -> None:
    run(server, "echo ready; sleep 0.2; echo done")
    server.freeze_agent("zen3-01", machine=True)
    time.sleep(0.3)
    assert server.builds_of("k-1")[0].building
    server.thaw("zen3-01")
    assert ended(server) == "SUCCESS"


def test_one_key_can_be_started_twice(server: JenkinsServer) -> None:
    run(server, "echo ready")
    server.start_twice("k-1")
    server.wait_for(lambda: len(server.builds_of("k-1")) == 2)


def test_an_edited_jobs_missing_parameter_vanishes_silently(server: JenkinsServer) -> None:
    server.add_job("job", label="zen3-01")
    server.edit_job("job", ("OTHER",))
    assert ask(server, "POST", "/job/job/buildWithParameters?delay=0sec&RUN_ID=k-1").status == 201
    server.wait_for(lambda: server.job("job").builds)
    assert server.job("job").builds[0].parameters == {"OTHER": ""}


def test_an_answer_can_be_lost_though_the_request_was_obeyed(server: JenkinsServer) -> None:
    server.add_job("job", label="nowhere")
    server.answer_with("lost", path="POST .*buildWithParameters", times=1)
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(server, "POST", "/job/job/buildWithParameters?delay=0sec&RUN_ID=k-1")
    assert server.waiting_keys() == ["k-1"]
    assert ask(server, "POST", "/job/job/buildWithParameters?delay=0sec&RUN_ID=k-1").status == 303


def test_wrong_answers(server: JenkinsServer) -> None:
    whole = json.loads(ask(server, "GET", "/api/json").body)
    server.answer_with("html", times=1)
    assert ask(server, "GET", "/api/json").headers["Content-Type"] == "text/html"
    server.answer_with("truncated", times=1)
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        json.loads(ask(server, "GET", "/api/json").body)
    server.answer_with("types", times=1)
    assert type(json.loads(ask(server, "GET", "/api/json").body)["jobs"]) is not type(whole["jobs"])
    server.answer_with("half", times=1)
    with pytest.raises(http.client.IncompleteRead):
        ask(server, "GET", "/api/json")
    server.answer_with("503", times=1)
    assert ask(server, "GET", "/api/json").status == 503
    assert json.loads(ask(server, "GET", "/api/json").body) == whole


def test_the_network_can_be_cut_and_comes_back_at_the_same_address(server: JenkinsServer) -> None:
    server.cut_network()
    with pytest.raises(OSError, match="refused"):
        ask(server, "GET", "/api/json")
    server.restore_network()
    assert ask(server, "GET", "/api/json").status == 200


def test_an_expired_token_is_refused_until_it_is_renewed(server: JenkinsServer) -> None:
    server.expire_token()
    assert ask(server, "GET", "/api/json").status == 401
    server.renew_token()
    assert ask(server, "GET", "/api/json").status == 200


def test_its_clock_can_be_wrong(server: JenkinsServer) -> None:
    server.skew_clock(-3600)
    date = parsedate_to_datetime(ask(server, "GET", "/api/json").headers["Date"])
    assert 3500 < time.time() - date.timestamp() < 3700


def test_why_an_item_waits_can_be_told_in_another_language(server: JenkinsServer) -> None:
    server.add_job("job", label="nowhere")
    ask(server, "POST", "/job/job/buildWithParameters?delay=0sec&RUN_ID=k-1")
    server.speak(lambda _why: "Kein Knoten")
    assert json.loads(ask(server, "GET", "/queue/api/json").body)["items"][0]["why"] == "Kein Knoten"


def test_an_item_that_left_the_queue_is_forgotten(server: JenkinsServer) -> None:
    run(server, "echo ready")
    assert ask(server, "GET", "/queue/item/1/api/json").status == 200
    server.controller.timing = replace(QUICK, left_item=0.1)
    server.wait_for(lambda: ask(server, "GET", "/queue/item/1/api/json").status == 404)
