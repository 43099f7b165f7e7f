"""A Celery worker that is killed while it sends: 100 mails, each at a random moment, and what the mail server got.

python -m bench.scratch_database bench.outbox [--kills 100] [--seed 1]: prints the table; fails where a mail was lost or
told under two Message-IDs. Worker, beat and Redis are those of the service. SIGKILL ends the process of the worker that
sends, or the worker with all its processes (--whole: in which share of the cases), and another takes its place. Half of
the moments are counted from the waking of the worker, half from when it has claimed its mail. Only the two minutes are
not waited for after which the sweep takes a mail from a sender who is gone.
"""

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

from celery import Celery
from django.conf import settings
from django.db import connection

from bench.kit import ROOT, KitError
from bench.table import table

# So that no moment is too short to be hit.
_SECONDS_OF_SINK = 0.04
_MOMENTS = ("committed, not yet claimed", "claimed, not yet sent", "the server has it, its answer not kept", "after")
_KILLED = ("the worker", "its process")
_LONGEST_SECONDS = 180.0
_SWEEP_SECONDS = 1.0


class _Sink:
    """A mail server that takes everything, and takes a moment for each answer."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.mails: list[bytes] = []
        Thread(target=self._run, daemon=True).start()

    def of(self, delivery: int) -> list[str]:
        """The Message-ID of each mail of this delivery."""
        mails = [message_from_bytes(mail) for mail in self.mails]
        return [str(mail["Message-ID"]) for mail in mails if str(mail["Subject"]).endswith(f" {delivery}")]

    def _run(self) -> None:
        while True:
            peer, _ = self._socket.accept()
            Thread(target=self._serve, args=[peer], daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            with peer, peer.makefile("rb") as stream:
                self._talk(peer, stream)
        except OSError:
            # Its sender was killed.
            return

    def _talk(self, peer: socket.socket, stream: Any) -> None:
        peer.sendall(b"220 sink\r\n")
        while line := stream.readline():
            word = line[:4].upper()
            if word == b"DATA":
                peer.sendall(b"354 go on\r\n")
                lines = list(iter(stream.readline, b".\r\n"))
                if b"" in lines[-1:]:
                    return
                self.mails.append(b"".join(lines))
            time.sleep(_SECONDS_OF_SINK)
            peer.sendall(b"221 bye\r\n" if word == b"QUIT" else b"250 OK\r\n")


@dataclass
class _Service:
    """Worker and beat with the database of the bench, and a place in Redis of their own."""

    environment: dict[str, str]
    prefix: str
    log: Path
    post: Celery = field(init=False)
    worker: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        self.post = Celery(broker=settings.CELERY_BROKER_URL)
        self.post.conf.broker_transport_options = {"global_keyprefix": self.prefix}

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """A group of its own: SIGKILL ends all that belongs to it."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "workers", *words],
                cwd=ROOT, env=self.environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def start_worker(self) -> None:
        self.worker = self.start(
            "worker", "-Q", "reports", "--concurrency", "1", "--without-gossip", "--without-mingle",
            "--without-heartbeat", "--loglevel", "WARNING",
        )  # fmt: skip

    def kill(self, *, whole: bool) -> None:
        """The worker with all its processes, or the one that works for it, for which it starts another."""
        assert self.worker is not None
        if whole:
            _end(self.worker, signal.SIGKILL)
            return
        children = Path(f"/proc/{self.worker.pid}/task/{self.worker.pid}/children").read_text(encoding="ascii")
        for child in children.split():
            os.kill(int(child), signal.SIGKILL)

    def send(self, delivery: int) -> None:
        """As the service wakes its workers."""
        self.post.send_task("reports.send", args=[delivery], queue="reports")


@dataclass(frozen=True)
class _Kill:
    """What was killed when, how many mails came in the end, and under how many Message-IDs."""

    what: str
    moment: str
    mails: int
    names: int


def _end(process: "subprocess.Popen[bytes]", how: signal.Signals) -> None:
    if process.poll() is None:
        os.killpg(process.pid, how)
    process.wait()


@contextmanager
def _service(sink: _Sink) -> Iterator[_Service]:
    given = connection.get_connection_params()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, prefix = Path(name), f"bench-outbox-{os.getpid()}:"
        environment = os.environ | {
            "TIDEMARK_DATABASE_URL": f"postgres://{given.get('user', '')}@/{given['dbname']}"
            f"?host={quote(str(given.get('host', '')), safe='/')}",
            "TIDEMARK_REDIS_PREFIX": prefix,
            "TIDEMARK_STATE_DIR": str(folder / "state"),
            "TIDEMARK_SWEEP_SECONDS": str(_SWEEP_SECONDS),
            "TIDEMARK_MAIL_ENABLED": "1",
            "TIDEMARK_MAIL_HOURLY_CAP": "1000000",
            "TIDEMARK_SMTP_HOST": "127.0.0.1",
            "TIDEMARK_SMTP_PORT": str(sink.port),
        }
        service = _Service(environment, prefix, folder / "log")
        stack.callback(service.post.close)
        beat = service.start("beat", "--schedule", str(folder / "schedule"), "--pidfile", "", "--loglevel", "WARNING")
        stack.callback(_end, beat, signal.SIGKILL)
        stack.callback(lambda: service.kill(whole=True) if service.worker else None)
        service.start_worker()
        try:
            yield service
        except KitError as error:
            raise KitError(f"{error}; the end of its log:\n{service.log.read_text()[-2000:]}") from error


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--whole", type=float, default=0.5)
    options = parser.parse_args(arguments)
    # What asks whether a mail may leave; the worker has it from its environment.
    settings.MAIL_ENABLED = True
    sink, chance = _Sink(), random.Random(options.seed)  # noqa: S311 (moments, not secrets)
    with _service(sink) as service:
        times = _seconds_of_one(service)
        found = [_kill(service, sink, chance, times, options.whole) for _ in range(options.kills)]
    print(_told(found, options.seed, times))
    if any(one.mails == 0 or one.names > 1 for one in found):
        sys.exit("a mail was lost, or has two names")


