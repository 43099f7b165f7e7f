"""A mail server that keeps what it is given: `python -m demo.sink --port PORT --dir DIRECTORY`."""

import argparse
import asyncio
import email
import email.policy
import hashlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

HOST = "127.0.0.1"
_LARGEST = 10 * 1024 * 1024


@dataclass(frozen=True)
class Stored:
    """One mail of the sink; `arrivals` counts how often it was handed over under its Message-ID."""

    message_id: str
    in_reply_to: str
    sender: str
    recipients: tuple[str, ...]
    text: str
    arrivals: int


class Store:
    """One file for each Message-ID, so that a mail handed over twice stays one; arrivals.log has a line for each time.

    A mail is on disk before its sender is told so.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, content: bytes, sender: str, recipients: list[str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        mail = email.message_from_bytes(content, policy=email.policy.default)
        message_id = str(mail["Message-ID"] or "").strip()
        name = hashlib.sha256(message_id.encode() or content).hexdigest()
        part = self.folder / f"{name}.part"
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.rename(self.folder / f"{name}.eml")
        line = {
            "at": datetime.now(UTC).isoformat(),
            "file": f"{name}.eml",
            "message_id": message_id,
            "in_reply_to": str(mail["In-Reply-To"] or "").strip(),
            "from": sender,
            "to": recipients,
        }
        with (self.folder / "arrivals.log").open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
            log.flush()
            os.fsync(log.fileno())

    def mails(self) -> list[Stored]:
        """What arrived, in the order of first arrival."""
        try:
            lines = (self.folder / "arrivals.log").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        arrivals = [json.loads(line) for line in lines]
        first = {entry["file"]: entry for entry in reversed(arrivals)}
        return [
            Stored(
                message_id=entry["message_id"],
                in_reply_to=entry["in_reply_to"],
                sender=entry["from"],
                recipients=tuple(entry["to"]),
                text=(self.folder / name).read_text(encoding="utf-8", errors="replace"),
                arrivals=sum(other["file"] == name for other in arrivals),
            )
            for name, entry in reversed(first.items())
        ]


class _Handler:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802 (aiosmtpd's)
        content = envelope.content
        if not isinstance(content, bytes):
            return "554 no content"
        try:
            self._store.keep(content, envelope.mail_from or "", list(envelope.rcpt_tos))
        except OSError as error:
            return f"451 cannot be stored: {error.strerror}"
        return "250 stored"


async def serve(port: int, folder: Path) -> None:
    """Serve until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    store = Store(folder)
    server = await loop.create_server(
        lambda: SMTP(_Handler(store), data_size_limit=_LARGEST, hostname="localhost"), HOST, port
    )
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    print(f"sink: listening on {HOST}:{port}, mails go to {folder}", flush=True)
    async with server:
        await ended.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.sink", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dir", type=Path, required=True)
    options = parser.parse_args()
    try:
        asyncio.run(serve(options.port, options.dir))
    except OSError as error:
        print(f"sink: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
