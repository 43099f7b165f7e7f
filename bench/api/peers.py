"""The same boots, stored by Tidemark, SQUAD and LNT: CPU for each value, and what listing the results takes.

    python -m bench.api --peers [--values 20000]

Each peer runs in an environment of its own, on SQLite in one process, so all that it spends is seen; of Tidemark the
server of its database is counted as well. Fails where a value does not cost a tenth of what it costs a peer.
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import numpy as np
from django.conf import settings
from django.db import connection
from django.test import Client

from bench.api.asking import something_written
from bench.ingest.uploads import PAYLOADS, Payload, Upload, fill, issue_agent_token, send, uploads
from bench.kit import environment_of
from bench.processes import Seen, look
from bench.table import table
from server.lab.models import Boot

TIMES = 10.0
_HUNDRED_THOUSAND = 100_000
# A peer that takes longer than this for a few thousand values is left out of the table.
_LONGEST_SECONDS = 1200

# Both tell {"seconds": of CPU for all boots, "list_ms": of the second time that the results of one boot are asked for}.
_SQUAD = """
import json, os, subprocess, sys, time
# Its import fetches scripts for its pages, of which none is shown here.
subprocess.check_call = lambda *words, **more: 0
os.environ["DJANGO_SETTINGS_MODULE"] = "squad.settings"
import django
django.setup()
import logging
from django.core.management import call_command
from django.test import Client
from squad.core.models import Group
from squad.core.tasks import ReceiveTestRun
logging.disable(logging.CRITICAL)
call_command("migrate", verbosity=0)
receive = ReceiveTestRun(Group.objects.create(slug="group").projects.create(slug="project"))
boots = json.load(open(sys.argv[1]))
began = time.process_time()
for number, boot in enumerate(boots):
    told = json.dumps({"job_id": str(number)})
    receive(str(number), "machine", metadata_file=told, metrics_file=json.dumps(boot))
spent = time.process_time() - began
client, path = Client(HTTP_HOST="localhost"), "/api/testruns/1/metrics/?limit=500"
client.get(path)
began = time.perf_counter()
assert client.get(path).status_code == 200
print(json.dumps({"seconds": spent, "list_ms": 1000 * (time.perf_counter() - began)}))
"""
_LNT = """
import json, os, resource, subprocess, sys, time
boots = json.load(open(sys.argv[1]))
lnt = [os.path.join(os.path.dirname(sys.executable), "lnt")]
subprocess.run([*lnt, "create", "site"], check=True, stdout=subprocess.DEVNULL)
names = []
for number, boot in enumerate(boots):
    at = f"2026-11-01T{number // 60 % 24:02}:{number % 60:02}:00"
    run = {"start_time": at, "end_time": at, "llvm_project_revision": str(number + 1)}
    tests = [{"name": name, "execution_time": values} for name, values in boot.items()]
    names.append(f"{number}.json")
    with open(names[-1], "w") as file:
        json.dump({"format_version": "2", "machine": {"name": "machine"}, "run": run, "tests": tests}, file)
quiet = ["--no-email", "--no-report", "-q"]
def seconds(*files):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*lnt, "import", *quiet, "site", *files], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
# What starting it takes is told apart: the first boot is stored by a run of its own, twice.
started = seconds(names[0])
spent = seconds(*names) - started * (1 - 1 / len(names))
from lnt.server.ui.app import App
client, path = App.create_standalone("site").test_client(), "/api/db_default/v4/nts/samples?runid=1"
client.get(path)
began = time.perf_counter()
assert client.get(path).status_code == 200
print(json.dumps({"seconds": spent, "list_ms": 1000 * (time.perf_counter() - began)}))
"""


@dataclass(frozen=True)
class Peer:
    name: str
    package: str
    program: str


PEERS = (Peer("SQUAD", "squad==1.98", _SQUAD), Peer("LNT", "llvm-lnt==0.4.20", _LNT))


@dataclass(frozen=True)
class Spent:
    """CPU seconds for all values, and the milliseconds of listing one boot's."""

    seconds: float
    list_ms: float


def ours(payload: Payload, values: int, client: Client) -> tuple[Spent, list[Upload]]:
    """Of this process and of the database's for it; and what was sent."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        server = int(cursor.fetchone()[0])
    noise, sent, spent = np.random.default_rng(7), list[Upload](), 0.0
    send(client, next(uploads(payload, 1, noise)))
    for upload in uploads(payload, values, noise):
        before, begun = _cpu(server), time.process_time()
        send(client, upload)
        spent += time.process_time() - begun + _cpu(server) - before
        sent.append(upload)
    session = Boot.objects.get(pk=sent[0].columns[0][0]).session_id
    path = f"/api/v1/measurements/?session={session}&page_size={len(sent[0].columns)}"
    reader = Client()
    reader.get(path)
    # Peers keep no answer.
    something_written()
    begun = time.perf_counter()
    if reader.get(path).status_code != HTTPStatus.OK:
        raise SystemExit(f"{path} of {payload.name} boots cannot be read")
    return Spent(spent, 1000 * (time.perf_counter() - begun)), sent


def _cpu(pid: int) -> float:
    seen = dict[int, Seen]()
    look(pid, seen)
    return seen[pid].cpu_seconds if pid in seen else 0.0


def theirs(peer: Peer, boots: Sequence[Mapping[str, list[float]]]) -> Spent:
    python = environment_of(peer.package, ())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "boots.json").write_text(json.dumps(boots), encoding="utf-8")
        kept = f"ENGINE=django.db.backends.sqlite3:NAME={folder}/db.sqlite3"
        done = subprocess.run(
            [python, "-c", peer.program, "boots.json"],
            cwd=folder, env={"DATABASE": kept, "XDG_DATA_HOME": folder, "HOME": folder, "PATH": "/usr/bin:/bin"},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, timeout=_LONGEST_SECONDS,
        )  # fmt: skip
    told = json.loads(done.stdout.splitlines()[-1])
    return Spent(told["seconds"], told["list_ms"])


def _boot(upload: Upload) -> dict[str, list[float]]:
    return {f"bench/case-{case}.metric-{metric}": values for _, case, metric, values in upload.columns}


def main(*arguments: str) -> None:
    """Both payloads, turn by turn; fails where a peer is not ten times as dear."""
    parser = argparse.ArgumentParser(prog="python -m bench.api --peers")
    parser.add_argument("--values", type=int, default=20_000, help="of each payload")
    chosen = parser.parse_args(arguments)
    settings.ALLOWED_HOSTS = ["*"]
    logging.disable(logging.CRITICAL)
    fill()
    client = Client(headers={"Authorization": f"Bearer {issue_agent_token()}", "Content-Encoding": "gzip"})
    rows, failed = [], False
    for payload in PAYLOADS:
        own, sent = ours(payload, chosen.values, client)
        values, boots = sum(upload.values for upload in sent), [_boot(upload) for upload in sent]
        for name, spent in [("Tidemark", own), *((peer.name, theirs(peer, boots)) for peer in PEERS)]:
            times = spent.seconds / own.seconds
            holds = spent is own or times >= TIMES
            failed = failed or not holds
            figures = [f"{spent.seconds * _HUNDRED_THOUSAND / values:.2f}", f"{times:.1f}", f"{spent.list_ms:.1f}"]
            rows.append([f"{payload.name}: {name}", *figures, "pass" if holds else "FAIL"])
    head = ["", "CPU s for 100,000 values", "times Tidemark's", "ms to list one boot", ""]
    print(table(head, rows))
    sys.exit(1 if failed else 0)
