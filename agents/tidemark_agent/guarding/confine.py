"""What the guard does to itself between fork and exec, so that the command starts with no more than it is to have."""

import ctypes
import os
import resource
import signal

from tidemark_agent.guarding.orders import Orders
from tidemark_agent.guarding.seccomp import filter_program

# Stands in a command line for the descriptor with the filter of system calls.
FILTER_WORD = "{seccomp}"
_PR_SET_PDEATHSIG = 1
_KEYCTL_JOIN_SESSION_KEYRING = 1
_KEYCTL = {"x86_64": 250, "aarch64": 219}
# When the host runs out of memory all the same, the kernel ends what runs here before anything else.
_OOM_SCORE = b"900"
# Linkers live with it, and behind each one may be memory that no process's size shows.
_FILES = 4096
_SIGNALS = 512
# Seconds between SIGXCPU and SIGKILL. SIGKILL alone would look as if somebody else had ended the program.
_CPU_GRACE = 5


def die_with(guard: int) -> bool:
    """Be killed when the guard is; False if it is gone already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == guard


def confine(orders: Orders) -> None:
    """Take the limits of one process upon this one, and leave the keys of whoever started the agent."""
    if orders.file:
        _limit(resource.RLIMIT_FSIZE, orders.file)
    if not orders.is_limited:
        return
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        ctypes.CDLL(None, use_errno=True).syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_MSGQUEUE, 0)
    # The kernel counts waiting signals and timers for each of the host's users: the agent's own needs some, too.
    _limit(resource.RLIMIT_SIGPENDING, _SIGNALS)
    _limit(resource.RLIMIT_NOFILE, _FILES)
    # Not RLIMIT_NPROC: the kernel compares it with all processes of the agent's user, those of other builds too.
    if orders.memory:
        _limit(resource.RLIMIT_AS, orders.memory)
    if orders.cpu:
        _limit(resource.RLIMIT_CPU, orders.cpu, beyond=_CPU_GRACE)
    try:
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(descriptor, _OOM_SCORE)
        os.close(descriptor)
    except OSError:
        # It is the last of several barriers, and not every container shows this file.
        return


def with_filter(argv: list[str]) -> list[str]:
    """`argv` with the number of an open descriptor in place of FILTER_WORD."""
    if FILTER_WORD not in argv:
        return argv
    descriptor = os.memfd_create("filter", 0)
    os.write(descriptor, filter_program())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return [str(descriptor) if word == FILTER_WORD else word for word in argv]


def _limit(kind: int, value: int, *, beyond: int = 0) -> None:
    """As much as that, or what the operator allows where that is less; the hard limit lies so much `beyond`."""
    most = value + beyond
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value, most = min(value, hard), min(most, hard)
    resource.setrlimit(kind, (value, most))
