"""One checkout of a tree, moved from commit to commit: only files that differ change, so builds are incremental.

What is built is a function of the commit's tree alone. No attribute of a tree, which its author writes, changes how
git puts files down, and before each build every file is compared with the tree (build/source.py).
"""

import os
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from tidemark_agent.build.source import first_difference, read_listing
from tidemark_agent.errors import InfrastructureError, KilledError
from tidemark_agent.log import Log
from tidemark_agent.process import capture, capture_bytes, clean_environment, heed_stop
from tidemark_agent.removal import remove_tree

_GIT_SECONDS = 900.0
_FETCHED = "refs/tidemark-agent/wanted"
# Stronger than every .gitattributes of a tree: git writes blobs as they are. A series could otherwise give files other
# line ends, and git leaves files alone that the next commit does not change, with whatever they were written as.
_ATTRIBUTES = "* -text !eol !ident !filter !working-tree-encoding\n"
_LINK = b"120000"
_INCLUDED = (b".h", b".inc", b".S")
# A lock of git that a killed agent left: only the holder of the tree's lock works here.
_LOCKS = ("index.lock", "HEAD.lock", "shallow.lock", "config.lock")


class _SpoiledError(Exception):
    """The checkout cannot be brought to the commit: nothing in it is worth keeping."""


class _Asking(TypedDict):
    """How git is run in the checkout."""

    scratch: Path
    timeout: float
    stop: threading.Event
    environment: Mapping[str, str]
    directory: Path


@dataclass(frozen=True)
class Checkout:
    """The source of one tree in `source`; the caller holds the tree's lock."""

    source: Path
    scratch: Path
    stop: threading.Event
    log: Log
    credentials: Path | None = None

    def move_to(self, commit: str, *, git_url: str, ref: str) -> None:
        """Put exactly the files of `commit` into the checkout, and prove it.

        A checkout that git cannot bring there, or that differs from the tree, is made anew once. InfrastructureError
        when that does not help: whatever it is, the commit is not to blame. A stop leaves the checkout as it is.
        """
        try:
            self._bring_to(commit, git_url, ref)
        except _SpoiledError as first:
            self.log.warning("checkout-remade", reason=str(first))
            remove_tree(self.source)
            try:
                self._bring_to(commit, git_url, ref)
            except _SpoiledError as error:
                remove_tree(self.source)
                raise InfrastructureError(f"commit {commit} cannot be checked out: {error}") from error

    def known_symbols(self, commit: str, symbols: Sequence[str]) -> frozenset[str]:
        """Those of `symbols` (CONFIG_...) that some Kconfig file of `commit` defines."""
        names = "|".join(symbol.removeprefix("CONFIG_") for symbol in symbols)
        pattern = rf"^[[:space:]]*(menu)?config[[:space:]]+({names})[[:space:]]*$"
        try:
            found = self._git("grep", "-hE", pattern, commit, "--", "*Kconfig*")
        except KilledError:
            raise
        except InfrastructureError:
            # It ends with 1 when it finds nothing.
            return frozenset()
        return frozenset(f"CONFIG_{line.split()[-1]}" for line in found.splitlines() if line.strip())

    def may_shadow(self, old: str, new: str) -> bool:
        """Whether `new` has a file, that `old` has not, which the compiler may find where it found another one.

        make and ccache know which headers an object was made of, not which were looked for before them in vain.
        """
        try:
            raw = capture_bytes(["git", "diff-tree", "-r", "-z", "--no-renames", old, new], **self._asking)
        except KilledError:
            raise
        except InfrastructureError:
            # The mirror may have forgotten the old one.
            return True
        fields = raw.split(b"\0")
        changes = zip(fields[0::2], fields[1::2], strict=False)
        return any(_is_new_header(about.split(b" "), path) for about, path in changes)

    def _bring_to(self, commit: str, git_url: str, ref: str) -> None:
        self._prepare(git_url)
        if not self._has(commit):
            self._fetch(git_url, ref, commit)
        try:
            self._git("checkout", "--quiet", "--force", "--detach", commit)
            self._git("clean", "-ffdxq")
        except KilledError:
            # Git did not fail: something ends what runs here, and the next build goes on from where it was.
            raise
        except InfrastructureError as error:
            # A stop may have ended it in a way that it does not tell: the checkout is not thrown away for that.
            heed_stop(self.stop)
            raise _SpoiledError(str(error)) from error
        listing = capture_bytes(["git", "ls-tree", "-r", "-z", "--full-tree", commit], **self._asking)
        if difference := first_difference(self.source, read_listing(listing), stop=self.stop):
            raise _SpoiledError(difference)

    def _prepare(self, git_url: str) -> None:
        git_dir = self.source / ".git"
        if not (git_dir / "HEAD").is_file():
            self.source.mkdir(parents=True, exist_ok=True)
            self._git("init", "--quiet", "--template=", "--initial-branch=none", ".")
        for name in _LOCKS:
            (git_dir / name).unlink(missing_ok=True)
        (git_dir / "info").mkdir(exist_ok=True)
        (git_dir / "info" / "attributes").write_text(_ATTRIBUTES, encoding="ascii")
        objects = _local_objects(git_url)
        alternates = git_dir / "objects" / "info" / "alternates"
        if objects is None:
            alternates.unlink(missing_ok=True)
        else:
            alternates.parent.mkdir(parents=True, exist_ok=True)
            alternates.write_text(f"{objects}\n", encoding="utf-8")

    def _has(self, commit: str) -> bool:
        try:
            self._git("cat-file", "-e", f"{commit}^{{tree}}")
        except KilledError:
            raise
        except InfrastructureError:
            return False
        return True

    def _fetch(self, git_url: str, ref: str, commit: str) -> None:
        words = ("fetch", "--quiet", "--no-tags", "--force", "--", git_url, f"+{ref}:{_FETCHED}")
        asking: _Asking = {**self._asking, "environment": _git_environment(self.credentials)}
        capture(["git", *words], **asking)
        if not self._has(commit):
            raise InfrastructureError(f"commit {commit} is not in {ref} of {git_url}")

    def _git(self, *words: str) -> str:
        return capture(["git", *words], **self._asking)

    @property
    def _asking(self) -> _Asking:
        return {
            "scratch": self.scratch,
            "timeout": _GIT_SECONDS,
            "stop": self.stop,
            "environment": _git_environment(),
            "directory": self.source,
        }


