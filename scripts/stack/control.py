"""Starting, ending and describing a stack."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from xmlrpc.client import Fault

from scripts.stack import places as stack_places
from scripts.stack import servers
from scripts.stack.places import Places, Program, StackError, server_programs, service_programs
from scripts.stack.supervisor import (
    MARK,
    Supervisor,
    clear_logs,
    end_marked,
    is_alive,
    is_marked,
    start_supervisor,
    write_configuration,
)

_SERVERS_SECONDS = 60.0
_SERVICES_SECONDS = 60.0
# supervisor ends services, then servers, each within its own time; what is left after this is ended for certain.
_SHUTDOWN_SECONDS = 12.0
_LAST_WORD_SECONDS = 2.0
# How an operator names servers of their own: by the address, or by a file that holds it.
_DATABASE = ("TIDEMARK_DATABASE_URL", "TIDEMARK_DATABASE_URL_FILE")
_REDIS = ("TIDEMARK_REDIS_URL", "TIDEMARK_REDIS_URL_FILE")

Environ = Mapping[str, str]


@dataclass(frozen=True)
class Stack:
    """A running stack. `url` is empty where only the servers run; `fresh` tells whether this `up` started it."""

    local: str
    pid: int
    url: str
    env_file: str
    programs: tuple[str, ...]
    note: str
    fresh: bool = False


@dataclass(frozen=True)
class _Plan:
    """What `up` found out before it starts anything."""

    places: Places
    environ: Environ
    postgres: servers.Postgres | None
    private_redis: bool
    servers: tuple[Program, ...]
    services: tuple[Program, ...]
    port: int
    url: str


def local_directory(root: Path, environ: Environ | None = None) -> Path:
    """The directory of the stack that TIDEMARK_LOCAL names, `.local` of the checkout without it."""
    given = (os.environ if environ is None else environ).get("TIDEMARK_LOCAL", "")
    return (root / (given or ".local")).resolve()


def stack_up(
    root: Path,
    *,
    extra_programs: Sequence[Program] = (),
    settings: Environ | None = None,
    services: bool = True,
    only: Sequence[str] = (),
    durable: bool = True,
    local: Path | None = None,
    environ: Environ | None = None,
) -> Stack:
    """Start a stack, or find the running one (then `fresh` is False and nothing is changed).

    `settings` are TIDEMARK_* values of this stack; the operator's environment goes before them. `environ` replaces
    that environment: a process that has read a settings file itself would hand its own database on. With `services`
    off only PostgreSQL and Redis run, with `only` just those of the service's programs; with `durable` off the servers
    may lose everything in a crash of the machine.
    """
    given = os.environ if environ is None else environ
    # An empty variable is how a shell says "not set".
    environ = {name: value for name, value in given.items() if value or not name.startswith("TIDEMARK_")}
    places = Places(root.resolve(), (local or local_directory(root, environ)).resolve())
    places.make()
    with _only_one(places):
        running = _running(places)
        if running is not None:
            return running
        _end(places)
        try:
            plan = _plan(places, environ, settings or {}, extra_programs, services=services, only=only, durable=durable)
            return _start(plan)
        except BaseException:
            _end(places)
            raise


def stack_down(root: Path, *, local: Path | None = None) -> bool:
    """End everything a stack started, and only that; returns whether there was anything."""
    places = Places(root.resolve(), (local or local_directory(root)).resolve())
    if not places.run.exists():
        return False
    with _only_one(places):
        return _end(places)


def stack_remove(root: Path, *, local: Path | None = None) -> None:
    """End a stack and delete its data, those parts too that could not be kept in its directory."""
    places = Places(root.resolve(), (local or local_directory(root)).resolve())
    stack_down(root, local=places.local)
    if places.run.exists():
        for elsewhere in {places.sockets(), *servers.homes(places)} - {places.run}:
            shutil.rmtree(elsewhere, ignore_errors=True)
    shutil.rmtree(places.local, ignore_errors=True)


def stack_status(root: Path, *, local: Path | None = None) -> tuple[Stack | None, list[str]]:
    """The running stack and a line about each of its programs; None if none runs."""
    places = Places(root.resolve(), (local or local_directory(root)).resolve())
    running = _running(places)
    if running is None:
        return None, []
    lines = [f"{p['name']:<10} {p['statename']:<9} {p['description']}" for p in Supervisor(places).processes()]
    return running, lines


def _plan(
    places: Places,
    environ: Environ,
    settings: Environ,
    extra_programs: Sequence[Program],
    *,
    services: bool,
    only: Sequence[str],
    durable: bool,
) -> _Plan:
    own_database, own_redis = (any(name in environ for name in names) for names in (_DATABASE, _REDIS))
    database = None if own_database else servers.choose_postgres(places)
    before = stack_places.read_env_file(places.env_file)
    values = {"TIDEMARK_SECRET_KEY": stack_places.secret_key(before)}
    if database is not None:
        values["TIDEMARK_DATABASE_URL"] = database.url
    if not own_redis:
        values["TIDEMARK_REDIS_URL"] = servers.redis_url(places)
    values["TIDEMARK_STATE_DIR"] = str(places.local / "state")
    port = stack_places.choose_port(environ, before) if services else 0
    if services:
        values |= {"TIDEMARK_PORT": str(port), "TIDEMARK_SITE_URL": f"http://127.0.0.1:{port}"}
        values["TIDEMARK_AGENT_URL"] = f"http://127.0.0.1:{port}"
    values |= settings
    # What the operator says stands in the file too, so that manage.py in another terminal works on the same data.
    values |= {name: environ[name] for name in (*values, *_DATABASE, *_REDIS) if name in environ}
    stack_places.write_env_file(places.env_file, values)
    command = None if own_redis else servers.redis_command(places, durable=durable)
    return _Plan(
        places=places,
        environ=environ,
        postgres=database,
        private_redis=not own_redis,
        servers=tuple(server_programs(postgres=database is not None, redis_command=command, durable=durable)),
        services=(*_chosen(service_programs(places, port) if services else [], only), *extra_programs),
        port=port,
        url=values["TIDEMARK_SITE_URL"] if services else "",
    )


def _chosen(programs: Sequence[Program], only: Sequence[str]) -> list[Program]:
    return [program for program in programs if not only or program.name in only]


def _start(plan: _Plan) -> Stack:
    places = plan.places
    if plan.postgres is not None:
        servers.prepare_postgres(plan.postgres)
    write_configuration(places, plan.servers, plan.services)
    clear_logs(places, [program.name for program in (*plan.servers, *plan.services)])
    environ = _environment(places, plan.environ)
    start_supervisor(places, environ)
    supervisor = Supervisor(places)
    _wait_for_servers(plan, supervisor)
    if plan.postgres is not None:
        servers.create_database(plan.postgres)
    if plan.url:
        _migrate(places, environ)
    if plan.services:
        supervisor.start_services()
        supervisor.wait_until_running([program.name for program in plan.services], _SERVICES_SECONDS)
    if plan.url:
        _wait("web", lambda: stack_places.listens(plan.port))
    stack = Stack(
        local=str(places.local),
        pid=supervisor.pid(),
        url=plan.url,
        env_file=str(places.env_file),
        programs=tuple(program.name for program in (*plan.servers, *plan.services)),
        note=_note(plan),
        fresh=True,
    )
    places.record.write_text(json.dumps(asdict(stack), indent=1), encoding="utf-8")
    return stack


def _environment(places: Places, environ: Environ) -> dict[str, str]:
    own = {MARK: str(places.local), "TIDEMARK_LOCAL": str(places.local), "TIDEMARK_ENV_FILE": str(places.env_file)}
    return {**environ, **own}


def _wait_for_servers(plan: _Plan, supervisor: Supervisor) -> None:
    names = [program.name for program in plan.servers]
    supervisor.wait_until_running(names, _SERVERS_SECONDS)
    database = plan.postgres
    if database is not None:
        _wait("postgres", lambda: servers.postgres_answers(database))
    if plan.private_redis:
        _wait("redis", lambda: servers.redis_answers(plan.places))


def _wait(name: str, answers: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SERVERS_SECONDS
    while not answers():
        if time.monotonic() > deadline:
            raise StackError(f"{name} runs but does not answer")
        time.sleep(0.1)


def _migrate(places: Places, environ: Environ) -> None:
    command = [sys.executable, "manage.py", "migrate", "--no-input"]
    done = subprocess.run(
        command,
        env={**environ, "TIDEMARK_PROCESS": "migrate"},
        cwd=places.root,
        capture_output=True,
        text=True,
        check=False,
    )
    (places.log / "migrate.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode != 0:
        raise StackError(f"the database could not be brought up to date:\n{done.stderr[-2000:]}")


def _note(plan: _Plan) -> str:
    if plan.postgres is None:
        return "PostgreSQL: the one of TIDEMARK_DATABASE_URL"
    other = f", as user {plan.postgres.user}, data in {plan.postgres.data}" if plan.postgres.user else ""
    return f"PostgreSQL {plan.postgres.version}: private{other}"


def _running(places: Places) -> Stack | None:
    """The stack whose start was completed and whose supervisor lives; a crash or reboot leaves only its record."""
    try:
        record = json.loads(places.record.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    if not (is_alive(record["pid"]) and is_marked(record["pid"], places.local)):
        return None
    return Stack(**{**record, "programs": tuple(record["programs"]), "fresh": False})


def _end(places: Places) -> bool:
    """End supervisor in good order, then whatever else carries this stack's mark."""
    supervisor = Supervisor(places)
    asked = True
    try:
        pid = supervisor.pid()
        supervisor.shut_down()
        deadline = time.monotonic() + _SHUTDOWN_SECONDS
        while is_alive(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
    except (OSError, Fault):
        asked = False
    left = end_marked(places.local, patience=_LAST_WORD_SECONDS)
    places.record.unlink(missing_ok=True)
    return asked or left > 0


@contextmanager
def _only_one(places: Places) -> Iterator[None]:
    """One `up` or `down` at a time; the kernel frees the lock however its holder ends."""
    with (places.run / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StackError(f"another `up` or `down` of {places.local} is under way") from None
        yield
