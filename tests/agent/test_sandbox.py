"""Other people's code in the sandbox: what it tries, and what it takes. The whole table: `make bench-sandbox`."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidemark_agent.errors import InfrastructureError, UnfitError
from tidemark_agent.guard.confinement import filter_program, has_filter
from tidemark_agent.guard.watch import held_files
from tidemark_agent.system import sandbox
from tidemark_agent.system.disk import remove_tree
from tidemark_agent.system.process import MIB, Finished, Limits, run
from tidemark_agent.system.sandbox import Bind, Sandbox, require_sandbox, sandbox_trouble

from bench.sandbox.__main__ import attempts, flooded
from bench.sandbox.host import FLOODS, Host, hostile_host

FLOODS_BY_NAME = {flood.name: flood for flood in FLOODS}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with hostile_host(tmp_path) as found:
        yield found


def limited(script: str, folder: Path, limits: Limits, *, timeout: float = 30.0) -> Finished:
    """Run a Python program outside of any sandbox, but within limits."""
    words = [sys.executable, "-c", f"import os, time\n{script}"]
    return run(words, output=folder / "out", timeout=timeout, stop=threading.Event(), limits=limits, directory=folder)


@pytest.mark.real
def test_build_that_tries_every_way_out_finds_none(host: Host) -> None:
    rows = attempts(host)
    assert [row for row in rows if row[2] != "held"] == []
    assert len(rows) > 40


def test_build_of_a_watched_tree_may_fill_the_compiler_cache_and_no_more(host: Host) -> None:
    got = {name for name, _, verdict in attempts(host, series=False) if verdict != "held"}
    assert got == {"write to compiler cache of watched trees", "files on the host"}


@pytest.mark.real
@pytest.mark.parametrize("name", ["fork bomb", "leaves traps and a daemon"])
def test_build_that_takes_too_much_ends_for_that_reason_and_leaves_nothing(host: Host, name: str) -> None:
    _, ended, verdict = flooded(host, FLOODS_BY_NAME[name])
    assert verdict == "held", ended


def test_number_of_processes_is_held_outside_of_a_sandbox_too(tmp_path: Path) -> None:
    script = "for _ in range(7):\n    try: os.fork()\n    except OSError: pass\ntime.sleep(60)"
    done = limited(script, tmp_path, Limits(processes=20, memory_bytes=1 << 30))
    assert "processes and threads" in done.over
    assert done.seconds < 20
    assert not done.over_is_ours


def test_memory_of_all_processes_together_is_held(tmp_path: Path) -> None:
    script = "for _ in range(2): os.fork()\nx = bytearray(b'x' * (40 << 20))\ntime.sleep(60)"
    done = limited(script, tmp_path, Limits(memory_bytes=100 * MIB, processes=50))
    assert "of memory" in done.over


def test_memory_that_processes_share_is_held_too(tmp_path: Path) -> None:
    """Four times 40 MiB; what they have in common counts once."""
    share = "import mmap\nx = mmap.mmap(-1, 40 << 20)\nfor at in range(0, 40 << 20, 4096): x[at] = 1\n"
    limits = Limits(memory_bytes=100 * MIB, processes=50)
    assert limited(f"{share}for _ in range(2): os.fork()\ntime.sleep(1)", tmp_path, limits).over == ""
    assert "of memory" in limited(f"for _ in range(2): os.fork()\n{share}time.sleep(9)", tmp_path, limits).over


def test_one_process_gets_no_more_memory_than_all_may_have(tmp_path: Path) -> None:
    done = limited("bytearray(300 << 20)", tmp_path, Limits(memory_bytes=200 * MIB))
    assert (done.code, done.over) == (1, "")
    assert "MemoryError" in (tmp_path / "out").read_text()


def test_open_files_of_all_processes_together_are_held(tmp_path: Path) -> None:
    done = limited(FLOODS_BY_NAME["open files, many processes"].script, tmp_path, Limits(processes=200))
    assert "files open, 400000 are allowed" in done.over


def test_processor_time_of_a_process_is_held(tmp_path: Path) -> None:
    assert limited("while True: pass", tmp_path, Limits(cpu_seconds=1)).code == 128 + signal.SIGXCPU


def test_disk_is_held_and_files_of_others_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    limits = Limits(disk_bytes=8 * MIB, directories=(tmp_path / "own",))
    elsewhere = "open('big', 'wb').write(b'x' * (40 << 20)); time.sleep(1.2)"
    assert limited(elsewhere, tmp_path, limits).over == ""
    inside = "os.chdir('own')\nwhile True: open('f', 'ab').write(b'x' * (1 << 20)); time.sleep(0.01)"
    assert limited(inside, tmp_path, limits).over == "it takes more than 8 MiB of disk, or too many files"


def test_host_without_a_sandbox_refuses_with_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(sandbox, "_known", [])
    with pytest.raises(InfrastructureError, match=r"unprivileged_userns_clone.*No permissions.*builders\.md"):
        require_sandbox(tmp_path, threading.Event())
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "install the package bubblewrap" in sandbox_trouble(tmp_path, threading.Event())


@pytest.mark.parametrize(
    "end",
    [
        "kill -KILL $$",
        "kill -TERM $$",
        "sleep 30",
        "echo 'bwrap: Creating new namespace failed: Resource temporarily unavailable' >&2; exit 1",
        "echo 'sh: 1: Cannot fork' >&2; exit 2",
    ],
)
def test_trial_that_is_killed_or_slow_or_lacks_what_others_took_says_nothing_about_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{end}\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr(sandbox, "_known", [])
    monkeypatch.setattr(sandbox, "_PROBE_SECONDS", 2.0)
    monkeypatch.setattr("tidemark_agent.system.process._STOP_SECONDS", 0.1)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        with pytest.raises(InfrastructureError) as told:
            require_sandbox(tmp_path, threading.Event())
    assert not isinstance(told.value, UnfitError)
    assert sandbox_trouble(tmp_path, threading.Event()) == "", "it is tried again"


def test_sandbox_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_known", [])
    assert sandbox_trouble(tmp_path, threading.Event()) == ""
    monkeypatch.setattr(sandbox, "capture", lambda *_, **__: pytest.fail("tried again"))
    assert sandbox_trouble(tmp_path, threading.Event()) == ""


def test_sandboxed_program_has_three_descriptors_and_no_token_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_TOKEN", "hush")
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    script = (
        "import os; print(sorted(os.listdir('/proc/self/fd'))); print(dict(os.environ), open('/proc/1/environ').read())"
    )
    words = Sandbox(binds=(Bind(tmp_path, "/here"),), environment={"PATH": "/usr/bin"}).wrap(["python3", "-c", script])
    run(words, output=tmp_path / "out", timeout=30, stop=threading.Event(), limits=Limits(processes=100))
    os.close(reading)
    os.close(writing)
    said = (tmp_path / "out").read_text()
    assert said.startswith("['0', '1', '2', '3']")  # The last one is that of listdir itself.
    assert "hush" not in said


def said_inside(script: str, folder: Path) -> list[str]:
    """The lines that a Python program prints in the sandbox."""
    words = Sandbox(environment={"PATH": "/usr/bin"}).wrap(["python3", "-c", script])
    run(words, output=folder / "out", timeout=30, stop=threading.Event(), limits=Limits(processes=100))
    return (folder / "out").read_text().splitlines()


def test_proc_shows_nothing_of_the_host_but_processors_and_memory(tmp_path: Path) -> None:
    script = """
