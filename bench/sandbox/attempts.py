"""What a patch's Makefile tries from inside the sandbox, without making noise: read, write, reach, change.

Runs there as a program: `python3 attempts.py WORD=VALUE...`. Prints one line for each attempt: its name, a tab,
and what it got, or `refused` with the reason.
"""

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

Attempt = Callable[[], object]


class Attempts:
    """The attempts by name; `words` say where the host's secrets and listeners are."""

    def __init__(self, words: dict[str, str]) -> None:
        self.words = words

    def __iter__(self) -> Iterator[tuple[str, Attempt]]:
        for group in (self._reading, self._writing, self._reaching, self._changing):
            yield from group().items()

    def _reading(self) -> dict[str, Attempt]:
        words = self.words
        return {
            "token by its path": Path(words["token"]).read_text,
            "token below /proc/*/root": lambda: _secret_in(_read_all(f"root{words['token']}"), words["secret"]),
            "token in /proc/*/environ": lambda: _secret_in(_read_all("environ"), words["secret"]),
            "token in descriptors of others": lambda: _secret_in(_read_all("fd/*"), words["secret"]),
            "own environment": lambda: _secret_in(repr(dict(os.environ)), words["secret"]),
            "own descriptors beyond three": _more_descriptors,
            "memory of another process": lambda: _trace(int(words["agent"])),
            "password hashes": Path("/etc/shadow").read_text,
            "git credentials of the checkout": Path(words["source"], ".git/config").read_text,
            "keys of the agent's keyring": _keys,
            "kernel log": lambda: subprocess.check_output(["dmesg"], stderr=subprocess.DEVNULL)[:100],
            "kernel log by its call": lambda: _call(103, 10, None, 0),
            "command line of the host's kernel": Path("/proc/cmdline").read_text,
            "what its disks do": Path("/proc/diskstats").read_text,
            "its disks": Path("/proc/partitions").read_text,
            "its kernel's modules": Path("/proc/modules").read_text,
            "its kernel's settings": lambda: Path("/proc/sys/kernel/random/boot_id").read_text(),
        }

    def _writing(self) -> dict[str, Attempt]:
        words = self.words
        places = {
            "source": f"{words['source']}/planted",
            "compiler cache of watched trees": f"{words['ccache']}/planted",
            "home": f"{words['home']}/.planted",
            "state directory by its path": f"{words['state']}/planted",
            "/usr": "/usr/bin/planted",
            "/etc": "/etc/planted",
            "root of the sandbox": "/planted",
            "/dev": "/dev/planted",
            "kernel settings": "/proc/sys/kernel/tainted",
            "sysrq": "/proc/sysrq-trigger",
            "/sys": "/sys/kernel/planted",
        }
        return {f"write to {name}": _writing_to(path) for name, path in places.items()}

    def _reaching(self) -> dict[str, Attempt]:
        words = self.words
        port = int(words["port"])
        return {
            "127.0.0.1": lambda: _connect(socket.AF_INET, ("127.0.0.1", port)),
            "::1": lambda: _connect(socket.AF_INET6, ("::1", port)),
            "the host's address": lambda: _connect(socket.AF_INET, (words["address"], port)),
            "a name server": lambda: socket.getaddrinfo("example.org", 80),
            "unix socket": lambda: _connect(socket.AF_UNIX, words["socket"]),
            "abstract unix socket": lambda: _connect(socket.AF_UNIX, "\0" + words["abstract"]),
            "D-Bus, journal, X": _desktop,
            "hypervisor's socket": lambda: socket.socket(40, socket.SOCK_STREAM),
            "raw network": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
            "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
            "any network": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        }

    def _changing(self) -> dict[str, Attempt]:
        objects = Path(self.words["objects"])
        return {
            "new namespaces": lambda: _call(272, 0x10000000, 0),
            "mount": lambda: _call(165, b"none", b"/tmp", b"tmpfs", 0, None),
            "capabilities": _capabilities,
            "becoming root by a set-id program": _become_root,
            "leaving a set-id program": lambda: _set_id(objects / "set-id"),
            "device node": lambda: os.mknod(objects / "device", 0o60600, os.makedev(8, 0)),
            "typing into the terminal": _type,
            "killing the agent": lambda: os.kill(int(self.words["agent"]), signal.SIGKILL),
            "killing everything else": _alone,
            "memory that no size shows": lambda: os.memfd_create("hidden"),
            "message queue": lambda: _call(68, 0, 0o1600),
            "semaphores": lambda: _call(64, 0, 250, 0o1600),
            "message queue by name": lambda: _call(240, b"queue", 0o102, 0o600, None),
            "asynchronous input and output": lambda: _call(206, 65536, ctypes.byref(ctypes.c_ulong())),
            "watching file systems": lambda: _call(300, 0, 0),
            "terminals": os.openpty,
            "tracing": lambda: _call(298, 0, 0, -1, -1, 0),
        }


