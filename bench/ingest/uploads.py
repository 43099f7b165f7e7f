"""Results of typical and of big boots through the real view, as their agents send them, until so many values are there.

A typical boot has 60 of the 400 cases there are, two metrics each and three to five values of a metric: some 480. A big
one has four columns of 5000 values. The values are random in all their digits, so nothing that is stored of them can be
made smaller.
"""

import argparse
import cProfile
import gzip
import json
import pstats
import time
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import numpy as np
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from bench.table import table
from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.lab.models import Attempt, AttemptState, Boot, SessionState
from server.lab.work import plan_boots
from server.results.models import Case, PackedValues
from server.web.process import post_worker_init
from tests.builders import build_attempt, build_case, build_machine, build_metric, build_session

_AGENT = "agent-of-the-bench"
_BENCHMARKS, _CASES_OF_EACH, _METRICS = 20, 20, ("time", "cycles")
# Boots of a session in the interleaved order; a session of more goes on as the next one.
_BOOTS_A_SIDE = 8
_MOST_QUERIES, _MOST_BYTES = 8, 25.0


@dataclass(frozen=True)
class Payload:
    """`cases` of so many values each, of each metric; `most_seconds` of CPU are the limit for 100,000 values."""

    name: str
    cases: int
    values: tuple[int, ...]
    most_seconds: float


PAYLOADS = (Payload("typical", 60, (3, 4, 5), 4.0), Payload("big", 2, (5000,), 0.8))


@dataclass(frozen=True)
class Upload:
    path: str
    body: bytes
    # As COPY takes them: (boot, case, metric, values).
    columns: tuple[tuple[int, int, int, list[float]], ...]

    @property
    def values(self) -> int:
        return sum(len(column[-1]) for column in self.columns)


@dataclass(frozen=True)
class Cost:
    """Of one payload; CPU seconds and bytes are of all its values."""

    values: int
    uploads: int
    queries: tuple[int, ...]
    seconds: float
    floor_seconds: float
    bytes: int
    bytes_with_boots: int


def fill() -> None:
    """The cases that a lab has: what a boot measures is found among them."""
    for number in range(_BENCHMARKS):
        for metric in _METRICS:
            build_metric(metric, f"bench-{number}")
        for case in range(_CASES_OF_EACH):
            build_case(f"case-{case}", f"bench-{number}", runs=5000, warmup=1)


def uploads(payload: Payload, values: int, noise: np.random.Generator, name: str = "measured") -> Iterator[Upload]:
    """Of as many running sessions as it takes, one after the other on the machine of that name."""
    machine = build_machine(name, virtual=False)
    cases = list(Case.objects.select_related("benchmark").order_by("pk")[: payload.cases])
    metrics = {name: [build_metric(name, case.benchmark.name).pk for case in cases] for name in _METRICS}
    sent = 0
    while sent < values:
        Attempt.objects.filter(machine=machine).update(state=AttemptState.DONE)
        session = build_session(machine=machine, state=SessionState.RUNNING, boots_per_side=0, looks=[_BOOTS_A_SIDE])
        plan_boots(session, [Boot.Arm.BASE, Boot.Arm.PATCHED] * _BOOTS_A_SIDE)
        attempt = build_attempt(session, agent=_AGENT)
        for boot in session.boots.select_related("session__base_build", "session__patched_build"):
            columns = tuple(
                (boot.pk, case.pk, metrics[metric][place], (1e4 * noise.lognormal(0, 0.05, number)).tolist())
                for place, case in enumerate(cases)
                for metric in _METRICS
                for number in noise.choice(payload.values, 1)
            )
            body = json.dumps(_result(boot, columns, cases)).encode()
            path = f"/api/v1/agent/attempts/{attempt.key}/boots/{boot.position}"
            upload = Upload(path, gzip.compress(body, 6), columns)
            sent += upload.values
            yield upload
            if sent >= values:
                return


def _result(boot: Boot, columns: tuple[tuple[int, int, int, list[float]], ...], cases: list[Case]) -> dict[str, Any]:
    build = boot.session.base_build if boot.arm == Boot.Arm.BASE else boot.session.patched_build
    names = [(case, metric) for case in cases for metric in _METRICS]
    measurements = [
        {
            "benchmark": case.benchmark.name, "version": case.benchmark.version, "case": case.name, "metric": metric,
            "core_type": "all", "values": column[-1], "warmup": 1,
        }
        for (case, metric), column in zip(names, columns, strict=True)
    ]  # fmt: skip
    facts = {
        "uarch": "haswell", "vendor": "GenuineIntel", "arch": "x86_64", "virtual": False, "fingerprint": "1-abcdef",
        "core_types": [{"name": "all", "cpus": "0-63"}], "flags": [f"flag_{number}" for number in range(120)],
        "kernel_release": f"6.12.0-{boot.arm}", "memory_kb": 263_000_000,
    }  # fmt: skip
    around = [{"case": case.name, "load": 0.25, "mhz": [3500] * 8, "throttled": 0} for case in cases]
    return {
        "agent": _AGENT, "outcome": "measured", "boot_id": str(uuid.uuid4()), "build_id": build.build_id,
        "facts": facts, "console_tail": "[    1.000000] a line of the console\n" * 40, "measurements": measurements,
        "conditions": {"settings": {"governor": "performance", "turbo": False}, "around": around},
    }  # fmt: skip


