"""What of a run is on this host: agents, the service's HTTP for them, the forms of requests, the report."""

import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Protocol
from urllib.parse import parse_qsl
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from django.core.wsgi import get_wsgi_application


class NotRun(Exception):  # noqa: N818 (no error: an answer)
    """A step for which the operator gave nothing; the message says what it would need."""


class StepError(Exception):
    """A step did not come to what it should; the message says what was there instead."""


@dataclass
class Step:
    """One step; `said` is what it found, in words."""

    name: str
    ok: bool = False
    said: str = ""
    seconds: float = 0.0
    ran: bool = True

    @property
    def result(self) -> str:
        return ("ok" if self.ok else "FAILED") if self.ran else "not run"


@dataclass
class Report:
    """All steps so far. `quiet` prints nothing: for tests."""

    quiet: bool = False
    steps: list[Step] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """No step failed, and some ran."""
        ran = [step for step in self.steps if step.ran]
        return bool(ran) and all(step.ok for step in ran)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """A StepError ends the step; the run goes on with the next, which may fail for the same reason."""
        step = Step(name)
        self.steps.append(step)
        started = time.monotonic()
        try:
            yield step
            step.ok = True
        except NotRun as answer:
            step.ran, step.said = False, str(answer)
        except StepError as error:
            step.said = str(error)
        except Exception as error:
            step.said = f"{type(error).__name__}: {error}"
            raise
        finally:
            step.seconds = time.monotonic() - started
            self._print(step)

    def verdict(self) -> str:
        """All of it in one line: what was not tried is said as plainly as what failed."""
        failed = [step.name for step in self.steps if step.ran and not step.ok]
        skipped = [f"{step.name} ({step.said})" for step in self.steps if not step.ran]
        untried = f"{len(skipped)} of {len(self.steps)} steps not run: {'; '.join(skipped)}"
        if not self.ok:
            told = f"FAILED: {'; '.join(failed) or 'no step ran'}"
            return f"{told}; {untried}" if skipped else told
        return (
            f"incomplete: what ran is ok, but {untried}" if skipped else f"complete: all {len(self.steps)} steps are ok"
        )

    def table(self) -> str:
        width = max((len(step.name) for step in self.steps), default=0)
        lines = [f"{'step':{width}}  result   seconds"]
        lines += [f"{s.name:{width}}  {s.result:7}  {s.seconds:7.1f}  {s.said}" for s in self.steps]
        return "\n".join(lines)

    def _print(self, step: Step) -> None:
        if not self.quiet:
            print(f"{step.result}: {step.name} ({step.seconds:.1f} s) {step.said}", flush=True)


# The forms of requests that were recorded with a real controller. Nothing else leaves during the run.
#
# Three are of the run's own housekeeping and were not recorded: fetching agent.jar, and deleting what the run has
# made.

_NAME = r"[^/?]+"
RECORDED = {
    f"POST /job/{_NAME}/buildWithParameters": {"delay"},
    "GET /queue/api/json": {"tree"},
    r"GET /queue/item/\d+/api/json": set(),
    r"POST /queue/cancelItem": {"id"},
    "GET /api/json": {"tree"},
    f"GET /computer/{_NAME}/api/json": {"tree"},
    "GET /computer/api/json": {"tree"},
    f"GET /job/{_NAME}/api/json": {"tree"},
    f"GET /job/{_NAME}/api/xml": {"tree", "xpath", "wrapper"},
    rf"GET /job/{_NAME}/\d+/api/json": {"tree"},
    rf"GET /job/{_NAME}/\d+/logText/progressiveText": {"start"},
    rf"POST /job/{_NAME}/\d+/stop": set(),
    f"POST /computer/{_NAME}/toggleOffline": {"offlineMessage"},
    f"POST /computer/{_NAME}/changeOfflineCause": set(),
    f"POST /computer/{_NAME}/doDisconnect": {"offlineMessage"},
    "POST /computer/doCreateItem": set(),
    f"GET /computer/{_NAME}/config.xml": set(),
    f"POST /computer/{_NAME}/config.xml": set(),
    f"GET /computer/{_NAME}/jenkins-agent.jnlp": set(),
    "POST /createItem": {"name"},
    f"GET /job/{_NAME}/config.xml": set(),
    f"POST /job/{_NAME}/config.xml": set(),
}
HOUSEKEEPING = {
    "GET /jnlpJars/agent.jar": set[str](),
    f"POST /job/{_NAME}/doDelete": set[str](),
    f"POST /computer/{_NAME}/doDelete": set[str](),
}


class StrayRequestError(Exception):
    """A request of a form that was never recorded was about to leave."""


class Forms:
    """Told of each request before it leaves; `counts` says how often each form was used."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def check(self, method: str, target: str) -> None:
        path, _, query = target.partition("?")
        names = {name for name, _ in parse_qsl(query, keep_blank_values=True)}
        for form, allowed in (RECORDED | HOUSEKEEPING).items():
            if re.fullmatch(form, f"{method} {path}") and names <= allowed:
                self.counts[form.replace(_NAME, "NAME").replace(r"\d+", "N")] += 1
                return
        raise StrayRequestError(f"{method} {target} is of no recorded form")


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_args: object) -> None:
        """Nothing: the run's output is its steps."""


