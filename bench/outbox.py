"""A worker that is killed while it sends: 100 mails, each killed once at a random moment, and what the sink got.

python -m bench.scratch_database bench.outbox [--kills 100] [--seed 1]: prints the table; fails where a mail was lost or
told under two Message-IDs.
"""

import argparse
import multiprocessing
import os
import random
import signal
import socket
import sys
import time
from collections import Counter, defaultdict
from datetime import timedelta
from email import message_from_bytes
from threading import Thread
from typing import Any

from bench.table import table

# So that no moment is too short to be hit.
_SECONDS_OF_SINK = 0.04
_MOMENTS = ("before it was claimed", "claimed, not yet sent", "sent, its answer not kept", "after")


class _Sink:
    """A mail server that takes everything, and takes a moment for each answer."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.mails: list[bytes] = []
        Thread(target=self._run, daemon=True).start()

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


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    from django.conf import settings  # noqa: PLC0415 (Django is set up by whoever calls this)

    sink = _Sink()
    settings.MAIL_ENABLED, settings.MAIL_HOURLY_CAP = True, 10**6
    settings.EMAIL_BACKEND = "server.reports.sending.wire.MailWire"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", sink.port
    chance = random.Random(options.seed)  # noqa: S311 (moments, not secrets)
    longest = _seconds_of_one()
    found = [_kill(number, chance.uniform(0, longest), sink) for number in range(options.kills)]
    print(_told(found, options.seed, longest))
    if any(mails == 0 or names > 1 for _, mails, names in found):
        sys.exit("a mail was lost, or has two names")


def _told(found: list[tuple[str, int, int]], seed: int, longest: float) -> str:
    rows = []
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for moment, mails, names in found:
        counts[moment].update(["kills", *(["once"] if mails == 1 else []), *(["twice"] if mails > 1 else [])])
        counts[moment].update([*(["lost"] if not mails else []), *(["names"] if names > 1 else [])])
    for moment in _MOMENTS:
        mine = counts[moment]
        rows.append([moment, *(str(mine[name]) for name in ("kills", "once", "twice", "lost", "names"))])
    total = sum(counts.values(), Counter[str]())
    rows.append(["all", *(str(total[name]) for name in ("kills", "once", "twice", "lost", "names"))])
    head = ["killed", "mails", "arrived once", "twice, one Message-ID", "never", "two Message-IDs"]
    return f"seed {seed}, killed within {longest * 1000:.0f} ms\n\n{table(head, rows)}"


def _seconds_of_one() -> float:
    """How long a worker takes from its start until its mail is sent, and a little more."""
    from server.reports.models import Delivery  # noqa: PLC0415

    taken = []
    for number in range(3):
        pk = _queue(f"warm {number}")
        began = time.monotonic()
        process = _start(pk)
        while not Delivery.objects.filter(pk=pk, state="sent").exists():
            time.sleep(0.002)
        taken.append(time.monotonic() - began)
        process.join()
    return 1.2 * sorted(taken)[1]


def _kill(number: int, after: float, sink: _Sink) -> tuple[str, int, int]:
    """When it was, how many mails came in the end, and under how many Message-IDs."""
    from server.core import clock  # noqa: PLC0415
    from server.reports.models import Delivery  # noqa: PLC0415
    from server.reports.outbox import send_delivery, wake_outbox  # noqa: PLC0415

    pk = _queue(str(number))
    before = len(sink.mails)
    process = _start(pk)
    time.sleep(after)
    if process.pid is not None and process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    # What the dead process had sent is on its way to the sink.
    time.sleep(2 * _SECONDS_OF_SINK)
    delivery = Delivery.objects.get(pk=pk)
    moment = _moment(delivery.state, len(sink.mails) - before)
    for _ in range(3):
        # Two minutes pass.
        Delivery.objects.filter(pk=pk, state="sending").update(state_since=clock.now() - timedelta(minutes=3))
        wake_outbox()
        Delivery.objects.filter(pk=pk, state="queued").update(not_before=None)
        send_delivery(delivery_id=pk)
    assert Delivery.objects.get(pk=pk).state == "sent"
    names = {str(message_from_bytes(mail)["Message-ID"]) for mail in sink.mails[before:]}
    return moment, len(sink.mails) - before, len(names)


def _moment(state: str, mails: int) -> str:
    if state == "queued":
        return _MOMENTS[0]
    return _MOMENTS[3] if state == "sent" else _MOMENTS[2] if mails else _MOMENTS[1]


def _queue(name: str) -> int:
    from server.reports.models import Report  # noqa: PLC0415
    from server.reports.outbox import queue_delivery  # noqa: PLC0415

    report = Report.objects.create(
        kind=Report.Kind.DIGEST, key=f"bench:{name}", state=Report.State.APPROVED, released=True,
        subject="[report] a week", body="Nothing happened.\n", to=["ada@example.org"], cc=["list@example.org"],
    )  # fmt: skip
    return int(queue_delivery(report=report).pk)


def _start(delivery: int) -> Any:
    """A process of its own, with a connection of its own."""
    from django.db import connection  # noqa: PLC0415

    here: Any = connection
    here.close()
    here.close_pool()
    process = multiprocessing.get_context("fork").Process(target=_work, args=[delivery])
    process.start()
    return process


def _work(delivery: int) -> None:
    from server.reports.outbox import send_delivery  # noqa: PLC0415

    send_delivery(delivery_id=delivery)
