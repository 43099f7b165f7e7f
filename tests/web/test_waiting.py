"""Requests that wait for work, at a real web process: none holds a thread, and work is told at once."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.lab import rounds
from server.lab.models import Asker
from tests.builders import build_machine, build_series, build_session
from tests.web.conftest import STANDSTILL, Web

BODY = {"agent": "agent-0001", "version": "0.2", "host": "desk", "safe": True}


class Host:
    def __init__(self, web: Web, name: str) -> None:
        self.web = web
        self.machine = build_machine(name)
        self.auth = f"Bearer {issue_token(name=name, scope=ApiToken.Scope.MACHINE, subject=name)}"

    def ask(self, wait: float, **said: Any) -> httpx2.Response:
        address, headers = f"{self.web.address}/api/v1/agent/work", {"Authorization": self.auth}
        body = {**BODY, "host": self.machine.name, "wait": wait, **said}
        return httpx2.post(address, json=body, headers=headers, timeout=STANDSTILL + wait)


@pytest.fixture(scope="module")
def pulling(launch: Any) -> Web:
    web: Web = launch(TIDEMARK_DISPATCHER="pull")
    return web


@pytest.fixture(autouse=True)
def _pull(settings: Any, transactional_db: None) -> None:
    settings.DISPATCHER = "pull"


def waiting(host: Host, wait: float, pool: ThreadPoolExecutor) -> "Future[httpx2.Response]":
    before = time.monotonic()
    asked = pool.submit(host.ask, wait)
    while not Asker.objects.filter(subject=host.machine.name).exists():
        assert time.monotonic() - before < STANDSTILL
        time.sleep(0.05)
    return asked


def test_request_waits_and_has_its_work_as_soon_as_it_lies_ready(pulling: Web) -> None:
    hosts = [Host(pulling, f"desk-{number}") for number in range(4)]
    with ThreadPoolExecutor(8) as pool:
        asked = [waiting(host, 60, pool) for host in hosts]
        # Twice as many as there are threads wait, and nobody is kept from anything.
        assert pulling.get("/healthz").status_code == 200
        session = build_session(build_series(), hosts[2].machine)
        rounds.run_round()
        answer = asked[2].result(STANDSTILL).json()
        assert answer["key"] == session.attempts.get().key
        assert not any(one.done() for number, one in enumerate(asked) if number != 2)
        # A process that ends keeps nobody waiting, nor waits itself.
        pulling.process.terminate()
        told = [one.result(STANDSTILL).json() for number, one in enumerate(asked) if number != 2]
    assert {(one["key"], one["reason"]) for one in told} == {(None, "nothing waits for it")}


def test_request_ends_after_its_time_and_what_is_wrong_is_told_at_once(launch: Any) -> None:
    host = Host(launch(TIDEMARK_DISPATCHER="pull"), "desk-9")
    assert host.ask(0.5).json()["reason"] == "nothing waits for it"
    assert host.ask(60, keys=["no key"]).status_code == 400
    assert host.ask(60, host="another").json()["code"] == "two-agents"
    host.machine.enabled = False
    host.machine.save()
    assert host.ask(60).json()["again_in"] == 60.0
