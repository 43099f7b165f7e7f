"""The demo's lab as hosts that ask for work: what docs/operations/without-jenkins.md has an operator do, done here.

One agent for each machine and one builder, each with a configuration and a token of its own, enrolled by a code, let in
by name. They are programs of the stack, as they are units of systemd on real hosts.
"""

import io
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from demo.processes import ADDRESS, DemoError, run
from scripts.stack import Program

BUILDER = "forge"
_OPERATOR = ADDRESS.partition("@")[0]
_COMMAND = "tidemark-agent enrol "
_SECONDS = 60
_GOODBYE_SECONDS = 20


@dataclass(frozen=True)
class Hosts:
    """`names` are those of the machines; all that is theirs lies in `folder`."""

    folder: Path
    names: tuple[str, ...]
    ccache: Path

    @property
    def agent(self) -> Path:
        return self.folder / "tidemark-agent.pyz"

    def programs(self) -> tuple[Program, ...]:
        """An agent for each, which begins as soon as its host is enrolled."""
        return tuple(self._program(name) for name in (*self.names, BUILDER))

    def _program(self, name: str) -> Program:
        file = self._configuration(name)
        words = 'until [ -s "$1" ]; do sleep 1; done; exec "$2" "$3" service --config "$1"'
        argv = ("/bin/sh", "-c", words, "host", str(file), sys.executable, str(self.agent))
        return Program(f"host-{name}", argv, stop_seconds=_GOODBYE_SECONDS)

    def enrol(self, root: Path) -> None:
        """Enrol those that are not yet, and let them in; Django is set up."""
        if not self.agent.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            run([sys.executable, root / "scripts" / "build_agent.py", self.agent])
        for name in (*self.names, BUILDER):
            if not self._configuration(name).exists():
                self._enrol_one(name)

    def _enrol_one(self, name: str) -> None:
        told = _manage("enrol_machine", name, "--by", _OPERATOR)
        said = next((line for line in map(str.strip, told.splitlines()) if line.startswith(_COMMAND)), "")
        waiting = self._configuration(name).with_suffix(".new")
        words = [*said.split()[1:], "--config", str(waiting), "--state-dir", str(self.folder / name / "state")]
        done = _patiently([sys.executable, str(self.agent), *words])
        if done.returncode != 0:
            raise DemoError(f"{name} could not be enrolled: {done.stderr.strip()}")
        if name == BUILDER:
            waiting.write_text(f'{waiting.read_text()}\n[build]\nccache = "{self.ccache}"\n', encoding="utf-8")
        command = "builder" if name == BUILDER else "machine"
        _manage(command, name, "--release", "it is the demo's own", "--by", _OPERATOR)
        # The agent begins now.
        waiting.rename(self._configuration(name))

    def _configuration(self, name: str) -> Path:
        return self.folder / name / "agent.toml"


def _patiently(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Try again for a while where the service did not answer."""
    deadline = time.monotonic() + _SECONDS
    while True:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 75 or time.monotonic() > deadline:  # noqa: PLR2004 (sysexits' word for it)
            return done
        time.sleep(1)


def _manage(*words: str) -> str:
    from django.core.management import call_command  # noqa: PLC0415 (needs the service's settings)
    from django.core.management.base import CommandError  # noqa: PLC0415

    out = io.StringIO()
    try:
        call_command(*words, stdout=out)
    except CommandError as error:
        raise DemoError(f"{' '.join(words[:2])}: {error}") from error
    return out.getvalue()
