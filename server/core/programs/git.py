"""Running git: the one place that starts it, with nothing of the caller's environment or configuration."""

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings

from server.core.addresses import origin, without_credentials
from server.core.errors import DomainError
from server.core.programs.sandbox import Limits, Room, TooMuchOutputError, enclosed, exchange, pieces

_CONFIG = Path(__file__).with_name("gitconfig")
# A site behind a proxy or with its own certificates needs these; nothing else is handed on.
_HANDED_ON = (
    *("PATH", "TMPDIR", "http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"),
)
_TAIL = 2000
# How shells, bwrap and git itself say that a signal ended what they had started: 128 and its number. git's own are 128
# (fatal) and 129 (its usage, and a commit that it does not know).
_SIGNAL = 128
_KILLED = range(_SIGNAL + 2, _SIGNAL + 38)
# No caller reads more at once; a remote that names endless refs must not fill the memory.
_MOST_OUTPUT = 256 * 2**20
_LOG_FORMAT = "%H%x00%T%x00%P%x00%an <%ae>%x00%ct%x00%s"
_LOG_FIELDS = 6
_LATEST = int(datetime(9999, 1, 1, tzinfo=UTC).timestamp())


class GitError(DomainError):
    """git ended with an error, was ended or took too long. `stderr` is the end of what it said."""

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
    limits: Limits | None = None,
    room: Room | None = None,
) -> Completed:
    """Run git to its end, whatever its exit code; GitError when it cannot start, takes too long or says too much.

    GitError `git-killed`, too, when a signal ended it: whatever it had said by then answers no question.

    With `limits` it may not take more than those. With a `room` it is shut off in the sandbox, for input that strangers
    wrote; DomainError `sandbox-missing` if there is none.
    """
    return run_program("git", *args, cwd=cwd, stdin=stdin, timeout=timeout, extra=extra, limits=limits, room=room)


def run_program(
    program: str,
    *args: str,
    cwd: Path,
    stdin: bytes = b"",
    timeout: float | None = 60.0,
    extra: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    room: Room | None = None,
) -> Completed:
    """The same for any program, such as a shell that runs git many times in one room."""
    argv, env = [*(limits.prefix if limits else ()), program, *args], environment(extra, cwd=cwd)
    if not room:
        env |= _credential_helper(env)
    else:
        # The configuration is read inside as well. Proxies and certificates say where the site's network is.
        room = replace(room, readable=(*room.readable, _CONFIG))
        env = {name: value for name, value in env.items() if name == "PATH" or name not in _HANDED_ON}
        argv = enclosed(argv, room=room, environment=env, cwd=cwd)
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(argv, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    except OSError as error:
        raise GitError("git-missing", f"{argv[0]} cannot be started: {error}") from error
    what = f"git {_verb(args)}" if program == "git" else program
    with process, _killed_on_error(process):
        try:
            out, err = exchange(process, stdin, timeout=timeout, most_output=_MOST_OUTPUT, tail=4 * _TAIL)
        except subprocess.TimeoutExpired as error:
            raise GitError("git-timeout", f"{what} took longer than {timeout:g} s") from error
        except TooMuchOutputError as error:
            raise GitError("git-too-much", f"{what} said more than {_MOST_OUTPUT // 2**20} MB") from error
    # Cut afterwards: half of an address could not be told for one.
    said = without_credentials(err.decode(errors="replace")).replace("\0", "")
    _require_own_end(process.returncode, what, said[-_TAIL:])
    return Completed(process.returncode, out, said[-_TAIL:])


def _require_own_end(code: int, what: str, stderr: str) -> None:
    """GitError, temporary, where a signal ended the process: one for want of memory tells nothing of its input."""
    if code >= 0 and code not in _KILLED:
        return
    number = -code if code < 0 else code - _SIGNAL
    name = signal.strsignal(number) or f"signal {number}"
    message = ": ".join(filter(None, (f"{what} was ended by the system ({name})", stderr.strip()[:300])))
    raise GitError("git-killed", message, stderr=stderr)


def credential(url: str, *, cwd: Path) -> tuple[str, str] | None:
    """User and password that the site's file has for the host of `url`, or None. `cwd` is any folder."""
    if not settings.GIT_CREDENTIALS:
        return None
    scheme, host = origin(url)
    done = run("credential", "fill", cwd=cwd, stdin=f"protocol={scheme}\nhost={host}\n\n".encode(), timeout=20.0)
    said = dict(line.partition("=")[::2] for line in done.stdout.decode(errors="replace").splitlines())
    return (said["username"], said["password"]) if done.code == 0 and "password" in said else None


def _credential_helper(env: Mapping[str, str]) -> dict[str, str]:
    """Configuration that has git look into the site's file of credentials, and never write or delete one there.

    A helper is asked through a pipe: nothing of it is on a command line.
    """
    if not settings.GIT_CREDENTIALS:
        return {}
    place = shlex.quote(settings.GIT_CREDENTIALS)
    helper = f'!f() {{ test "$1" != get || git credential-store --file={place} get; }}; f'
    number = int(env.get("GIT_CONFIG_COUNT", "0"))
    return {
        "GIT_CONFIG_COUNT": str(number + 1),
        f"GIT_CONFIG_KEY_{number}": "credential.helper",
        f"GIT_CONFIG_VALUE_{number}": helper,
    }


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
    """A git directory, with a work tree or bare. With a `room`, all that `run` and `output` start is shut off in it."""

    git_dir: Path
    work_tree: Path | None = None
    room: Room | None = None

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        timeout: float | None = 60.0,
        extra: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> Completed:
        where = [f"--git-dir={self.git_dir}"]
        if self.work_tree:
            where.append(f"--work-tree={self.work_tree}")
        cwd = self.work_tree or self.git_dir
        return run(*where, *args, cwd=cwd, stdin=stdin, timeout=timeout, extra=extra, limits=limits, room=self.room)

    def output(self, *args: str, stdin: bytes = b"", timeout: float | None = 60.0) -> bytes:
        """What git printed; GitError if it failed."""
        done = self.run(*args, stdin=stdin, timeout=timeout)
        if done.code != 0:
            said = done.stderr.strip() or f"exit status {done.code}"
            raise GitError("git-failed", f"git {_verb(args)}: {said}", stderr=done.stderr)
        return done.stdout

    def resolve(self, revision: str) -> str | None:
        """The commit that `revision` names, or None where git says that there is none."""
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

    def records(self, *args: str, seconds: float) -> Iterator[str]:
        """What git prints, piece by piece between NULs, while it runs; it is ended with the iteration.

        GitError `git-timeout` when it has not come to its end after `seconds`, `git-killed` when a signal ended it.
        """
        process = subprocess.Popen(
            ["git", f"--git-dir={self.git_dir}", *args],
            cwd=self.git_dir,
            env=environment(cwd=self.git_dir),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with process, _killed_on_error(process):
            try:
                for piece in pieces(process, seconds=seconds):
                    yield piece.decode("utf-8", "surrogateescape")
            except subprocess.TimeoutExpired as error:
                raise GitError("git-timeout", f"git {_verb(args)} took longer than {seconds:g} s") from error
            # What it had printed by then would pass for all that there is.
            _require_own_end(process.wait(), f"git {_verb(args)}", "")

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
