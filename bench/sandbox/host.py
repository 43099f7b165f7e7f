"""The host around builds that try to escape, and builds that take too much."""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_agent.build.kernel import BuildOutcome, KernelBuilder
from tidemark_agent.log import Log
from tidemark_agent.wire.assignment import BuildJob, read_assignment


@dataclass(frozen=True)
class Flood:
    """`script` is what make runs (Python); `reason` is in the reason with which the build must have ended."""

    name: str
    script: str
    reason: str
    seconds: float = 60.0


_FORK = """
# Enough to be far beyond the limit, and no more: where the sandbox is broken the host is to live.
for _ in range(12):
    try: os.fork()
    except OSError: time.sleep(0.01)
time.sleep(99)
"""
_THREADS = """
import threading
threading.stack_size(65536)
for _ in range(4000):
    try: threading.Thread(target=time.sleep, args=(99,)).start()
    except RuntimeError: time.sleep(0.1)
"""
_MEMORY = """
for _ in range(12):
    if os.fork() == 0:
        x = bytearray(b"x" * (100 << 20))
        time.sleep(99)
time.sleep(99)
"""
_OPEN = """
for _ in range(130):
    if os.fork() == 0:
        for _ in range(3600): os.dup(0)
        time.sleep(99)
time.sleep(99)
"""
_EMPTY = """
for i in range(400_000): open(f"/tmp/{i}", "w").close()
"""
_FILL = """
with open({place!r}, "wb") as f:
    while True: f.write(b"x" * (1 << 20))
"""
_FILES = """
i = 0
while True:
    i += 1
    with open(f"fill{i}", "wb") as f: f.write(b"x" * 4096)
"""
_DEEP = """
while True:
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
    with open("f", "wb") as f: f.write(b"x" * (4 << 20))
"""
_DEAF = """
import signal
for n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)
while True: time.sleep(9)
"""
_NOISE = """
while True: os.write(1, b"noise " * 9999 + b"\\n")
"""
_TRAPS = """
os.mkfifo("System.map")
os.makedirs("arch/x86/boot")
os.symlink("/etc/shadow", "arch/x86/boot/bzImage")
os.symlink("/etc/shadow", "vmlinux")
os.unlink(".config")
os.mkfifo(".config")
os.makedirs("locked/in")
os.chmod("locked", 0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: time.sleep(9)
time.sleep(0.3)
"""

FLOODS = (
    Flood("fork bomb", _FORK, "processes and threads"),
    Flood("threads without end", _THREADS, "processes and threads"),
    Flood("memory, one process", "x = bytearray(4 << 30)", "Error 1"),
    Flood("memory, many processes", _MEMORY, "of memory"),
    Flood("memory in buffers of sockets", "import socket; socket.socketpair()", "Error 1"),
    Flood("open files, many processes", _OPEN, "files open"),
    Flood("memory in files without content", _EMPTY, "Error 1"),
    Flood("memory below /tmp", _FILL.format(place="/tmp/fill"), "Error 1"),  # noqa: S108 (the sandbox's own)
    Flood("disk, one file", _FILL.format(place="fill"), "of disk"),
    Flood("disk, many files", _FILES, "of disk"),
    Flood("disk, hidden below deep directories", _DEEP, "of disk|deeper"),
    Flood("hangs, deaf to signals", _DEAF, "not built within", seconds=3.0),
    Flood("computes for ever", "while True: pass", "Error 137", seconds=30.0),
    Flood("leaves traps and a daemon", _TRAPS, "left a link|no plain file|left no"),
    Flood("prints for ever", _NOISE, "not built within", seconds=3.0),
)


SECRET = "tm_0a1b2c_opens-the-lab"  # noqa: S105 (opens nothing)
# make's targets that every build asks for, and one that does what the build is here for.
_MAKEFILE = """\
allnoconfig olddefconfig:
\t@touch $(O)/.config
bzImage:
\t@cd $(O) && python3 $(CURDIR)/act.py {words}
"""
_MERGE = "#!/bin/sh\ntrue\n"


class Quiet:
    """A log that nobody reads."""

    def write(self, _text: str, /) -> None:
        """Nothing."""

    def flush(self) -> None:
        """Nothing."""