import os
from pathlib import Path
for path in Path("/proc").iterdir():
    if path.name.isdigit(): continue
    try: found = path.read_bytes() if path.is_file() else os.listdir(path)
    except OSError: continue
    if found: print(path.name)
"""
    shown = {"cpuinfo", "meminfo", "filesystems", "self", "thread-self", "mounts", "net"}
    assert set(said_inside(script, tmp_path)) == shown


def test_nothing_inside_makes_the_host_write_its_disks(tmp_path: Path) -> None:
    """A pipe cannot be written to a disk, and there is no descriptor -1: who is not told so was not asked."""
    script = (
        "import ctypes, os\n"
        "ends = os.pipe()\nos.fsync(ends[0]); os.fdatasync(ends[0]); os.sync()\n"
        "libc = ctypes.CDLL(None)\nprint(libc.syncfs(-1), libc.sync_file_range(-1, 0, 0, 0))"
    )
    assert said_inside(script, tmp_path) == ["0 0"]


def test_nothing_is_taken_inside_of_what_the_kernel_counts_for_each_user(tmp_path: Path) -> None:
    """Watches of epoll, watchers of files, signals that wait: who takes them all stops everything else of that user."""
    script = """
import ctypes, errno, os, select, selectors, signal
try: print(select.epoll())
except OSError as error: print(errno.errorcode[error.errno])
libc = ctypes.CDLL(None, use_errno=True)
for call in (libc.inotify_init, lambda: libc.inotify_init1(0), lambda: libc.epoll_create(1)):
    print(call(), errno.errorcode[ctypes.get_errno()])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
