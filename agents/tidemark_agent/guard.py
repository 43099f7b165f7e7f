"""Stands between the agent and one command, so that no child outlives the agent.

Runs as a process of its own: `python3 -I -S -c SOURCE LIFELINE FILE_LIMIT PROGRAM ARGS...`. LIFELINE is the reading end
of a pipe whose other end only the agent holds: it closes when the agent dies, however it dies, and closing it is
also how the agent ends the command. The command runs in a process group of its own, all of which is killed. What has
left the group becomes the guard's own child when its parent dies (PR_SET_CHILD_SUBREAPER) and is killed then. Should
the guard itself be killed, the kernel kills the command (PR_SET_PDEATHSIG), though not what that has started. The guard
has one thread, so calling prctl between fork and exec is safe here, as it would not be in the agent, which has several.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_EXEC_FAILED = 127


def _exec_command(guard: int, lifeline: int, file_limit: int, argv: list[str]) -> None:
    os.setpgid(0, 0)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != guard:
        os._exit(_EXEC_FAILED)
    os.close(lifeline)
    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 (a list, no shell)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(_EXEC_FAILED)


def _children() -> list[int]:
    me = str(os.getpid())
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # PID (NAME) STATE PARENT: the name may have any character in it.
                about = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            except OSError:
                continue
            if about.split()[1] == me:
                found.append(int(entry.name))
    return found


def _kill_children() -> None:
    """Kill all that the command has left, generation by generation: the orphans of each become the guard's own."""
    while True:
        for pid in _children():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main(arguments: list[str]) -> int:
    lifeline, file_limit, argv = int(arguments[0]), int(arguments[1]), arguments[2:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The agent decides: a Ctrl-C that reaches the whole terminal must not kill the command behind its back.
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        _exec_command(guard, lifeline, file_limit, argv)
    ended = os.pidfd_open(child)
    select.select([lifeline, ended], [], [])
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        # The command has not reached setpgid yet, or its group is gone with it.
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _kill_children()
    return code


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.exit(code if code >= 0 else 128 - code)