def cost(payload: Payload, values: int, profile: cProfile.Profile | None) -> Cost:
    """Upload until so many values are stored. What is asked of the database is counted in rounds of their own."""
    noise = np.random.default_rng(7)
    client = Client(headers={"Authorization": f"Bearer {issue_agent_token()}", "Content-Encoding": "gzip"})
    send(client, next(uploads(payload, 1, noise)))
    queries = tuple(_queries(client, payload, noise))
    tables, everything, stored = _bytes(PackedValues._meta.db_table), _bytes(), _stored()
    made, seconds, kept = 0, 0.0, []
    for upload in uploads(payload, values, noise):
        begun = time.process_time()
        with profile or nullcontext():
            send(client, upload)
        seconds += time.process_time() - begun
        made += 1
        kept.append(upload)
    stored = _stored() - stored
    if stored != sum(upload.values for upload in kept):
        raise SystemExit(f"{payload.name}: {stored} values were stored, others were sent")
    own, all_in = _bytes(PackedValues._meta.db_table) - tables, _bytes() - everything
    return Cost(stored, made, queries, seconds, _floor(kept), own, all_in)


def issue_agent_token(name: str = "measured") -> str:
    machine = build_machine(name, virtual=False)
    return issue_token(name=name, scope=ApiToken.Scope.MACHINE, subject=machine.name)


def send(client: Client, upload: Upload) -> None:
    response = client.post(upload.path, upload.body, "application/json")
    if response.status_code != HTTPStatus.OK or not response.json()["stored"]:
        raise SystemExit(f"{upload.path}: {response.status_code} {response.content.decode()}")


def _queries(client: Client, payload: Payload, noise: np.random.Generator) -> Iterator[int]:
    """Of a base's and a patched boot; beginning and committing counts as none."""
    few = Payload(payload.name, payload.cases, (2,), payload.most_seconds)
    for number, upload in enumerate(uploads(few, 20 * payload.cases, noise)):
        with CaptureQueriesContext(connection) as asked:
            send(client, upload)
        if number in {2, 3}:
            yield sum(query["sql"] not in {"BEGIN", "COMMIT"} for query in asked.captured_queries)


def _floor(kept: list[Upload]) -> float:
    """CPU seconds of one COPY for each upload into a table of the same columns, and of nothing else."""
    with connection.cursor() as cursor:
        cursor.execute('CREATE TEMPORARY TABLE floor (boot bigint, "case" bigint, metric bigint, "values" float8[])')
        begun = time.process_time()
        for upload in kept:
            with cursor.copy("COPY floor FROM STDIN") as copy:
                for column in upload.columns:
                    copy.write_row(column)
        seconds = time.process_time() - begun
        cursor.execute("DROP TABLE floor")
    return seconds


def _bytes(name: str = "") -> int:
    """Of that table's parts with their indexes; of all tables."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname LIKE %s"
            " AND relnamespace = 'public'::regnamespace",
            [f"{name}%"],
        )
        return int(cursor.fetchone()[0])


def _stored() -> int:
    with connection.cursor() as cursor:
        cursor.execute('SELECT coalesce(sum(cardinality("values")), 0) FROM results_packedvalues')
        return int(cursor.fetchone()[0])


def options(arguments: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.ingest")
    parser.add_argument("--values", type=int, default=100_000, help="values to be stored of each payload")
    parser.add_argument("--profile", action="store_true", help="tell as well where the time is spent")
    return parser.parse_args(arguments)


def main(*arguments: str) -> None:
    chosen = options(arguments)
    settings.ALLOWED_HOSTS = ["testserver"]
    fill()
    # As a process begins that answers.
    post_worker_init(None)
    rows, failed = [], False
    for payload in PAYLOADS:
        profile = cProfile.Profile() if chosen.profile else None
        spent = cost(payload, chosen.values, profile)
        scale = 100_000 / spent.values
        figures = (
            ("queries of an upload, base and patched", max(spent.queries), _MOST_QUERIES),
            ("CPU s for 100,000 values", spent.seconds * scale, payload.most_seconds),
            ("bytes a value, its table", spent.bytes / spent.values, _MOST_BYTES),
            ("bytes a value, all tables", spent.bytes_with_boots / spent.values, _MOST_BYTES),
        )
        for what, found, most in figures:
            failed = failed or found > most
            shown = ", ".join(map(str, spent.queries)) if what.startswith("queries") else f"{found:.2f}"
            rows.append([f"{payload.name}: {what}", shown, f"{most:g}", "pass" if found <= most else "FAIL"])
        rows += [
            [f"{payload.name}: CPU ms of an upload ({spent.uploads})", f"{1000 * spent.seconds / spent.uploads:.1f}"],
            [f"{payload.name}: CPU s of COPY alone", f"{spent.floor_seconds * scale:.2f}"],
        ]
        if profile is not None:
            pstats.Stats(profile).sort_stats("cumulative").print_stats(60)
    print(table(["", "measured", "limit", ""], [[*row, "", ""][:4] for row in rows]))
    if failed:
        raise SystemExit(1)
