"""The outside world of one demo: its places, its ports, and the settings the service needs to live in it."""

import json
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from demo.archive import Archive
from demo.errors import DemoError
from demo.sink import HOST, Store
from scripts.stack import Program

ROOT = Path(__file__).resolve().parent.parent
_FIRST_PORT = 8100
_LAST_PORT = 8199


@dataclass(frozen=True)
class Ports:
    archive: int
    sink: int


@dataclass(frozen=True)
class World:
    """`cache` outlives everything, `folder` is forgotten by --fresh."""

    cache: Path
    folder: Path
    ports: Ports

    @property
    def archive(self) -> Archive:
        return Archive(self.folder / "archive", self.ports.archive)

    @property
    def store(self) -> Store:
        return Store(self.folder / "mails")

    @property
    def linux(self) -> Path:
        return self.cache / "linux"

    def programs(self) -> tuple[Program, ...]:
        """What runs beside the service: the mail server it sends to, and the archive it watches."""
        sink = ("-m", "demo.sink", "--port", str(self.ports.sink), "--dir", str(self.store.folder))
        return (
            Program("sink", (sys.executable, *sink)),
            Program("archive", self.archive.server(), env=self.archive.environment()),
        )

    def settings(self) -> dict[str, str]:
        return {
            "TIDEMARK_VIRTUAL_VERDICTS": "1",
            # Its few machines are there for one series: nights do not come, the tree's heads are not measured, and what
            # the wall clock cannot tell with the first boots stays open.
            "TIDEMARK_NOISE_HOURS": "0",
            "TIDEMARK_HEAD_BOOTS": "0",
            "TIDEMARK_SERIES_HOURS": "0.01",
            "TIDEMARK_MAIL_ENABLED": "1",
            "TIDEMARK_MAIL_FROM": "Tidemark <tidemark@tidemark.example>",
            "TIDEMARK_MAIL_SINK": f"{HOST}:{self.ports.sink}",
            "TIDEMARK_SMTP_HOST": HOST,
            "TIDEMARK_SMTP_PORT": str(self.ports.sink),
            "TIDEMARK_SWEEP_SECONDS": "2",
            # Its series are its own: they may be built where this user can have no memory cgroup (a login by ssh).
            "TIDEMARK_BUILD_CGROUP": "optional",
            "TIDEMARK_CCACHE_DIR": str(self.cache.parent / "ccache"),
            "TIDEMARK_LOCAL_SLOTS": str(len(os.sched_getaffinity(0))),
        }


def open_world(local: Path, *, running: bool) -> World:
    """The world of the stack in `local`; while the stack runs its ports stay, otherwise taken ones are replaced."""
    folder = local / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    return World(cache=ROOT / ".cache" / "demo", folder=folder, ports=_ports(folder / "ports.json", keep=running))


def forget_world(local: Path, environ: Mapping[str, str]) -> None:
    """Remove what the last demo left: its database, Redis, artifacts, archive and mails. The stack must be down."""
    if environ.get("TIDEMARK_DATABASE_URL") or environ.get("TIDEMARK_DATABASE_URL_FILE"):
        raise DemoError("TIDEMARK_DATABASE_URL names a database of yours: --fresh does not empty it; do that by hand")
    from scripts.stack.places import Places  # noqa: PLC0415
    from scripts.stack.postgres import choose_postgres  # noqa: PLC0415

    places = Places(ROOT, local)
    places.make()
    for path in (choose_postgres(places).data, local / "redis", local / "state", local / "demo"):
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            raise DemoError(f"{path} cannot be removed")


def _ports(path: Path, *, keep: bool) -> Ports:
    try:
        known = Ports(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        known = None
    if known and (keep or (_is_free(known.archive) and _is_free(known.sink))):
        return known
    free = (port for port in range(_FIRST_PORT, _LAST_PORT + 1) if _is_free(port))
    try:
        ports = Ports(archive=next(free), sink=next(free))
    except StopIteration:
        raise DemoError(f"no two free ports from {_FIRST_PORT} to {_LAST_PORT} on {HOST}") from None
    path.write_text(json.dumps({"archive": ports.archive, "sink": ports.sink}), encoding="utf-8")
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
