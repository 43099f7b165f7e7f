"""What a thousand cells leave in each table, before and after their time is over, and what ten years of them come to.

    python -m bench.ingest --growth [--values 200000]

A cell is one case and metric of one boot. Boots are the typical ones of `bench.ingest`; CPU is that of this process,
without PostgreSQL's. After the archive has them, `VACUUM FULL` stands for the parts that are dropped when they are
empty.
"""

import argparse
import logging
import time
from datetime import timedelta

import numpy as np
from django.conf import settings
from django.db import connection
from django.test import Client

from bench.ingest.uploads import PAYLOADS, fill, issue_agent_token, send, uploads
from bench.table import table
from server.core import clock
from server.detection.lifecycle.needed import sessions_in_use
from server.lab.models import Attempt, AttemptState, Session, SessionState, Trial
from server.results.models import ArchivePart
from server.results.retention import retain

_TYPICAL = PAYLOADS[0]
# 200 machines for ten years, as boots of a minute and a half.
_YEARS, _BOOTS = 10, 35_000_000
_KEPT_YEARS = 2
_GB = 1e9
_FEW_BYTES = 20.0
_SIZES = """
SELECT regexp_replace(relname, '_([0-9]+|outside|others)$', ''), sum(pg_total_relation_size(oid)) FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace GROUP BY 1
"""


def main(*arguments: str) -> None:
    """Upload, let leave, and print bytes and CPU of both."""
    parser = argparse.ArgumentParser(prog="python -m bench.ingest --growth")
    parser.add_argument("--values", type=int, default=200_000)
    values = parser.parse_args(arguments).values
    logging.disable(logging.CRITICAL)
    settings.ALLOWED_HOSTS = ["*"]
    fill()
    client = Client(headers={"Authorization": f"Bearer {issue_agent_token()}", "Content-Encoding": "gzip"})
    noise = np.random.default_rng(7)
    send(client, next(uploads(_TYPICAL, 1, noise)))
    empty, boots, cells, stored, sending = _sizes(), 0, 0, 0, 0.0
    for upload in uploads(_TYPICAL, values, noise):
        begun = time.process_time()
        send(client, upload)
        sending += time.process_time() - begun
        boots, cells, stored = boots + 1, cells + len(upload.columns), stored + upload.values
    before = _sizes()
    begun = time.process_time()
    _let_leave()
    leaving = time.process_time() - begun
    after, archive = _sizes(), sum(ArchivePart.objects.values_list("size", flat=True))
    print(f"{boots} boots, {cells} cells of a boot, {stored} values; bytes for 1000 cells of a boot")
    rows = [
        [name, *(f"{1000 * (size.get(name, 0) - empty.get(name, 0)) / cells:.0f}" for size in (before, after))]
        for name in sorted(before.keys() | after.keys(), key=lambda name: -before.get(name, 0))
        if 1000 * (max(before.get(name, 0), after.get(name, 0)) - empty.get(name, 0)) / cells > _FEW_BYTES
    ]
    whole, left = (sum(size.values()) - sum(empty.values()) for size in (before, after))
    rows += [["all tables", f"{1000 * whole / cells:.0f}", f"{1000 * left / cells:.0f}"]]
    rows += [["archive", "", f"{1000 * archive / cells:.0f}"]]
    print(table(["", "kept", "left"], rows))
    print(f"CPU ms for 1000 cells of a boot: storing {1e6 * sending / cells:.0f}, leaving {1e6 * leaving / cells:.0f}")
    _tell_years(whole / boots, left / boots, archive / boots, stored / boots)


def _tell_years(whole: float, left: float, archive: float, values: float) -> None:
    """By bytes of a boot: whole, once its rows have left, and of what is in the archive."""
    gone = _BOOTS * (_YEARS - _KEPT_YEARS) // _YEARS
    kept = _BOOTS - gone
    print(f"200 machines, {_YEARS} years: {_BOOTS / 1e6:.0f} million boots, {_BOOTS * values / 1e9:.1f} billion values")
    print(f"all kept: {_BOOTS * whole / _GB:.0f} GB of the database")
    told = (
        f"{(kept * whole + gone * left) / _GB:.0f} GB of the database and {gone * archive / _GB:.0f} GB of the archive"
    )
    print(f"{_KEPT_YEARS} years kept: {told}")


def _let_leave() -> None:
    """Three months pass, and everything of these sessions is over."""
    Attempt.objects.update(state=AttemptState.DONE)
    Session.objects.update(state=SessionState.DONE, created_at=clock.now() - timedelta(days=100))
    Trial.objects.update(state=Trial.State.DONE, answered_at=clock.now())
    settings.KEEP_MONTHS = dict.fromkeys(("samples", "conditions", "transitions", "logs"), 1)
    retain(sessions_in_use, seconds=3600)


def _sizes() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute("VACUUM FULL")
        cursor.execute(_SIZES)
        return {name: int(size) for name, size in cursor.fetchall()}
