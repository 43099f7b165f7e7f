"""What a command may not do: system calls, privileges, size of files."""

import ctypes
import errno
import os
import resource
import signal
import struct

from tidemark_agent.guard.orders import Orders

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
# System calls that no build needs and that could reach out of the sandbox, as a program for the kernel's filter.
#
# A classic BPF program, eight bytes for each instruction, that bubblewrap loads last of all (--seccomp). It refuses,
# it does not kill: a program that only tries goes on without. Argument checks see the lower 32 bits, in which all of
# these flags and numbers are.

# Files that run as their owner or group, whoever starts them: a trap for people on the builder.
_SET_ID_BITS = 0o6000
# open's mode counts only beside O_CREAT or O_TMPFILE.
_CREATES = 0o20000100
# All flags by which clone makes new namespaces.
_NAMESPACES = 0x7E020000
# x86 processes may call by the numbers of another binary interface, which set this bit.
_X32_BIT = 0x40000000
# Leases and watches of folders hold up or wake whoever opens a file, whatever may be written to it; buffers of pipes
# are counted for each of the host's users. Locks of parts of a file are memory that no cgroup counts.
_LEASES = (1024, 1026, 1031, 1040)  # F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ, F_SETDELEG
_LOCKS = (6, 7, 37, 38)  # F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW
# Numbers that all machines share. The second ones are said to be unknown: programs then take an older way.
_REFUSED = (
    *(428, 429, 430, 431, 432, 433, 438, 442),  # open_tree to fspick, pidfd_getfd, mount_setattr
    *(467, 469),  # open_tree_attr, file_setattr
)
_UNKNOWN = (425, 435, 437, 447, 463)  # io_uring_setup, clone3, openat2, memfd_secret, setxattrat
# What kernels after 6.17 have: nobody has looked at those calls yet, and no program of today needs them.
_FIRST_NEWER = 470


class _Machine:
    """Numbers of one architecture's calls; an argument is given by its place."""

    def __init__(
        self,
        arch: int,
        *,
        refused: tuple[int, ...],
        unknown: tuple[int, ...],
        idle: tuple[int, ...],
        sockets: tuple[int, ...],
        modes: tuple[tuple[int, int], ...],
        opens: tuple[tuple[int, int, int], ...],
        fcntl: int,
        clone: int,
    ) -> None:
        self.arch = arch
        self.refused = _REFUSED + refused
        self.unknown = _UNKNOWN + unknown
        self.idle = idle
        self.sockets = sockets
        self.modes = modes
        self.opens = opens
        self.fcntl = fcntl
        self.clone = clone


_X86 = _Machine(
    0xC000003E,
    refused=(
        *(101, 310, 311),  # ptrace, process_vm_readv, process_vm_writev
        *(248, 249, 250),  # add_key, request_key, keyctl
        *(298, 321, 323),  # perf_event_open, bpf, userfaultfd
        *(155, 161, 165, 166),  # pivot_root, chroot, mount, umount2
        *(175, 176, 313, 246, 320),  # init_module, delete_module, finit_module, kexec_load, kexec_file_load
        *(272, 308, 304, 169),  # unshare, setns, open_by_handle_at, reboot
        *(103, 300),  # syslog, fanotify_init
    ),
    unknown=(
        *(319, 29, 30),  # memfd_create, shmget, shmat: memory that no process's size shows
        *(64, 65, 220, 68, 69, 240),  # semget, semop, semtimedop, msgget, msgsnd, mq_open: neither does it theirs
        206,  # io_setup: what it takes is taken from the whole host
        *(213, 291, 253, 294),  # epoll_create, epoll_create1, inotify_init, inotify_init1: from all of the host's user
        *(188, 189, 190, 283),  # setxattr, lsetxattr, fsetxattr, timerfd_create: access lists are memory nobody counts
    ),
    idle=(162, 306, 74, 75, 277),  # sync, syncfs, fsync, fdatasync, sync_file_range
    sockets=(41, 53),
    modes=((90, 1), (91, 1), (268, 2), (452, 2), (85, 1), (133, 1), (259, 2)),  # chmod..., creat, mknod...
    opens=((2, 1, 2), (257, 2, 3)),
    fcntl=72,
    clone=56,
)
_ARM = _Machine(
    0xC00000B7,
    refused=(
        *(117, 270, 271, 217, 218, 219, 241, 280, 282, 41, 51, 40, 39, 105, 106, 273, 104, 294, 97, 268, 265, 142),
        *(116, 262),
    ),
    unknown=(279, 194, 196, 190, 193, 192, 186, 189, 180, 0, 20, 26, 5, 6, 7, 85),
    idle=(81, 267, 82, 83, 84),
    sockets=(198, 199),
    modes=((52, 1), (53, 2), (452, 2), (33, 2)),
    opens=((56, 2, 3),),
    fcntl=25,
    clone=220,
)
_MACHINES = {"x86_64": _X86, "aarch64": _ARM}