def _told(found: list[_Kill], seed: int, times: tuple[float, float]) -> str:
    rows = []
    for what in _KILLED:
        rows += [
            _row([what, moment], [one for one in found if (one.what, one.moment) == (what, moment)])
            for moment in _MOMENTS
        ]
    rows.append(_row(["all", ""], found))
    head = ["killed", "when", "mails", "arrived once", "twice, one Message-ID", "never", "two Message-IDs"]
    within = f"within {times[0] * 1000:.0f} ms of the waking, or {times[1] * 1000:.0f} ms of the claim"
    return f"seed {seed}, killed {within}\n\n{table(head, rows)}"


def _row(name: list[str], kills: list[_Kill]) -> list[str]:
    counts = (
        len(kills), sum(one.mails == 1 for one in kills), sum(one.mails > 1 for one in kills),
        sum(one.mails == 0 for one in kills), sum(one.names > 1 for one in kills),
    )  # fmt: skip
    return [*name, *map(str, counts)]


def _seconds_of_one(service: _Service) -> tuple[float, float]:
    """How long a worker takes until its mail is sent, from its waking and from its claim, and a little more."""
    taken = []
    for _ in range(4):
        pk = _queue()
        began = time.monotonic()
        service.send(pk)
        _until(lambda pk=pk: _state(pk) != "queued", "nothing is claimed")  # type: ignore[misc]
        claimed = time.monotonic()
        _until(lambda pk=pk: _state(pk) == "sent", "nothing is sent")  # type: ignore[misc]
        taken.append((time.monotonic() - began, time.monotonic() - claimed))
    # The first one waited for the worker's start.
    return 1.3 * sorted(one for one, _ in taken[1:])[1], 1.3 * sorted(one for _, one in taken[1:])[1]


def _kill(service: _Service, sink: _Sink, chance: random.Random, times: tuple[float, float], whole: float) -> _Kill:
    from server.core import clock  # noqa: PLC0415 (Django is set up by whoever calls main)
    from server.reports.models import Delivery  # noqa: PLC0415
    from server.reports.outbox import STUCK_AFTER  # noqa: PLC0415

    pk = _queue()
    is_whole, from_claim, share = chance.random() < whole, chance.random() < 0.5, chance.random()  # noqa: PLR2004 (half)
    service.send(pk)
    if from_claim:
        _until(lambda: _state(pk) != "queued", f"delivery {pk} is not claimed")
    time.sleep(share * times[from_claim])
    service.kill(whole=is_whole)
    # What the dead process had sent is on its way to the sink.
    time.sleep(2 * _SECONDS_OF_SINK)
    state, sent = _state(pk), len(sink.of(pk))
    if is_whole:
        service.start_worker()
    if state == "sending":
        # Nobody is at it any more.
        Delivery.objects.filter(pk=pk, state=state).update(state_since=clock.now() - 2 * STUCK_AFTER)
    _until(lambda: _is_over(pk), f"delivery {pk} is not sent")
    names = sink.of(pk)
    return _Kill(_KILLED[not is_whole], _moment(state, sent), len(names), len(set(names)))


def _moment(state: str, mails: int) -> str:
    if state == "queued":
        return _MOMENTS[0]
    return _MOMENTS[3] if state == "sent" else _MOMENTS[2] if mails else _MOMENTS[1]


def _is_over(pk: int) -> bool:
    """Whether beat's sweep has brought it; what it has to wait for after a failed try, it does not wait for."""
    from server.reports.models import Delivery  # noqa: PLC0415

    Delivery.objects.filter(pk=pk, state="queued").update(not_before=None)
    return _state(pk) == "sent"


def _state(pk: int) -> str:
    from server.reports.models import Delivery  # noqa: PLC0415

    return str(Delivery.objects.values_list("state", flat=True).get(pk=pk))


def _until(condition: Callable[[], bool], trouble: str) -> None:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise KitError(trouble)
        time.sleep(0.01)


def _queue() -> int:
    from server.reports.models import Report  # noqa: PLC0415
    from server.reports.outbox import queue_delivery  # noqa: PLC0415

    report = Report.objects.create(
        kind=Report.Kind.DIGEST, key=f"bench:{time.monotonic_ns()}", state=Report.State.APPROVED, released=True,
        subject="[report] a week", body="Nothing happened.\n", to=["ada@example.org"], cc=["list@example.org"],
    )  # fmt: skip
    pk = int(queue_delivery(report=report).pk)
    # By it the sink knows whose mail it has, whatever its Message-ID.
    Report.objects.filter(pk=report.pk).update(subject=f"[report] week {pk}")
    return pk
