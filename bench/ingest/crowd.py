"""Many agents hand in results at once while processes that answer are killed; each value has to be there, once.

    python -m bench.ingest --crowd [--agents 20] [--boots 32] [--every 10]

An agent sends a result until it is answered, as agents do, and now and then once more. Fails where a value is missing,
there twice, or not the one that was sent.
"""

import argparse
import http.client
import json
import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import numpy as np
from django.db import close_old_connections

from bench.api.asking import web
from bench.ingest.uploads import PAYLOADS, Upload, fill, issue_agent_token, uploads
from bench.processes import family
from server.results.models import Measurement

_TYPICAL = PAYLOADS[0]
_VALUES_OF_A_BOOT = 2 * _TYPICAL.cases * 4
_AGAIN = 0.3
_PAUSE, _PATIENCE = 0.05, 30.0


@dataclass
class Agent:
    token: str
    uploads: Sequence[Upload]
    tries: Counter[str] = field(default_factory=Counter)

    def send_all(self, port: int, seed: int) -> None:
        noise = np.random.default_rng(seed)
        for upload in self.uploads:
            while not self._is_answered(port, upload):
                time.sleep(_PAUSE)
            while noise.random() < _AGAIN:
                self._is_answered(port, upload)

    def _is_answered(self, port: int, upload: Upload) -> bool:
        headers = {
            "Authorization": f"Bearer {self.token}", "Content-Encoding": "gzip", "Content-Type": "application/json"
        }  # fmt: skip
        connected = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
        try:
            connected.request("POST", upload.path, upload.body, headers)
            answer = connected.getresponse()
            told = answer.read()
        except (OSError, http.client.HTTPException):
            self.tries["lost"] += 1
            return False
        finally:
            connected.close()
        if answer.status != HTTPStatus.OK:
            self.tries[str(answer.status)] += 1
            return False
        self.tries["stored" if json.loads(told)["stored"] else "there already"] += 1
        return True


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.ingest --crowd")
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--boots", type=int, default=32, help="of each agent, of 480 values")
    parser.add_argument(
        "--every", type=float, default=10.0, help="seconds between two kills; one that answers takes some to begin"
    )
    return parser.parse_args(arguments)


def main(*arguments: str) -> None:
    chosen = options(arguments)
    logging.disable(logging.CRITICAL)
    fill()
    noise = np.random.default_rng(11)
    agents = [
        Agent(issue_agent_token(name), list(uploads(_TYPICAL, chosen.boots * _VALUES_OF_A_BOOT, noise, name)))
        for name in (f"measured-{number}" for number in range(chosen.agents))
    ]
    begun = time.monotonic()
    with web() as served, _killing(served.pid, chosen.every) as killed, ThreadPoolExecutor(chosen.agents) as pool:
        for done in [pool.submit(agent.send_all, served.port, seed) for seed, agent in enumerate(agents)]:
            done.result()
    seconds = time.monotonic() - begun
    tries = sum((agent.tries for agent in agents), Counter[str]())
    wrong, values = _compared([upload for agent in agents for upload in agent.uploads])
    told = ", ".join(f"{count} {name}" for name, count in sorted(tries.items()))
    print(f"{chosen.agents} agents, {values} values in {seconds:.0f} s, {len(killed)} processes killed: {told}")
    print("\n".join(f"FAIL {one}" for one in wrong) or "each value is there, once")
    if wrong or not killed:
        raise SystemExit(1)


@contextmanager
def _killing(server: int, every: float) -> Iterator[list[int]]:
    """A process that answers is killed every so often; all of them, so far."""
    over, killed = threading.Event(), list[int]()

    def kill() -> None:
        while not over.wait(every):
            working = [pid for pid, depth in family(server) if depth == 1]
            if working:
                killed.append(working[len(killed) % len(working)])
                with suppress(ProcessLookupError):
                    os.kill(killed[-1], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def _compared(sent: Sequence[Upload]) -> tuple[list[str], int]:
    """What is wrong with what is stored, at most ten sentences; and how many values are there."""
    close_old_connections()
    wanted = {column[:3]: column[3] for upload in sent for column in upload.columns}
    found, wrong, values = Counter[tuple[int, ...]](), list[str](), 0
    rows: Any = Measurement.objects.order_by().values_list("boot", "case", "metric", "values")
    for boot, case, metric, stored in rows.iterator():
        cell = (boot, case, metric)
        found[cell] += 1
        values += len(stored)
        if wanted.get(cell) != stored:
            wrong.append(f"boot {boot}, case {case}, metric {metric}: other values than were sent")
    wrong += [f"{cell}: {found[cell]} times" for cell in wanted if found[cell] != 1]
    return wrong[:10], values