@contextmanager
def listening() -> Iterator[_Server]:
    """Listens at once, and answers once `answering` runs: its address is needed before Django is set up."""
    server = make_server("127.0.0.1", 0, _not_yet, server_class=_Server, handler_class=_Quiet)
    try:
        yield server
    finally:
        server.server_close()


def _not_yet(_environ: object, _start_response: object) -> list[bytes]:
    raise RuntimeError("the service is not set up")


@contextmanager
def answering(server: _Server) -> Iterator[None]:
    server.set_app(get_wsgi_application())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


_END_SECONDS = 10
_POLL_SECONDS = 0.1
# Where agents, Jenkins' and ours, write when nobody tells them otherwise, and how what they make there begins.
_STATE = Path("/var/lib")
_DEFAULTS = ("tidemark*", "jenkins*")
# Names with the run's prefix are looked for here, and in the home directory, so many folders deep.
_WRITABLE = (_STATE, Path("/var/tmp"), Path("/tmp"))  # noqa: S108 (only looked at)
_DEPTH = 2
DEFAULT_COMMAND = "java -jar {jar} -url {url} -name {name} -secret @{secret} -webSocket -workDir {folder}"


class Agents(Protocol):
    """What the run asks of a node's Jenkins agent."""

    def start(self, node: str, secret: str) -> None: ...

    def kill(self, node: str) -> None:
        """As a crash would: SIGKILL."""

    def stop_all(self) -> list[str]:
        """End all; returns which there were."""


class ProcessAgents:
    """Agents as processes of this host. `jar` is fetched only where the command names it."""

    def __init__(self, command: str, url: str, folder: Path, jar: Path) -> None:
        self._command = command
        self._url = url
        self._folder = folder
        self._jar = jar
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, node: str, secret: str) -> None:
        place = self._folder / "jenkins" / node
        place.mkdir(parents=True, exist_ok=True)
        file = place / "secret"
        file.touch(mode=0o600)
        file.write_text(secret, encoding="ascii")
        values = {"jar": str(self._jar), "url": self._url, "name": node, "secret": str(file), "folder": str(place)}
        with (place / "log").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                _words(self._command, values), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, node: str) -> None:
        self._end(node, signal.SIGKILL)

    def stop_all(self) -> list[str]:
        names = list(self._processes)
        for node in names:
            self._end(node, signal.SIGTERM)
        return names

    def _end(self, node: str, number: signal.Signals) -> None:
        process = self._processes.pop(node)
        process.send_signal(number)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _words(command: str, values: Mapping[str, str]) -> list[str]:
    return [word.format(**values) for word in shlex.split(command)]


def missing_program(command: str) -> str:
    """The program that the command needs and PATH has not; empty if it has."""
    program = shlex.split(command)[0]
    return "" if shutil.which(program) else program


def is_working(state: Path, key: str) -> bool:
    """Whether a process of our own agent works on the key: it holds the lock for so long."""
    try:
        with (state / f"{key}.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def kill_tidemark_agent(state: Path, key: str) -> int:
    """SIGKILL to the agent that works on the key, as its lock file tells; its pid, 0 if there is none."""
    lock = state / f"{key}.lock"
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        pid = int(lock.read_text(encoding="ascii").strip())
        if pid > 1:
            os.kill(pid, signal.SIGKILL)
            return pid
    return 0


@contextmanager
def own_folder(prefix: str, report: Report) -> Iterator[Path]:
    """A folder for all that the run writes. Afterwards it is gone, and the report says what of the run is left.

    A lab that works on this host may be writing all the time: only what bears the run's prefix, and places that were
    not there before, are the run's doing.
    """
    before = _default_places()
    living: list[str] = []
    try:
        with tempfile.TemporaryDirectory(prefix=f"tidemark-{prefix}", ignore_cleanup_errors=True) as name:
            try:
                yield Path(name)
            finally:
                living += _ended_at_last(name)
    finally:
        with report.step("nothing is left on this host") as step:
            left = [f"process {each}" for each in living]
            left += [str(path) for path in sorted(_default_places() - before)]
            left += [str(path) for root in (*_WRITABLE, Path.home()) for path in _named(root, prefix)]
            if left:
                raise StepError(f"left behind: {'; '.join(left)}")
            step.said = f"{name} is gone, and nothing lies elsewhere"


def _default_places() -> set[Path]:
    return {path for pattern in _DEFAULTS for path in _STATE.glob(pattern)}


def _named(root: Path, prefix: str) -> Iterator[Path]:
    """What has the prefix in its name; without links, and without what may not be looked into."""
    for folder, names, files in os.walk(root):
        place = Path(folder)
        yield from (place / name for name in (*names, *files) if prefix in name)
        if len(place.relative_to(root).parts) >= _DEPTH:
            names.clear()


def _ended_at_last(folder: str) -> list[str]:
    """Wait for what works in the folder, and kill what does not end; returns what that was, with its command."""
    end = time.monotonic() + _END_SECONDS
    while (living := _working_in(folder)) and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
    for pid in living:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"{pid} {command}" for pid, command in living.items()]


def _working_in(folder: str) -> dict[int, str]:
    """Processes that name the folder on their command line, as all of the run do."""
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            with suppress(OSError):
                command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", errors="replace")
                if f"{folder}/" in command:
                    found[int(place.name)] = command.strip()[:200]
    return found
