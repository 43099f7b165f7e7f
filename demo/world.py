"""The outside world of one demo: its places, ports, settings and site, and the service as the demo meets it."""

import io
import json
import os
import platform
import shutil
import socket
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from demo.hosts import BUILDER, Hosts
from demo.postings import LIST_ADDRESS, Archive
from demo.postings import NAME as LIST_NAME
from demo.processes import ADDRESS, DemoError, git
from demo.sink import HOST, Store
from demo.source import BRANCH
from scripts.stack import Program, Stack, StackError, local_directory, stack_up

ROOT = Path(__file__).resolve().parent.parent
_FIRST_PORT = 8100
_LAST_PORT = 8199


@dataclass(frozen=True)
class Ports:
    archive: int
    sink: int


@dataclass(frozen=True)
class World:
    """`cache` outlives everything, `folder` is forgotten by --fresh. `pull`: its hosts ask for work themselves."""

    cache: Path
    folder: Path
    ports: Ports
    pull: bool = False

    @property
    def archive(self) -> Archive:
        return Archive(self.folder / "archive", self.ports.archive)

    @property
    def store(self) -> Store:
        return Store(self.folder / "mails")

    @property
    def linux(self) -> Path:
        return self.cache / "linux"

    @property
    def hosts(self) -> Hosts:
        names = tuple(machine.name for machine in planned_machines()) if self.pull else ()
        return Hosts(self.folder / "hosts", names, self.cache.parent / "ccache")

    def programs(self) -> tuple[Program, ...]:
        """What runs beside the service: the mail server it sends to, the archive it watches, hosts that ask."""
        sink = ("-m", "demo.sink", "--port", str(self.ports.sink), "--dir", str(self.store.folder))
        return (
            Program("sink", (sys.executable, *sink)),
            Program("archive", self.archive.server(), env=self.archive.environment()),
            *(self.hosts.programs() if self.pull else ()),
        )

    def settings(self) -> dict[str, str]:
        return {
            "TIDEMARK_DISPATCHER": "pull" if self.pull else "local",
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
            "TIDEMARK_SWEEP_SECONDS": "5",
            # Its series are its own: they may be built where this user can have no memory cgroup (a login by ssh).
            "TIDEMARK_BUILD_CGROUP": "optional",
            "TIDEMARK_CCACHE_DIR": str(self.cache.parent / "ccache"),
            "TIDEMARK_LOCAL_SLOTS": str(len(os.sched_getaffinity(0))),
        }


def open_world(local: Path, *, running: bool, pull: bool = False) -> World:
    """The world of the stack in `local`; while the stack runs its ports stay, otherwise taken ones are replaced."""
    folder = local / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    ports = _ports(folder / "ports.json", keep=running)
    return World(cache=ROOT / ".cache" / "demo", folder=folder, ports=ports, pull=pull)


def forget_world(local: Path, environ: Mapping[str, str]) -> None:
    """Remove what the last demo left: its database, Redis, artifacts, archive and mails. The stack must be down."""
    if environ.get("TIDEMARK_DATABASE_URL") or environ.get("TIDEMARK_DATABASE_URL_FILE"):
        raise DemoError("TIDEMARK_DATABASE_URL names a database of yours: --fresh does not empty it; do that by hand")
    from scripts.stack.places import Places  # noqa: PLC0415
    from scripts.stack.servers import choose_postgres  # noqa: PLC0415

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


LAB = Path(__file__).resolve().parent / "lab.toml"
TREE_NAME = "stable"
WALL_MACHINE = "vm-haswell-wall"


@dataclass(frozen=True)
class MachinePlan:
    name: str
    uarch: str
    clock: str
    boots_per_side: int


def planned_machines() -> tuple[MachinePlan, ...]:
    description = tomllib.loads(LAB.read_text(encoding="utf-8"))
    return tuple(
        MachinePlan(entry["name"], entry["uarch"], entry["clock"], entry["boots_per_side"])
        for entry in description["machine"]
    )


_TOOLCHAIN = 'compiler = "gcc"\n'


def lab_of(host: str) -> str:
    """The lab's description for this kind of host: its machines are x86-64, for which arm64 compiles across."""
    text = LAB.read_text(encoding="utf-8")
    if host == "aarch64":
        text = text.replace(_TOOLCHAIN, _TOOLCHAIN + 'cross = { x86_64 = "x86_64-linux-gnu-" }\n', 1)
    return text


def write_site(folder: Path, *, repository: Path, branches: list[str], list_url: str, pull: bool = False) -> Path:
    """The site's file and the kernel configuration beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.config").write_bytes((LAB.parent / "kernel.config").read_bytes())
    # JSON's strings and arrays of strings are TOML's as well.
    parts = [
        lab_of(platform.machine()),
        *(("[[builder]]", f"name = {json.dumps(BUILDER)}", 'arches = ["x86_64"]', "") if pull else ()),
        "[[sender]]",
        f"address = {json.dumps(ADDRESS)}",
        'note = "who posts the demo\'s series"',
        "",
        "[[tree]]",
        f"name = {json.dumps(TREE_NAME)}",
        f"url = {json.dumps(repository.resolve().as_uri())}",
        f"branches = {json.dumps(branches)}",
        "poll_seconds = 30",
        # The demo is about its series; each head of the tree would be boots beside them.
        "heads_per_day = 0",
        "",
        "[[list]]",
        f"name = {json.dumps(LIST_NAME)}",
        f"url = {json.dumps(list_url)}",
        f"address = {json.dumps(LIST_ADDRESS)}",
        f"tree = {json.dumps(TREE_NAME)}",
        # Nobody else writes into the demo's archive.
        'proof = "archive"',
        # The sink is the only way out, so no person has to release the report.
        "moderated = false",
        "poll_seconds = 2",
        "",
    ]
    path = folder / "site.toml"
    path.write_text("\n".join(parts), encoding="utf-8")
    return path


# Seconds on two quiet cores: with nothing in the caches, and with the kernel tree and the compiler's results there.
_COLD = {
    "tree": 45.0,
    "service": 12.0,
    "mirror": 15.0,
    "mails": 8.0,
    "apply": 5.0,
    "builds": 180.0,
    "sessions": 200.0,
    "verdict": 3.0,
    "report": 4.0,
    "check": 1.0,
}
_WARM = {**_COLD, "tree": 1.0, "builds": 60.0}


def is_comparable(kind: str, local: Path) -> bool:
    """Whether a run's times tell what the next one takes: tests in stacks of their own and other series differ."""
    return kind == "slow" and local == local_directory(ROOT, {})


