"""Running programs of the outside world: errors a person can act on, an end to all waiting, one demo at a time."""

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn


class DemoError(Exception):
    pass


NAME = "Tidemark Demo"
ADDRESS = "demo@tidemark.example"
IDENTITY = f"{NAME} <{ADDRESS}>"
_TAIL = 600
# No configuration of the user's may change what is made: the hashes are the same everywhere.
_GIT_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": NAME,
    "GIT_AUTHOR_EMAIL": ADDRESS,
    "GIT_COMMITTER_NAME": NAME,
    "GIT_COMMITTER_EMAIL": ADDRESS,
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
}


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
) -> str:
    """Run to the end and give stdout; a missing program or a failure becomes a DemoError with the end of stderr."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=cwd, env=env, input=stdin, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise DemoError(f"{words[0]} is not installed; `make setup` installs it") from error
    if done.returncode != 0:
        text = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise DemoError(f"`{' '.join(words[:6])}` failed ({done.returncode}): {text[-_TAIL:]}")
    return done.stdout.decode(errors="replace")


def git_environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**inherited, **_GIT_ENVIRONMENT}


def git(repository: Path, *arguments: str, env: Mapping[str, str] | None = None, stdin: bytes | None = None) -> str:
    """Run git in `repository` and give its stripped stdout; `env` adds to the environment."""
    return run(["git", "-C", repository, *arguments], env={**git_environment(), **(env or {})}, stdin=stdin).strip()


STALL_SECONDS = 15 * 60.0


class Patience:
    def __init__(self, seconds: float, logs: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seconds = seconds
        self._deadline = now() + seconds
        self._logs = logs
        self._pulse = ""
        self._moved = now()

    def feel(self, pulse: str) -> None:
        """Raise a DemoError when the time is over or the pulse has been the same for too long."""
        now = self._now()
        if pulse != self._pulse:
            self._pulse, self._moved = pulse, now
        if now - self._moved > STALL_SECONDS:
            raise DemoError(
                f"nothing has moved for {STALL_SECONDS / 60:.0f} minutes; what the processes say: {self._logs}"
            )
        if now > self._deadline:
            raise DemoError(
                f"not at the end after {self._seconds / 60:.0f} minutes; what the processes say: {self._logs}"
            )


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_once() -> None:
    """Let the first of the ending signals raise KeyboardInterrupt; what `nohup` had ignored stays ignored."""
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore the ending signals for a while."""
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in _ENDING]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


class Claim:
    """Held by the running demo; the kernel frees it however its holder ends."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def tell_url(self, url: str) -> None:
        """For whoever tries to start a second one."""
        self._path.write_text(json.dumps({"pid": os.getpid(), "url": url}), encoding="utf-8")


@contextmanager
def only_demo(local: Path) -> Iterator[Claim]:
    """Claim the stack in `local`; a DemoError names the demo that has it."""
    local.mkdir(parents=True, exist_ok=True)
    note = local / "demo-running.json"
    with (local / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(f"already running {_holder(note)}") from None
        claim = Claim(note)
        claim.tell_url("")
        try:
            yield claim
        finally:
            note.unlink(missing_ok=True)


@contextmanager
def only_writer(cache: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other demo writes the tree in `cache`: what looks like a leftover may be its work in progress."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another demo that makes the tree in {cache}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _holder(note: Path) -> str:
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
        return f"(pid {found['pid']}, {found['url'] or 'starting'})"
    except (OSError, ValueError, KeyError):
        return "(starting)"


_HOSTS = {"x86_64", "aarch64"}


def require_host(machine: str) -> None:
    """Raise a DemoError where kernels for the demo's machines could not be built and booted."""
    if machine not in _HOSTS:
        raise DemoError(
            f"the demo boots x86-64 kernels, compiled on x86-64 or across on arm64; this host is {machine}, for which "
            "neither the cross compiler nor the filter of system calls that shuts builds off was tried. "
            "`make demo ARGS=--lab` shows a simulated site and needs neither"
        )


# What the agent's sandbox asks of the kernel: namespaces of every kind, and a /proc and /dev of its own.
_COMMAND = ("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
_SECONDS = 20
_WAY_OUT = (
    "TIDEMARK_BUILD_SANDBOX=none in the environment does without: kernels are then built with all the rights of this "
    "user, so only where the machine is thrown away or every series is trusted, as the demo's own are"
)


def require_sandbox(environ: Mapping[str, str]) -> None:
    """Raise a DemoError that says what is missing, unless the operator does without."""
    if environ.get("TIDEMARK_BUILD_SANDBOX") == "none":
        return
    try:
        done = subprocess.run(
            [*_COMMAND, "true"], capture_output=True, timeout=_SECONDS, check=False, env={**environ, "LC_ALL": "C"}
        )
    except FileNotFoundError:
        raise DemoError(f"bwrap, which shuts builds off, is not installed: `make setup`. {_WAY_OUT}") from None
    except subprocess.TimeoutExpired:
        raise DemoError(f"bwrap, which shuts builds off, did not answer in {_SECONDS} seconds. {_WAY_OUT}") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().removeprefix("bwrap: ")
        raise DemoError(
            f"builds cannot be shut off, for this user or container may not make user namespaces (bwrap: {said}). "
            f"Allow them (sysctl kernel.unprivileged_userns_clone or user.max_user_namespaces, or the container's "
            f"seccomp and AppArmor profiles). {_WAY_OUT}"
        )
