"""One checkout of a tree, moved from commit to commit: only files that differ change, so builds are incremental."""

import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.log import Log
from tidemark_agent.process import capture, clean_environment

_GIT_SECONDS = 900.0
_FETCHED = "refs/tidemark-agent/wanted"


@dataclass(frozen=True)
class Checkout:
    """The source of one tree in `source`; the caller holds the tree's lock."""

    source: Path
    scratch: Path
    stop: threading.Event
    log: Log

    def move_to(self, commit: str, *, git_url: str, ref: str) -> None:
        """Put exactly the files of `commit` into the checkout."""
        self._prepare(git_url)
        if not self._has(commit):
            self._fetch(git_url, ref, commit)
        try:
            self._switch(commit)
        except InfrastructureError as error:
            # A checkout that git itself cannot repair is made anew: nothing in it is worth keeping.
            self.log.warning("checkout-remade", reason=str(error))
            shutil.rmtree(self.source)
            self._prepare(git_url)
            if not self._has(commit):
                self._fetch(git_url, ref, commit)
            self._switch(commit)

    def config_inputs(self, commit: str) -> str:
        """The names and hashes of all files that decide how the configuration comes out."""
        listing = self._git("ls-tree", "-r", commit)
        lines = (line for line in listing.splitlines() if _is_config_input(line.partition("\t")[2]))
        return "\n".join(lines)

    def known_symbols(self, commit: str, symbols: Sequence[str]) -> frozenset[str]:
        """Those of `symbols` (CONFIG_...) that some Kconfig file of `commit` defines."""
        names = "|".join(symbol.removeprefix("CONFIG_") for symbol in symbols)
        pattern = rf"^[[:space:]]*(menu)?config[[:space:]]+({names})[[:space:]]*$"
        try:
            found = self._git("grep", "-hE", pattern, commit, "--", "*Kconfig*")
        except InfrastructureError:
            # It ends with 1 when it finds nothing.
            return frozenset()
        return frozenset(f"CONFIG_{line.split()[-1]}" for line in found.splitlines() if line.strip())

    def _prepare(self, git_url: str) -> None:
        if not (self.source / ".git" / "HEAD").is_file():
            self.source.mkdir(parents=True, exist_ok=True)
            self._git("init", "--quiet", "--initial-branch=none", ".")
        # Only the holder of the tree's lock works here, so a lock file of git is one that a killed agent left.
        for name in ("index.lock", "HEAD.lock", "shallow.lock"):
            (self.source / ".git" / name).unlink(missing_ok=True)
        objects = _local_objects(git_url)
        alternates = self.source / ".git" / "objects" / "info" / "alternates"
        if objects is None:
            alternates.unlink(missing_ok=True)
        else:
            alternates.parent.mkdir(parents=True, exist_ok=True)
            alternates.write_text(f"{objects}\n", encoding="utf-8")

    def _has(self, commit: str) -> bool:
        try:
            self._git("cat-file", "-e", f"{commit}^{{tree}}")
        except InfrastructureError:
            return False
        return True

    def _fetch(self, git_url: str, ref: str, commit: str) -> None:
        self._git("fetch", "--quiet", "--no-tags", "--force", "--", git_url, f"+{ref}:{_FETCHED}")
        if not self._has(commit):
            raise InfrastructureError(f"commit {commit} is not in {ref} of {git_url}")

    def _switch(self, commit: str) -> None:
        self._git("checkout", "--quiet", "--force", "--detach", commit)
        self._git("clean", "-ffdxq")

    def _git(self, *words: str) -> str:
        return capture(
            ["git", *words],
            scratch=self.scratch,
            timeout=_GIT_SECONDS,
            stop=self.stop,
            environment=_git_environment(),
            directory=self.source,
        )


def _git_environment() -> Mapping[str, str]:
    """Git with no one's configuration, no hooks, no prompts; the operator's proxy is the one thing it may need."""
    settings = {
        "core.hooksPath": "/dev/null",
        "core.fsmonitor": "false",
        "gc.auto": "0",
        "advice.detachedHead": "false",
        # The mirror may belong to the service's user; the server named it, so it is trusted.
        "safe.directory": "*",
    }
    environment = {
        "GIT_CONFIG_NOSYSTEM": "1",
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


def _is_config_input(path: str) -> bool:
    directory, _, name = path.rpartition("/")
    is_helper = directory == "scripts" and name.endswith(".sh")
    return name.startswith("Kconfig") or is_helper or path.startswith(("scripts/kconfig/", "Makefile"))