class Times:
    """Kept in the cache, apart for cold and warm runs."""

    def __init__(self, cache: Path) -> None:
        self._path = cache / "times.json"
        self._kind = "warm" if (cache / "versions").exists() and self._path.exists() else "cold"

    def expected(self) -> dict[str, float]:
        known = self._read().get(self._kind, {})
        return {name: known.get(name, seconds) for name, seconds in (_COLD if self._kind == "cold" else _WARM).items()}

    def remember(self, seconds: Mapping[str, float]) -> None:
        """Keep the times of a run that went through without a break."""
        known = self._read()
        known[self._kind] = {name: round(value, 1) for name, value in seconds.items()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(known, indent=1), encoding="utf-8")
        part.rename(self._path)

    def _read(self) -> dict[str, dict[str, float]]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


_Answer = TypeVar("_Answer")
# How long a database that was killed may take to come back.
_TRIES = 30
_PAUSE_SECONDS = 2.0


def start_service(world: World, local: Path) -> Stack:
    """Start the stack with the outside world's programs, or find it running."""
    stack = stack_up(ROOT, extra_programs=world.programs(), settings=world.settings(), local=local)
    missing = {program.name for program in world.programs()} - set(stack.programs)
    if missing:
        raise StackError(f"the service in {local} runs without the demo's {' and '.join(sorted(missing))}: `make stop`")
    return stack


def join_service(stack: Stack) -> None:
    """Let this process read the service's rows, with the settings of the stack."""
    os.environ["TIDEMARK_ENV_FILE"] = stack.env_file
    os.environ["TIDEMARK_PROCESS"] = "demo"
    os.environ["DJANGO_SETTINGS_MODULE"] = "server.settings"
    # Log lines would tear the display apart; what went wrong is in the rows and in the other processes' logs.
    os.environ["TIDEMARK_LOG_LEVEL"] = "CRITICAL"
    import django  # noqa: PLC0415 (the settings exist only now)

    django.setup()


def register_site(world: World, branch: str) -> None:
    """Tell the service its tree, list, machines and benchmarks, by the commands an operator uses.

    They can be run again: a database that goes away meanwhile is waited for.
    """
    from django.core.management import call_command  # noqa: PLC0415
    from django.core.management.base import CommandError  # noqa: PLC0415

    def load() -> bool:
        call_command("load_site", str(site), stdout=io.StringIO())
        call_command("load_benchmarks", str(ROOT / "agents" / "benchmarks"), stdout=io.StringIO())
        return True

    branches = list(dict.fromkeys((BRANCH, branch)))
    url = world.archive.url
    site = write_site(world.folder, repository=world.linux, branches=branches, list_url=url, pull=world.pull)
    try:
        for _ in range(_TRIES):
            if ask(load):
                return
            time.sleep(_PAUSE_SECONDS)
    except CommandError as error:
        raise DemoError(f"the site was refused: {error}") from error
    raise DemoError("the database did not answer when the site was registered")


class Forgetting(threading.Thread):
    """Empties the service's Redis again and again: all that is in it may be lost at any moment."""

    def __init__(self, local: Path, seconds: float) -> None:
        super().__init__(name="forgetting", daemon=True)
        self._file, self._seconds = local / "env", seconds
        self.done = threading.Event()
        self.times = 0

    def run(self) -> None:
        while not self.done.wait(self._seconds):
            self.times += flush_redis(self._file)


def flush_redis(env_file: Path) -> bool:
    """Whether it is empty now; False while it does not answer."""
    import redis  # noqa: PLC0415 (few need it)

    lines = env_file.read_text(encoding="utf-8").splitlines()
    url = next(line.partition("=")[2] for line in lines if line.startswith("TIDEMARK_REDIS_URL="))
    client = redis.Redis.from_url(url.replace("redis+socket://", "unix://"))
    try:
        return bool(client.flushall())
    except redis.ConnectionError:
        return False
    finally:
        client.close()


def tree_head(world: World, branch: str) -> str:
    """The commit the service should see."""
    return git(world.linux, "rev-parse", f"refs/heads/{branch}")


def ask(question: Callable[[], _Answer]) -> _Answer | None:
    """The answer of the rows; None while the database does not answer, for it may come back."""
    from django.db import InterfaceError, OperationalError, close_old_connections  # noqa: PLC0415

    close_old_connections()
    try:
        return question()
    except (OperationalError, InterfaceError):
        close_old_connections()
        return None