def has_filter(machine: str = "") -> bool:
    """Whether there is a filter for this machine, or for the one that os.uname calls `machine`."""
    return (machine or os.uname().machine) in _MACHINES


def filter_program(machine: str = "") -> bytes:
    """The program for a machine that `has_filter` knows."""
    about = _MACHINES[machine or os.uname().machine]
    words = [_load(_ARCH_AT), _jump(_EQUAL, about.arch, 1, 0), _refuse(errno.ENOSYS), _load(_NUMBER_AT)]
    if about is _X86:
        words += [_jump(_AT_LEAST, _X32_BIT, 0, 1), _refuse(errno.ENOSYS)]
    words += [_jump(_AT_LEAST, _FIRST_NEWER, 0, 1), _refuse(errno.ENOSYS)]
    for number in about.refused:
        words += [_jump(_EQUAL, number, 0, 1), _refuse(errno.EPERM)]
    for number in about.unknown:
        words += [_jump(_EQUAL, number, 0, 1), _refuse(errno.ENOSYS)]
    # Said to be done: what a build leaves needs to outlive no power cut, and writing it now holds up the whole host.
    for number in about.idle:
        words += [_jump(_EQUAL, number, 0, 1), _refuse(0)]
    for number, place in about.modes:
        words += _refuse_bits(number, place, _SET_ID_BITS)
    words += _refuse_bits(about.clone, 0, _NAMESPACES)
    for number, flags, mode in about.opens:
        words += _refuse_new(number, flags, mode)
    words += _refuse_commands(
        about.fcntl, {**dict.fromkeys(_LEASES, errno.EPERM), **dict.fromkeys(_LOCKS, errno.ENOLCK)}
    )
    # There is no network to reach, and AF_VSOCK leads out of the sandbox. Files on their way through local sockets are
    # counted for each of the host's users, too, and what waits in netlink's queues by nobody.
    for number in about.sockets:
        words += [_jump(_EQUAL, number, 0, 1), _refuse(errno.EAFNOSUPPORT)]
    return b"".join([*words, _allow()])


def _refuse_bits(number: int, place: int, bits: int) -> list[bytes]:
    body = [_load_argument(place), _jump(_ANY_BIT, bits, 0, 1), _refuse(errno.EPERM), _allow()]
    return [_jump(_EQUAL, number, 0, len(body)), *body]


def _refuse_new(number: int, flags: int, mode: int) -> list[bytes]:
    """Opening that makes a file with such bits."""
    rest = [_load_argument(mode), _jump(_ANY_BIT, _SET_ID_BITS, 0, 1), _refuse(errno.EPERM), _allow()]
    body = [_load_argument(flags), _jump(_ANY_BIT, _CREATES, 0, len(rest) - 1), *rest]
    return [_jump(_EQUAL, number, 0, len(body)), *body]


def _refuse_commands(number: int, refused: dict[int, int]) -> list[bytes]:
    """What a call does is told by its second argument."""
    body = [_load_argument(1)]
    for command, error in refused.items():
        body += [_jump(_EQUAL, command, 0, 1), _refuse(error)]
    return [_jump(_EQUAL, number, 0, len(body) + 1), *body, _allow()]


def _load(offset: int) -> bytes:
    return _word(_LOAD, offset)


def _load_argument(place: int) -> bytes:
    return _load(_ARGUMENTS_AT + 8 * place)


def _jump(code: int, value: int, if_true: int, if_false: int) -> bytes:
    """Skip that many of the instructions that follow."""
    return _word(code, value, if_true, if_false)


def _refuse(error: int) -> bytes:
    return _word(_RETURN, _ERRNO | error)


def _allow() -> bytes:
    return _word(_RETURN, _ALLOW)


def _word(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


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
