"""The site that is struck: a whole local stack with two web servers, a list archive, a git tree, a mail server, hosts.

Its state and its database lie on disks of their own, in memory, that can be made full; who may not mount leaves those
faults out.
"""

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

import django

from bench.archive.inbox import free_port
from bench.chaos.relay import Relay
from bench.chaos.study import BENCHMARK, NAME, STUDY, UARCHS
from bench.kit import ROOT
from demo.postings import LIST_ADDRESS, Archive
from demo.processes import git
from demo.sink import Store
from scripts.stack import Program, Stack, stack_down, stack_remove, stack_up
from scripts.stack.places import Places

LOCAL = ROOT / ".local" / "chaos"
SWEEP_SECONDS = 5
_LEASE_SECONDS = 30
# The service keeps 2 GB of each disk free; pages of such a disk that hold nothing take no memory.
_DISK = "6g"
BUILDER = "builder-1"
HOSTS = (BUILDER, *(f"{uarch}-1" for uarch in UARCHS))
AUTHOR = "chaos@tidemark.example"
# In every head of the tree.
PLAIN_FILE = "plain.c"


@dataclass
class Disk:
    """One that is mounted for the run; `is_there` is false where this user may not mount."""

    folder: Path
    is_there: bool = False

    def mount(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        words = ["mount", "-t", "tmpfs", "-o", f"size={_DISK},mode=0700", "tidemark-chaos", str(self.folder)]
        self.is_there = _runs(words)

    def fill(self) -> bool:
        """It shrinks to what is used."""
        return self.is_there and _runs(["mount", "-o", f"remount,size={self._used()}", str(self.folder)])

    def empty(self) -> None:
        _runs(["mount", "-o", f"remount,size={_DISK}", str(self.folder)])

    def unmount(self) -> None:
        if self.is_there:
            _runs(["umount", "-l", str(self.folder)])

    def _used(self) -> int:
        found = os.statvfs(self.folder)
        return (found.f_blocks - found.f_bfree) * found.f_frsize


def _runs(words: list[str]) -> bool:
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@dataclass
class Stage:
    """`crews` are hosts that are one program together; `more` settings of this stage, `sections` of its site file."""

    seed: int
    local: Path = LOCAL
    crews: tuple[tuple[str, ...], ...] = tuple((host,) for host in HOSTS)
    more: Mapping[str, str] = field(default_factory=dict)
    sections: str = ""
    web_port: int = field(default_factory=free_port)
    second_port: int = field(default_factory=free_port)
    relay_port: int = field(default_factory=free_port)
    sink_port: int = field(default_factory=free_port)
    archive_port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.places = Places(ROOT, self.local)
        self.state_disk = Disk(self.local / "state")
        self.database_disk = Disk(self.local / "postgres")
        self.archive = Archive(self.local / "archive", self.archive_port)
        self.sink = Store(self.local / "mails")
        self.relay = Relay(self.relay_port, (self.web_port, self.second_port))

    @property
    def tree(self) -> Path:
        return self.local / "tree.git"

    @property
    def journals(self) -> Path:
        return self.local / "hosts"

    @property
    def temporary(self) -> Path:
        """Where programs of the stack put what they have for a moment."""
        return self.local / "tmp"

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(host for crew in self.crews for host in crew)

    def journal(self, host: str) -> Path:
        return self.journals / f"{host}.journal"

    def start(self) -> Stack:
        for disk in (self.state_disk, self.database_disk):
            disk.mount()
        for folder in (self.journals, self.temporary, self.archive.folder, self.sink.folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.archive.prepare()
        _make_tree(self.tree)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
        environ |= {"TIDEMARK_PORT": str(self.web_port), "TMPDIR": str(self.temporary)}
        settings = {**self._settings(), **self.more}
        return stack_up(ROOT, local=self.local, environ=environ, settings=settings, extra_programs=self._programs())

    def _settings(self) -> dict[str, str]:
        return {
            "TIDEMARK_DISPATCHER": "pull",
            "TIDEMARK_SWEEP_SECONDS": str(SWEEP_SECONDS),
            "TIDEMARK_LEASE_SECONDS": str(_LEASE_SECONDS),
            "TIDEMARK_NOISE_HOURS": "0",
            "TIDEMARK_MAIL_ENABLED": "1",
            "TIDEMARK_MAIL_FROM": "Tidemark <tidemark@tidemark.example>",
            "TIDEMARK_MAIL_HOURLY_CAP": "100000",
            "TIDEMARK_MAIL_SINK": f"127.0.0.1:{self.sink_port}",
            "TIDEMARK_SMTP_HOST": "127.0.0.1",
            "TIDEMARK_SMTP_PORT": str(self.sink_port),
        }

    def _programs(self) -> list[Program]:
        python = sys.executable
        second = ("-m", "gunicorn", "--config", "python:server.web.process", "--bind", f"127.0.0.1:{self.second_port}")
        sink = ("-m", "demo.sink", "--port", str(self.sink_port), "--dir", str(self.sink.folder))
        return [
            Program("web-2", (python, *second, "--graceful-timeout", "3"), start_seconds=2),
            Program("sink", (python, *sink)),
            Program("archive", self.archive.server(), env=self.archive.environment()),
            *(Program(f"host-{crew[0]}", self._crew(crew), env={"PYTHONPATH": ".:agents"}) for crew in self.crews),
        ]

    def _crew(self, names: tuple[str, ...]) -> tuple[str, ...]:
        server = f"http://127.0.0.1:{self.relay_port}"
        words = ("-m", "bench.chaos.host_program", *names, "--server", server, "--folder", str(self.journals))
        return (sys.executable, *words, "--seed", str(self.seed))

    def register(self) -> None:
        """The site's rows, as an operator makes them; Django is set up on the stack's database."""
        from django.core.management import call_command  # noqa: PLC0415

        from demo.lab.replay.series import enlist  # noqa: PLC0415
        from server.core.access.tokens import issue_token  # noqa: PLC0415
        from server.core.models import ApiToken  # noqa: PLC0415
        from server.sources.models import MeasureRule  # noqa: PLC0415

        tokens = enlist([STUDY], Counter(host.rpartition("-")[0] for host in self.hosts))
        MeasureRule.objects.update_or_create(pattern="**", defaults={"benchmarks": [BENCHMARK], "enabled": True})
        site = self.local / "site.toml"
        site.write_text(_SITE.format(tree=self.tree.as_uri(), archive=self.archive.url) + self.sections)
        call_command("load_site", str(site), stdout=StringIO())
        tokens[BUILDER] = issue_token(name=BUILDER, scope=ApiToken.Scope.BUILDER, subject=BUILDER)
        for name in self.hosts:
            part = self.journals / f"{name}.part"
            part.write_text(tokens[name], encoding="ascii")
            part.rename(self.journals / f"{name}.token")


_SITE = f"""
[[builder]]
name = "{BUILDER}"
arches = ["x86_64"]
capacity = 1

[[sender]]
address = "{AUTHOR}"
note = "who posts while parts fail"

[[tree]]
name = "{NAME}"
url = "{{tree}}"
branches = ["master"]
poll_seconds = 10

[[list]]
name = "{NAME}-list"
url = "{{archive}}"
address = "{LIST_ADDRESS}"
tree = "{NAME}"
proof = "archive"
moderated = false
poll_seconds = 2
"""


def _make_tree(folder: Path) -> None:
    """A tree whose files tell the simulated builder which kernel it is."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--bare", "--initial-branch=master")
    push_head(folder, 0)


def push_head(folder: Path, number: int) -> str:
    """One commit more on the branch; its hash."""
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=f"head {number}\n".encode())
    empty = git(folder, "hash-object", "-w", "--stdin", stdin=b"")
    names = (
        f"100644 blob {blob}\tMakefile\n100644 blob {empty}\t{PLAIN_FILE}\n100644 blob {empty}\tstudy-{STUDY.name}\n"
    )
    tree = git(folder, "mktree", stdin=names.encode())
    parents = ("-p", "refs/heads/master") if number else ()
    sha = git(folder, "commit-tree", tree, *parents, "-m", f"chaos: Head {number}")
    git(folder, "update-ref", "refs/heads/master", sha)
    return sha


@contextmanager
def staged(stage: Stage, *, keep: bool) -> Iterator[None]:
    """The site runs, and Django is set up on it; at its end all of it is gone, with `keep` only its processes."""
    stack_down(ROOT, local=stage.local)
    for disk in (stage.state_disk, stage.database_disk):
        # Of a run that left its files.
        disk.is_there = disk.folder.is_mount()
        disk.unmount()
    stack_remove(ROOT, local=stage.local)
    stage.local.mkdir(parents=True)
    try:
        stage.relay.join()
        stack = stage.start()
        os.environ["TIDEMARK_ENV_FILE"] = stack.env_file
        os.environ["DJANGO_SETTINGS_MODULE"] = "server.settings"
        os.environ["TIDEMARK_PROCESS"] = "bench"
        django.setup()
        logging.disable(logging.CRITICAL)
        stage.register()
        yield
    finally:
        _end(stage, keep=keep)


def _end(stage: Stage, *, keep: bool) -> None:
    stage.relay.cut()
    stack_down(ROOT, local=stage.local)
    if keep:
        print(f"left in {stage.local}: logs, journals, mails")
        return
    for disk in (stage.state_disk, stage.database_disk):
        disk.unmount()
    stack_remove(ROOT, local=stage.local)