def _is_new_header(about: list[bytes], path: bytes) -> bool:
    """Of one entry of `git diff-tree`: modes, hashes, status. A link may be a whole directory of headers."""
    return about[-1] in {b"A", b"T"} and (about[1] == _LINK or path.endswith(_INCLUDED))


def _git_environment(credentials: Path | None = None) -> Mapping[str, str]:
    """Git with no one's configuration, no hooks, no prompts; the operator's proxy is the one thing it may need.

    With `credentials` it may look into that file, through a pipe, for what opens the host that it asks; it never writes
    there, nor takes a line away that was refused.
    """
    settings = {
        "core.hooksPath": "/dev/null",
        "core.fsmonitor": "false",
        # Files as the tree has them, whatever the host's file system or a distribution prefers.
        "core.attributesFile": "/dev/null",
        "core.excludesFile": "/dev/null",
        "core.autocrlf": "false",
        "core.eol": "lf",
        "core.symlinks": "true",
        "core.fileMode": "true",
        "core.sparseCheckout": "false",
        "submodule.recurse": "false",
        "gc.auto": "0",
        "advice.detachedHead": "false",
        # The mirror may belong to the service's user; the server named it, so it is trusted.
        "safe.directory": "*",
    }
    if credentials is not None:
        place = shlex.quote(str(credentials))
        settings["credential.helper"] = f'!f() {{ test "$1" != get || git credential-store --file={place} get; }}; f'
    environment = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        # A ref of the mirror must not put another object in place of the one that is named.
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
        "GIT_CONFIG_COUNT": str(len(settings)),
    }
    for index, (name, value) in enumerate(settings.items()):
        environment[f"GIT_CONFIG_KEY_{index}"] = name
        environment[f"GIT_CONFIG_VALUE_{index}"] = value
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        if name in os.environ:
            environment[name] = os.environ[name]
    return clean_environment(environment)


def _local_objects(git_url: str) -> Path | None:
    """The object directory of a repository on this host, whose objects are then borrowed, not copied."""
    path = Path(git_url.removeprefix("file://"))
    if not path.is_absolute():
        return None
    for candidate in (path / "objects", path / ".git" / "objects"):
        if candidate.is_dir():
            return candidate.resolve()
    raise InfrastructureError(f"{git_url} is no git repository on this host")
