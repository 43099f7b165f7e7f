"""Stands between the agent and one command: no child outlives the agent, none takes more of the host than it may."""

import contextlib
import ctypes
import os
import select
import signal
import sys

from tidemark_agent.guard.cgroup import Group, own_group
from tidemark_agent.guard.confinement import confine, die_with, with_filter
from tidemark_agent.guard.orders import Orders, Over, report_line
from tidemark_agent.guard.watch import Watch, children_of, cpu_of_children, run_before_others

# However full the log is already, each further step of a build may say this part of the limit.
_LEAST_PART = 32
_CHUNK = 1024 * 1024
_NOTE_BYTES = 100


class CappedLog:
    """Writes to `target`, a descriptor that can be read and written anywhere, from the end of what is there.

    The first half of the room is filled once. Then the second half is written round and round, and put in order at
    the end.
    """

    def __init__(self, target: int, limit: int) -> None:
        self._target = target
        start = os.lseek(target, 0, os.SEEK_END)
        room = max(limit - start, limit // _LEAST_PART)
        self._ring = start + room // 2
        self._end = start + max(room, 2) - (_NOTE_BYTES if room > 4 * _NOTE_BYTES else 0)
        self._at = start
        self._is_full = False
        self._dropped = 0

    def write(self, data: bytes) -> None:
        """Never fails: what a full disk does not take is left out as well."""
        while data:
            piece = data[: self._end - self._at]
            data = data[len(piece) :]
            try:
                written = os.pwrite(self._target, piece, self._at)
            except OSError:
                self._dropped += len(piece) + len(data)
                return
            if self._is_full:
                self._dropped += written
            data = piece[written:] + data
            self._at += written
            if self._at >= self._end:
                self._at, self._is_full = self._ring, True

    def close(self) -> None:
        """Put the end of the log behind its beginning, with a line between that says how much is missing."""
        if not self._dropped:
            return
        old = self._read(self._at, self._end) if self._is_full else b""
        new = self._read(self._ring, self._at) if self._is_full else b""
        # Whole lines only, where there are lines.
        cut = old.find(b"\n") + 1
        missing = self._dropped + cut
        note = f"\n[tidemark: {missing} bytes ({missing // 1024**2} MiB) of output left out here]\n".encode()
        at = self._ring if self._is_full else self._at
        try:
            for piece in (note, memoryview(old)[cut:], new):
                at += os.pwrite(self._target, piece, at)
            os.ftruncate(self._target, at)
        except OSError:
            return

    def _read(self, start: int, end: int) -> bytes:
        """That part of the log, which is at most half of its limit."""
        return os.pread(self._target, end - start, start)


def pump(source: int, log: CappedLog, most: int = 64) -> bool:
    """Move what waits in the non-blocking pipe into the log, `most` pieces; False at the pipe's end."""
    for _ in range(most):
        try:
            data = os.read(source, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        log.write(data)
    return True


# Stands between the agent and one command: no child outlives the agent, none takes more of the host than it may.
#
# Runs as a process of its own, started with the sources of this module and of guard/ on its command line (see
# process.py). The lifeline is the reading end of a pipe whose other end only the agent holds: it closes when the
# agent dies, however it dies, and closing it is also how the agent ends the command. The command runs in a process
# group of its own, all of which is killed. What has left the group becomes the guard's own child when its parent dies
# (PR_SET_CHILD_SUBREAPER) and is killed then. Should the guard itself be killed, the kernel kills the command
# (PR_SET_PDEATHSIG), though not what that has started. The guard has one thread, so calling prctl between fork and
# exec is safe here, as it would not be in the agent, which has several.

_PR_SET_CHILD_SUBREAPER = 36
_EXEC_FAILED = 127


class _Output:
    """What the command prints: through a pipe into a log of bounded size, or where the guard's own goes."""

    def __init__(self, limit: int) -> None:
        self._log = CappedLog(1, limit) if limit else None
        self.reading, self.writing = os.pipe() if limit else (-1, -1)
        if limit:
            os.set_blocking(self.reading, False)

    def become(self) -> None:
        """In the command: print into the pipe."""
        if self._log is not None:
            os.dup2(self.writing, 1)
            os.dup2(self.writing, 2)

    def started(self) -> None:
        if self._log is not None:
            os.close(self.writing)

    def take(self) -> bool:
        """Store what waits; False when nothing more can come."""
        return self._log is not None and pump(self.reading, self._log)

    def finish(self) -> None:
        """All writers are dead: what they have left in the pipe is the end of the log."""
        if self._log is not None:
            pump(self.reading, self._log)
            self._log.close()


def _exec_command(guard: int, orders: Orders, output: _Output, group: Group) -> None:
    os.setpgid(0, 0)
    if not die_with(guard):
        os._exit(_EXEC_FAILED)
    os.close(orders.lifeline)
    os.close(orders.report)
    output.become()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        group.join()
        confine(orders)
        argv = with_filter(orders.argv)
        os.execvp(argv[0], argv)  # noqa: S606 (a list, no shell)
    except OSError as error:
        print(f"{orders.argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(_EXEC_FAILED)


def _attend(child: int, orders: Orders, output: _Output, group: Group) -> Over | None:
    """Until the command ends by itself, is to be ended, or has taken too much: what, in this last case."""
    watch = Watch(orders, is_counted=group.counts_processes)
    ended = os.pidfd_open(child)
    poll = select.poll()
    for descriptor in (orders.lifeline, ended, output.reading):
        if descriptor >= 0:
            poll.register(descriptor, select.POLLIN)
    for descriptor in group.descriptors:
        poll.register(descriptor, select.POLLPRI)
    pause = watch.pause * 1000 if orders.is_limited else None
    while True:
        ready = {descriptor for descriptor, _ in poll.poll(pause)}
        if output.reading in ready and not output.take():
            poll.unregister(output.reading)
        if over := group.look(orders):
            return over
        if ready & {orders.lifeline, ended}:
            return None
        if over := watch.look():
            return over


def _end(child: int) -> int:
    """Kill all that is left; how the command itself ended."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        # The command has not reached setpgid yet, or its group is gone with it.
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # Generation by generation: the orphans of each become the guard's own.
    while True:
        for pid in children_of(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return code


def main(words: list[str]) -> int:
    """The command's exit status, 128 + N if signal N killed it."""
    orders = Orders(words)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The agent decides: a Ctrl-C that reaches the whole terminal must not kill the command behind its back.
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    guard = os.getpid()
    output = _Output(orders.log)
    group = own_group(orders)
    child = os.fork()
    if child == 0:
        _exec_command(guard, orders, output, group)
    if orders.is_limited:
        run_before_others()
    output.started()
    over = _attend(child, orders, output, group)
    cpu_seconds = (group.cpu_seconds() or cpu_of_children(guard)) if orders.is_limited else 0.0
    code = _end(child)
    output.finish()
    over = over or group.look(orders)
    group.remove()
    os.write(orders.report, report_line(over, cpu_seconds).encode())
    return code if code >= 0 else 128 - code
