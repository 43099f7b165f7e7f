"""Running git: the one place that starts it, with nothing of the caller's environment or configuration."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from server.core.errors import DomainError

_CONFIG = Path(__file__).with_name("gitconfig")
# A site behind a proxy or with its own certificates needs these; nothing else is handed on.
_HANDED_ON = (
    *("PATH", "TMPDIR", "http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"),
)
_TAIL = 2000
_LOG_FORMAT = "%H%x00%T%x00%P%x00%an <%ae>%x00%ct%x00%s"
_LOG_FIELDS = 6
_LATEST = int(datetime(9999, 1, 1, tzinfo=UTC).timestamp())


class GitError(DomainError):
    """git ended with an error or took too long. `stderr` is the end of what it said."""

    def __init__(self, code: str, message: str, *, stderr: str = "") -> None:
        super().__init__(code, message, permanent=False)
        self.stderr = stderr


@dataclass(frozen=True)
class Completed:
    code: int
    stdout: bytes
    stderr: str


@dataclass(frozen=True)
class Commit:
    sha: str
    tree: str
    parents: tuple[str, ...]
    author: str
    committed_at: datetime
    subject: str


def environment(extra: Mapping[str, str] | None = None, *, cwd: Path) -> dict[str, str]:
    """All that git sees: no GIT_* of the caller, no configuration of system or user, no questions."""
    kept = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
    return {
        **kept,
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",
        # Not `-c`: git hides that from the upload-pack it starts for a local repository.
        "GIT_CONFIG_GLOBAL": str(_CONFIG),
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https",
        # The state directory may lie inside some checkout, whose configuration must not be found.
        "GIT_CEILING_DIRECTORIES": str(cwd.parent),
        **(extra or {}),
    }


def run(
    *args: str,
    cwd: Path,
    stdin: bytes = b"",
    timeout: float | None = 60.0,
    extra: Mapping[str, str] | None = None,
) -> Completed:
    """Run git to its end, whatever its exit code; raises GitError only when it cannot start or takes too long."""
    try:
        process = subprocess.Popen(
            ["git", *args],
            cwd=cwd,
            env=environment(extra, cwd=cwd),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise GitError("git-missing", f"git cannot be started: {error}") from error
    with process, _killed_on_error(process):
        try:
            out, err = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise GitError("git-timeout", f"git {_verb(args)} took longer than {timeout:g} s") from error
    return Completed(process.returncode, out, err.decode(errors="replace")[-_TAIL:].replace("\0", ""))


@contextmanager
def _killed_on_error(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the whole group: git starts helpers of its own (remote-https, index-pack)."""
    try:
        yield
    except BaseException:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        raise


def _verb(args: tuple[str, ...]) -> str:
    return next((a for a in args if not a.startswith("-")), "")


@dataclass(frozen=True)
class Repository:
    """A git directory, with a work tree or bare."""

    git_dir: Path
    work_tree: Path | None = None

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        timeout: float | None = 60.0,
        extra: Mapping[str, str] | None = None,
    ) -> Completed:
        where = [f"--git-dir={self.git_dir}"]
        if self.work_tree:
            where.append(f"--work-tree={self.work_tree}")
        return run(*where, *args, cwd=self.work_tree or self.git_dir, stdin=stdin, timeout=timeout, extra=extra)

    def output(self, *args: str, stdin: bytes = b"", timeout: float | None = 60.0) -> bytes:
        """What git printed; GitError if it failed."""
        done = self.run(*args, stdin=stdin, timeout=timeout)
        if done.code != 0:
            said = done.stderr.strip() or f"exit status {done.code}"
            raise GitError("git-failed", f"git {_verb(args)}: {said}", stderr=done.stderr)
        return done.stdout

    def resolve(self, revision: str) -> str | None:
        """The commit that `revision` names, or None."""
        done = self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        return done.stdout.decode().strip() if done.code == 0 else None

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether `newer` holds `older`; False also when either is unknown."""
        return self.run("merge-base", "--is-ancestor", older, newer).code == 0

    def commits(self, *revisions: str, limit: int | None = None) -> list[Commit]:
        """First-parent history of what `revisions` (shas, ^shas or ranges) select, newest first."""
        some = [f"-n{limit}"] if limit is not None else []
        found = self.output("log", "--first-parent", "-z", f"--format={_LOG_FORMAT}", *some, *revisions, "--")
        fields = found.decode(errors="replace").split("\0")
        return [_commit(fields[i : i + _LOG_FIELDS]) for i in range(0, len(fields) - _LOG_FIELDS + 1, _LOG_FIELDS)]

    @contextmanager
    def objects(self) -> Iterator["ObjectReader"]:
        """One `git cat-file --batch` for many reads."""
        process = subprocess.Popen(
            ["git", f"--git-dir={self.git_dir}", "cat-file", "--batch"],
            cwd=self.git_dir,
            env=environment(cwd=self.git_dir),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with process, _killed_on_error(process):
            yield ObjectReader(process)


@dataclass(frozen=True)
class ObjectReader:
    process: subprocess.Popen[bytes]

    def read(self, name: str) -> tuple[str, bytes] | None:
        """Object id and content of `name` (an id or COMMIT:PATH), or None if there is no such object."""
        assert self.process.stdin
        assert self.process.stdout
        try:
            self.process.stdin.write(name.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise GitError("git-failed", "git cat-file ended early") from error
        header = self.process.stdout.readline().split()
        if not header:
            raise GitError("git-failed", "git cat-file ended early")
        if header[-1] == b"missing":
            return None
        size = int(header[2])
        content = self.process.stdout.read(size + 1)
        if len(content) != size + 1:
            raise GitError("git-failed", "git cat-file ended early")
        return header[0].decode(), content[:-1]


def _commit(fields: list[str]) -> Commit:
    sha, tree, parents, author, seconds, subject = fields
    # A commit may claim any time; rows can hold only those that a calendar has.
    when = datetime.fromtimestamp(min(max(int(seconds or 0), 0), _LATEST), tz=UTC)
    return Commit(sha.strip(), tree, tuple(parents.split()), author, when, subject)
