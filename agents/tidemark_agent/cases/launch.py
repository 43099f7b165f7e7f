"""Runs one program of a benchmark on the CPUs it is to be measured on, and writes down how it ended.

Runs as a process of its own below the guard: `python3 -I -S -c SOURCE REPORT CPUS PROGRAM ARGS...`. It sleeps while the
program runs. What the program leaves behind becomes this process's own child (PR_SET_CHILD_SUBREAPER): its names go
into the report, and the guard kills it. REPORT is one JSON object: `code` (128 + N for signal N), `signal` (0 if none),
`seconds`, `user` and `system` (seconds of CPU time with all children), `left` (names).
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_EXEC_FAILED = 127
# Children of a program that has ended may be on their way out themselves.
_PATIENCE_SECONDS = 2.0
_PAUSE_SECONDS = 0.01
_MOST_NAMES = 5


def _exec_program(parent: int, cpus: str, argv: list[str]) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(_EXEC_FAILED)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        # Python ignores them, and a program would inherit that.
        signal.signal(number, signal.SIG_DFL)
    # When memory runs out the kernel is to kill the benchmark, not the agent.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    try:
        if cpus:
            os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
        os.execvp(argv[0], argv)  # noqa: S606 (a list, no shell)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(_EXEC_FAILED)


def _children() -> list[str]:
    """Names of this process's living children."""
    me, names = str(os.getpid()), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            # PID (NAME) STATE PARENT: the name may have any character in it.
            about = text.rpartition(")")[2].split()
            if about[1] == me and about[0] not in "ZX":
                names.append(text.partition("(")[2].rpartition(")")[0])
    return names


def _left_behind() -> list[str]:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        names = _children()
        if not names or time.monotonic() > deadline:
            return sorted(names)[:_MOST_NAMES]
        time.sleep(_PAUSE_SECONDS)


def main(arguments: list[str]) -> int:
    report, cpus, argv = Path(arguments[0]), arguments[1], arguments[2:]
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parent = os.getpid()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _exec_program(parent, cpus, argv)
    _, status, usage = os.wait4(child, 0)
    seconds = time.monotonic() - started
    code = os.waitstatus_to_exitcode(status)
    ended = {
        "code": code if code >= 0 else 128 - code,
        "signal": max(0, -code),
        "seconds": seconds,
        "user": usage.ru_utime,
        "system": usage.ru_stime,
        "left": _left_behind(),
    }
    # The program may have put a link or a pipe there.
    report.unlink(missing_ok=True)
    with report.open("x", encoding="ascii") as file:
        file.write(json.dumps(ended))
    return int(code != 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
