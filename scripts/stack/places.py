"""Where a stack keeps its files."""

import re
import stat
import tempfile
from dataclasses import dataclass
from os import getuid
from pathlib import Path

# A socket's address holds 107 bytes; supervisor's own temporary name is the longest that follows the directory.
_LONGEST_DIRECTORY = 107 - len("/supervisor.sock.4194304")
# What stands in URLs, a configuration file and a shell alike without quoting.
_PLAIN = re.compile(r"[A-Za-z0-9/._-]+")
_OWNER_ONLY = 0o700


@dataclass(frozen=True)
class Places:
    """`root` is the checkout, `local` the directory of this stack; both absolute."""

    root: Path
    local: Path

    @property
    def run(self) -> Path:
        return self.local / "run"

    @property
    def log(self) -> Path:
        return self.local / "log"

    @property
    def env_file(self) -> Path:
        return self.local / "env"

    @property
    def record(self) -> Path:
        """What the last `up` started: pid, address, programs."""
        return self.run / "stack.json"

    @property
    def configuration(self) -> Path:
        return self.run / "supervisord.conf"

    def make(self) -> None:
        self.local.mkdir(parents=True, exist_ok=True)
        for folder in (self.run, self.log):
            folder.mkdir(mode=_OWNER_ONLY, exist_ok=True)
            folder.chmod(_OWNER_ONLY)

    def sockets(self) -> Path:
        """A private directory whose path is short and plain enough for sockets; the same one at every call."""
        if len(str(self.run)) <= _LONGEST_DIRECTORY and _PLAIN.fullmatch(str(self.run)):
            return self.run
        note = self.run / "sockets"
        if note.exists():
            known = Path(note.read_text(encoding="utf-8").strip())
            if _is_private(known):
                return known
        made = Path(tempfile.mkdtemp(prefix="tidemark-", dir="/tmp"))
        note.write_text(f"{made}\n", encoding="utf-8")
        return made


def _is_private(folder: Path) -> bool:
    """Whether it is ours alone: /tmp is everybody's, and a name there may have changed hands after a reboot."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == getuid() and stat.S_IMODE(found.st_mode) == _OWNER_ONLY