@dataclass
class Host:
    """`folder` holds everything; `heard` is what reached the listeners."""

    folder: Path
    words: dict[str, str] = field(default_factory=dict)
    heard: list[str] = field(default_factory=list)

    def places(self) -> list[Path]:
        """Where a build would have planted something on this host."""
        folders = [Path.home(), Path("/usr/bin"), Path("/etc"), Path("/"), Path("/dev"), self.folder / "state"]
        folders += [self.folder / "tree", self.folder / "state/work/tiny/src", self.folder / "state/ccache"]
        return [folder / name for folder in folders for name in ("planted", ".planted")]

    def build(
        self, act: str, *, limits: Mapping[str, int] | None = None, seconds: float = 60.0, series: bool = True
    ) -> tuple[BuildOutcome, str]:
        """Build a tree in which make runs `act`, a Python program; how it ended, and its whole log."""
        tree = self.folder / "tree"
        shown = " ".join(f"'{name}={value}'" for name, value in self.words.items())
        commit = _commit(tree, {"Makefile": _MAKEFILE.format(words=shown), "act.py": act})
        ref = "refs/tidemark/series/1/1" if series else "refs/tidemark/trees/tiny/main"
        builder = KernelBuilder(
            job=_job(tree, commit, ref, seconds, limits or {}),
            work=self.folder / "state/work",
            ccache=self.folder / "state/ccache",
            log=Log(Quiet()),
            stop=threading.Event(),
            progress=lambda _text: None,
        )
        with builder.built() as outcome:
            log = outcome.files.get("log")
            return outcome, log.read_text(errors="replace") if log else ""


def _job(tree: Path, commit: str, ref: str, seconds: float, limits: Mapping[str, int]) -> BuildJob:
    build = {
        "git_url": str(tree),
        "ref": ref,
        "commit": commit,
        "tree": "tiny",
        "arch": "x86_64",
        "compiler": "gcc",
        "timeout_seconds": seconds,
        "jobs": 1,
        "sandbox": "bwrap",
        "cgroup": "optional",
        "config": {"name": "tiny", "base": "allnoconfig", "fragment": ""},
        "limits": dict(limits),
    }
    about = {"kind": "build", "key": "build-1-1", "trace": "t", "lease_seconds": 60, "build": build}
    job = read_assignment(about).job
    assert isinstance(job, BuildJob)
    return job


def _commit(tree: Path, files: Mapping[str, str]) -> str:
    git = ["git", "-C", str(tree), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    if not tree.exists():
        subprocess.run(["git", "init", "-q", str(tree)], check=True)
        script = tree / "scripts/kconfig/merge_config.sh"
        script.parent.mkdir(parents=True)
        script.write_text(_MERGE)
        script.chmod(0o755)
    for name, text in files.items():
        (tree / name).write_text(text)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "act"], check=True)
    for ref in ("refs/tidemark/series/1/1", "refs/tidemark/trees/tiny/main"):
        subprocess.run([*git, "update-ref", ref, "HEAD"], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def hostile_host(folder: Path) -> Iterator[Host]:
    """A host with everything that is worth stealing, and listeners that note who comes."""
    host = Host(folder)
    token = folder / "token"
    token.write_text(SECRET)
    state = folder / "state"
    state.mkdir(mode=0o700)
    with contextlib.ExitStack() as stack:
        abstract = f"tidemark-{secrets.token_hex(8)}"
        port = _listen(host, abstract, stack)
        stack.enter_context(_holder_of_secrets(token))
        host.words = {
            "token": str(token),
            "secret": f"{SECRET[:8]}/{SECRET[8:]}",
            "agent": str(os.getpid()),
            "source": "/build/src",
            "objects": "/build/obj",
            "ccache": "/build/ccache",
            "home": str(Path.home()),
            "state": str(state),
            "port": str(port),
            "address": _own_address(),
            "socket": str(folder / "socket"),
            "abstract": abstract,
        }
        yield host


def _listen(host: Host, abstract: str, stack: contextlib.ExitStack) -> int:
    """Listeners on IPv4, IPv6, a unix and an abstract socket; the port of the first two."""
    anywhere = stack.enter_context(socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True))
    lines = [anywhere]
    for address in (str(host.folder / "socket"), f"\0{abstract}"):
        line = stack.enter_context(socket.socket(socket.AF_UNIX))
        line.bind(address)
        line.listen()
        lines.append(line)
    for line in lines:
        threading.Thread(target=_answer, args=(host, line), daemon=True).start()
    return int(anywhere.getsockname()[1])


def _answer(host: Host, line: socket.socket) -> None:
    while True:
        try:
            guest, address = line.accept()
        except OSError:
            return
        host.heard.append(repr(address))
        with guest:
            guest.sendall(b"welcome")


@contextlib.contextmanager
def _holder_of_secrets(token: Path) -> Iterator[None]:
    """A process of the same user with the secret in its environment and in an open file."""
    code = f"import time; f = open({str(token)!r}); print(1, flush=True); time.sleep(600)"
    environment = {"PATH": os.environ["PATH"], "TIDEMARK_TOKEN": SECRET}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            yield
        finally:
            holder.kill()


def _own_address() -> str:
    """The address of this host in its network."""
    said = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout.split()
    return said[0] if said else "127.0.0.1"


def left_over(word: str) -> list[int]:
    """Processes of this host that have `word` on their command line, but this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found