def _writing_to(path: str) -> Attempt:
    return lambda: Path(path).write_text("x")


def _read_all(place: str) -> str:
    """What can be read there below all processes that are visible, pipes that are empty left out."""
    texts = []
    for path in Path("/proc").glob(f"[0-9]*/{place.lstrip('/')}"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            texts.append(os.read(descriptor, 65536).decode("utf-8", "replace"))
            os.close(descriptor)
        except OSError:
            continue
    return "".join(texts)


def _secret_in(text: str, secret: str) -> str:
    """The secret, which is given in halves, for this program's own words are visible, too."""
    whole = secret.replace("/", "")
    if whole not in text:
        raise PermissionError("not in it")
    return whole


def _more_descriptors() -> str:
    found = [entry.name for entry in Path("/proc/self/fd").iterdir() if int(entry.name) > sys.stderr.fileno()]
    # make itself has pipes, through which it tells how many jobs may run.
    links = [link for link in (_link(name) for name in found) if link and not link.startswith(("/proc", "pipe:"))]
    if not links:
        raise PermissionError("none")
    return " ".join(links)


def _link(name: str) -> str:
    try:
        return str(Path(f"/proc/self/fd/{name}").readlink())
    except OSError:
        return ""


def _trace(pid: int) -> str:
    _call(101, 16, pid, 0, 0)
    return "attached"


def _keys() -> str:
    _call(250, 0, -3, 0)
    return "has a session keyring"


def _call(number: int, *words: object) -> int:
    """A system call by its number on x86-64; elsewhere another one, which is refused or does nothing."""
    result = int(ctypes.CDLL(None, use_errno=True).syscall(number, *words))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def _connect(family: int, address: object) -> str:
    with socket.socket(family) as line:
        line.settimeout(2)
        line.connect(address)  # type: ignore[arg-type]
        line.sendall(b"escaped\n")
        return line.recv(100).decode()


def _desktop() -> str:
    places = ("/run/dbus", "/run/systemd", "/run/user", "/var/run", "/tmp/.X11-unix")  # noqa: S108 (X's own place)
    found = [path for path in places if Path(path).exists()]
    if not found:
        raise PermissionError("none is there")
    return " ".join(found)


def _capabilities() -> str:
    status = Path("/proc/self/status").read_text()
    found = [line for line in status.splitlines() if line.startswith("Cap") and int(line.split()[1], 16)]
    if not found:
        raise PermissionError("none")
    return " ".join(found)


def _become_root() -> str:
    program = shutil.which("su") or shutil.which("mount") or "/bin/su"
    if Path(program).stat().st_mode & 0o4000 and os.statvfs(program).f_flag & os.ST_NOSUID:
        raise PermissionError("set-id bits do not count here")
    if "NoNewPrivs:\t1" in Path("/proc/self/status").read_text():
        raise PermissionError("no new privileges")
    return program


def _set_id(path: Path) -> str:
    path.write_text("x")
    path.chmod(0o4755)
    return oct(path.stat().st_mode)


def _type() -> str:
    for number in (0, 1, 2):
        fcntl.ioctl(number, termios.TIOCSTI, b"x")
    return "typed"


def _alone() -> str:
    """Which other processes there are to be killed: make, this one and the sandbox's init."""
    names = [path.read_text().strip() for path in Path("/proc").glob("[0-9]*/comm")]
    strangers = set(names) - {"bwrap", "make", "sh", "python3", Path("/proc/self/comm").read_text().strip()}
    if not strangers:
        raise PermissionError("none of the host's is visible")
    return " ".join(strangers)


def main(arguments: list[str]) -> None:
    words = dict(word.split("=", 1) for word in arguments)
    for name, attempt in Attempts(words):
        try:
            said = f"got {attempt()!r}"
        except (OSError, subprocess.SubprocessError) as error:
            said = f"refused: {error}"
        print(f"{name}\t{said}"[:300], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
