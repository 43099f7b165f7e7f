"""Builds that take too much, or that do not end: what each does in place of compiling."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Flood:
    """`script` is what make runs (Python); `reason` is in the reason with which the build must have ended."""

    name: str
    script: str
    reason: str
    seconds: float = 60.0


_FORK = """
# Enough to be far beyond the limit, and no more: where the sandbox is broken the host is to live.
for _ in range(12):
    try: os.fork()
    except OSError: time.sleep(0.01)
time.sleep(99)
"""
_THREADS = """
import threading
threading.stack_size(65536)
for _ in range(4000):
    try: threading.Thread(target=time.sleep, args=(99,)).start()
    except RuntimeError: time.sleep(0.1)
"""
_MEMORY = """
for _ in range(12):
    if os.fork() == 0:
        x = bytearray(b"x" * (100 << 20))
        time.sleep(99)
time.sleep(99)
"""
_OPEN = """
for _ in range(130):
    if os.fork() == 0:
        for _ in range(3600): os.dup(0)
        time.sleep(99)
time.sleep(99)
"""
_EMPTY = """
for i in range(400_000): open(f"/tmp/{i}", "w").close()
"""
_FILL = """
with open({place!r}, "wb") as f:
    while True: f.write(b"x" * (1 << 20))
"""
_FILES = """
i = 0
while True:
    i += 1
    with open(f"fill{i}", "wb") as f: f.write(b"x" * 4096)
"""
_DEEP = """
while True:
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
    with open("f", "wb") as f: f.write(b"x" * (4 << 20))
"""
_DEAF = """
import signal
for n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)
while True: time.sleep(9)
"""
_NOISE = """
while True: os.write(1, b"noise " * 9999 + b"\\n")
"""
_TRAPS = """
os.mkfifo("System.map")
os.makedirs("arch/x86/boot")
os.symlink("/etc/shadow", "arch/x86/boot/bzImage")
os.symlink("/etc/shadow", "vmlinux")
os.unlink(".config")
os.mkfifo(".config")
os.makedirs("locked/in")
os.chmod("locked", 0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: time.sleep(9)
time.sleep(0.3)
"""

FLOODS = (
    Flood("fork bomb", _FORK, "processes and threads"),
    Flood("threads without end", _THREADS, "processes and threads"),
    Flood("memory, one process", "x = bytearray(4 << 30)", "Error 1"),
    Flood("memory, many processes", _MEMORY, "of memory"),
    Flood("memory in buffers of sockets", "import socket; socket.socketpair()", "Error 1"),
    Flood("open files, many processes", _OPEN, "files open"),
    Flood("memory in files without content", _EMPTY, "Error 1"),
    Flood("memory below /tmp", _FILL.format(place="/tmp/fill"), "Error 1"),  # noqa: S108 (the sandbox's own)
    Flood("disk, one file", _FILL.format(place="fill"), "of disk"),
    Flood("disk, many files", _FILES, "of disk"),
    Flood("disk, hidden below deep directories", _DEEP, "of disk|deeper"),
    Flood("hangs, deaf to signals", _DEAF, "not built within", seconds=3.0),
    Flood("computes for ever", "while True: pass", "Error 137", seconds=30.0),
    Flood("leaves traps and a daemon", _TRAPS, "left a link|no plain file|left no"),
    Flood("prints for ever", _NOISE, "not built within", seconds=3.0),
)