sent = 0
while sent < 5000 and libc.sigqueue(os.getpid(), signal.SIGRTMIN, ctypes.c_void_p(0)) == 0: sent += 1
print(0 < sent <= 512)
for call in (libc.socket, lambda *about: libc.socketpair(*about, (ctypes.c_int * 2)())):
    print(call(1, 1, 0), errno.errorcode[ctypes.get_errno()])
print(selectors.DefaultSelector().__class__.__name__)
"""
    assert said_inside(script, tmp_path) == [
        *("ENOSYS", *["-1 ENOSYS"] * 3, "True", *["-1 EAFNOSUPPORT"] * 2, "PollSelector")
    ]


def test_files_are_neither_leased_nor_given_what_no_limit_counts(tmp_path: Path) -> None:
    """A lease on a shared file holds up whoever opens it; parts that are locked and access lists are kernel memory."""
    script = """
import ctypes, errno, fcntl, os, struct
name = "/tmp/file"
file = os.open(name, os.O_RDWR | os.O_CREAT)
part = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0)
free = struct.pack("hhqqi4x", fcntl.F_UNLCK, 0, 0, 1, 0)
everybody = struct.pack("<I" + "HHI" * 3, 2, *(1, 6, 0xFFFFFFFF), *(4, 4, 0xFFFFFFFF), *(32, 0, 0xFFFFFFFF))
tried = {
    "lease": lambda: fcntl.fcntl(os.open(name, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK),
    "notify": lambda: fcntl.fcntl(os.open("/tmp", os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS),
    "lock": lambda: fcntl.fcntl(file, fcntl.F_SETLK, part),
    "lock of the file": lambda: fcntl.fcntl(file, 37, part),
    "attribute": lambda: os.setxattr(name, "system.posix_acl_access", everybody),
}
for what, act in tried.items():
    try: act(); print(what)
    except OSError as error: print(errno.errorcode[error.errno])
print(ctypes.CDLL(None).timerfd_create(1, 0), fcntl.fcntl(file, fcntl.F_GETFL) & os.O_RDWR == os.O_RDWR)
"""
    assert said_inside(script, tmp_path) == ["EPERM", "EPERM", "ENOLCK", "ENOLCK", "ENOSYS", "-1 True"]


def test_filter_of_system_calls_exists_for_both_architectures() -> None:
    for machine in ("x86_64", "aarch64"):
        program = filter_program(machine)
        assert has_filter(machine)
        assert len(program) % 8 == 0
        assert len(program) // 8 < 256
    assert not has_filter("riscv64")


def test_calls_that_newer_kernels_have_are_unknown_inside(tmp_path: Path) -> None:
    """Refused before the kernel reads their arguments: EPERM for those that are known, ENOSYS for all later ones."""
    calls = [467, 469, 470, 471, 600]
    script = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for number in {calls}:
    ctypes.set_errno(0)
    libc.syscall(number, -1, None, 0, None, 0)
    print(ctypes.get_errno())
"""
    assert said_inside(script, tmp_path) == [str(errno.EPERM)] * 2 + [str(errno.ENOSYS)] * 3


def test_tree_deeper_than_any_path_is_deleted(tmp_path: Path) -> None:
    script = "import os\nfor _ in range(60): os.mkdir('d' * 99); os.chdir('d' * 99)\nopen('f', 'w')\nos.chmod('.', 0)"
    (tmp_path / "deep").mkdir()
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path / "deep", check=True)
    (tmp_path / "kept").mkdir()
    (tmp_path / "deep/link").symlink_to(tmp_path / "kept")
    remove_tree(tmp_path / "deep")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_guard_that_watches_lets_a_quick_program_end_at_once(tmp_path: Path) -> None:
    started = time.monotonic()
    assert limited("", tmp_path, Limits(processes=100, memory_bytes=1 << 30)).code == 0
    assert time.monotonic() - started < 5


_HIDES = """
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
def made(name):
    file = open(name, "w+b")
    file.write(bytes(4 << 20))
    file.flush()
    os.unlink(name)
    return file
mapped = made("mapped")
assert libc.mmap(None, 4 << 20, 1, 1, mapped.fileno(), 0) not in (None, ctypes.c_void_p(-1).value)
mapped.close()
def apart():
    assert libc.unshare(0x400) == 0
    kept = made("kept")
    print("ready", flush=True)
    time.sleep(60)
threading.Thread(target=apart, daemon=True).start()
time.sleep(60)
"""


def test_files_that_are_only_mapped_or_open_in_one_thread_take_disk_too(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    before = held_files(os.getpid(), device)
    with subprocess.Popen([sys.executable, "-c", _HIDES], cwd=tmp_path, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        found = held_files(os.getpid(), device) - before
        child.kill()
    assert 8 << 20 <= found <= 9 << 20
