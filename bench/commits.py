"""Commits made by the hundred: edits of real files, written by one `git fast-import` per repository."""

import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from demo.processes import IDENTITY, git, git_environment

# Files outside of these sizes are tables, or too little to be edited in three places.
_SHORTEST, _LONGEST = 3_000, 400_000


@dataclass(frozen=True)
class Edit:
    """One commit to be: files with their new content."""

    message: str
    files: dict[str, bytes]


@dataclass
class Importer:
    """Collects commits for `repository`; nothing is written before `write`."""

    repository: Path
    clock: int
    parts: list[bytes] = field(default_factory=list)

    def add(self, ref: str, parent: str, edits: Sequence[Edit]) -> None:
        """A line of commits above `parent`, at whose end `ref` shall stand; each is a minute younger than the last."""
        for number, edit in enumerate(edits):
            self.clock += 60
            text = edit.message.encode()
            head = f"commit {ref}\nauthor {IDENTITY} {self.clock} +0000\ncommitter {IDENTITY} {self.clock} +0000\n"
            self.parts.append(head.encode() + b"data %d\n%s\n" % (len(text), text))
            if number == 0:
                self.parts.append(f"from {parent}\n".encode())
            for path, content in edit.files.items():
                self.parts.append(f"M 100644 inline {path}\n".encode() + b"data %d\n%s\n" % (len(content), content))

    def write(self) -> None:
        command = ["git", "-C", str(self.repository), "fast-import", "--quiet", "--force"]
        subprocess.run(command, input=b"".join(self.parts), check=True, env=git_environment())
        self.parts.clear()


class Files:
    """Sources at commits, read once each."""

    def __init__(self, repository: Path) -> None:
        self.repository = repository
        self.names: dict[tuple[str, str], list[str]] = {}
        self.contents: dict[tuple[str, str], bytes] = {}

    def below(self, commit: str, folder: str) -> list[str]:
        """C files and headers of common size below `folder`."""
        if (commit, folder) not in self.names:
            lines = git(self.repository, "ls-tree", "-r", "-l", commit, f"{folder}/").splitlines()
            entries = [(line.partition("\t")[2], line.split()) for line in lines]
            chosen = [name for name, words in entries if words[0] == "100644" and _SHORTEST < int(words[3]) < _LONGEST]
            self.names[commit, folder] = [name for name in chosen if name.endswith((".c", ".h"))]
        return self.names[commit, folder]

    def read(self, commit: str, path: str) -> bytes:
        if (commit, path) not in self.contents:
            command = ["git", "-C", str(self.repository), "cat-file", "blob", f"{commit}:{path}"]
            self.contents[commit, path] = subprocess.run(
                command, capture_output=True, check=True, env=git_environment()
            ).stdout
        return self.contents[commit, path]


def edited(content: bytes, dice: random.Random, serial: int) -> bytes:
    """One to three small changes of statements: one more, one with other words, one less."""
    lines = content.splitlines(keepends=True)
    statements = [n for n, line in enumerate(lines) if line.startswith(b"\t") and line.endswith(b";\n")]
    for place in sorted(dice.sample(statements, min(len(statements), dice.randint(1, 3))), reverse=True):
        kind = dice.choice(("more", "other", "less"))
        if kind == "more":
            lines.insert(place + 1, b"\tbarrier_data(&bench_%d);\n" % serial)
        elif kind == "other":
            lines[place] = lines[place].rstrip(b"\n") + b" /* bench %d */\n" % serial
        else:
            del lines[place]
    return b"".join(lines) if statements else content + b"/* bench %d */\n" % serial


def shifted(content: bytes, dice: random.Random, serial: int) -> bytes:
    """What another patch of the author's did near the top: the same lines further down, in a file nobody else has."""
    lines = content.splitlines(keepends=True)
    place = next((n for n, line in enumerate(lines) if n > 0 and line == b"\n"), 0)
    more = [b"/* bench %d: line %d of a local patch */\n" % (serial, n) for n in range(dice.randint(5, 40))]
    return b"".join([*lines[: place + 1], *more, *lines[place + 1 :]])
