"""Stands between the agent and one command, so that no child outlives the agent.

Runs as a process of its own: `python3 -I -S -c SOURCE LIFELINE FILE_LIMIT PROGRAM ARGS...`. LIFELINE is the reading end
of a pipe whose other end only the agent holds: it closes when the agent dies, however it dies, and closing it is
also how the agent ends the command. The command runs in a process group of its own, all of which is killed.
Should the guard itself be killed, the kernel kills the command (PR_SET_PDEATHSIG). The guard has one thread, so
calling prctl between fork and exec is safe here, as it would not be in the agent, which has several.
"""

import ctypes
import os
import resource
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1
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


def main(arguments: list[str]) -> int:
    lifeline, file_limit, argv = int(arguments[0]), int(arguments[1]), arguments[2:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The agent decides: a Ctrl-C that reaches the whole terminal must not kill the command behind its back.
        signal.signal(number, signal.SIG_IGN)
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
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.exit(code if code >= 0 else 128 - code)
