"""Asks a benchmark's kernel module for the values of one case: a process of its own, started with this source.

`python3 -I -S -c SOURCE FILE.ko NAME CASE RUNS WORD...`: loads the module, writes the words to its file in debugfs once
for each run, prints a JSON line for each answer, and unloads it. What this kernel or machine does not have is said in
a line that begins with `not here:`; the exit status is then 0, and there are no values. A module that cannot be loaded
is status 127, for nothing was measured.
"""

import contextlib
import ctypes
import errno
import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

_DEBUGFS = Path("/sys/kernel/debug")
# finit_module and delete_module.
_CALLS = {"x86_64": (313, 176), "aarch64": (273, 106)}
_ABSENT = (errno.EOPNOTSUPP, errno.ENODEV)
_LONGEST_ANSWER = 4096
_CANNOT_RUN = 127
# Four times the largest cache pushes out what the CPU's replacement would keep; the module takes 1 MiB to 1 GiB.
_CACHES = 4
_SMALLEST_EVICT_KB = 8 * 1024
_LARGEST_EVICT_KB = 1024 * 1024
_UNITS_KB = {"K": 1, "M": 1024, "G": 1024 * 1024}


def _call(number: int, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *arguments) != 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))


@contextlib.contextmanager
def _loaded(path: Path, name: str) -> Iterator[None]:
    load, unload = _CALLS[platform.machine()]

    def remove() -> None:
        _call(unload, ctypes.c_char_p(name.encode()), ctypes.c_uint(os.O_NONBLOCK))

    # One that was killed has left its module behind, which may be of another version.
    if Path("/sys/module", name).exists():
        remove()
    with path.open("rb") as file:
        _call(load, ctypes.c_int(file.fileno()), ctypes.c_char_p(b""), ctypes.c_int(0))
    try:
        yield
    finally:
        remove()


def _ask(path: Path, request: str) -> str:
    """One run; OSError, with what the module says about it, if it failed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            os.write(descriptor, request.encode())
        except OSError as error:
            said = os.read(descriptor, _LONGEST_ANSWER).decode(errors="replace")
            why = said.removeprefix("error ").strip() or error.strerror
            raise OSError(error.errno, why) from error
        return os.read(descriptor, _LONGEST_ANSWER).decode(errors="replace")
    finally:
        os.close(descriptor)


def eviction_kb(cpu: int, root: Path = Path("/")) -> int:
    """How much memory must be read to push everything else out of the caches of `cpu`."""
    largest = 0
    for entry in (root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
            text = entry.read_text(encoding="ascii").strip()
            largest = max(largest, int(text[:-1]) * _UNITS_KB[text[-1]])
    return min(max(_CACHES * largest, _SMALLEST_EVICT_KB), _LARGEST_EVICT_KB)


def _measure(path: Path, case: str, runs: int, words: list[str]) -> None:
    # One CPU, always the same: the others have other caches and another way to each node.
    cpu = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    if "cache=cold" in words:
        words = [*words, f"evict={eviction_kb(cpu)}k"]
    for _ in range(runs):
        for line in _ask(path, " ".join(words)).splitlines():
            metric, _, value = line.partition(" ")
            print(json.dumps({"case": case, "metric": metric, "value": float(value)}), flush=True)


def main(arguments: list[str]) -> int:
    file, name, case, runs, *words = arguments
    try:
        with _loaded(Path(file), name):
            path = _DEBUGFS / name / "run"
            if not path.exists():
                print(f"{path} is missing: is debugfs mounted?")
                return _CANNOT_RUN
            try:
                _measure(path, case, int(runs), words)
            except OSError as error:
                if error.errno in _ABSENT:
                    print(f"not here: {error.strerror}")
                    return 0
                print(json.dumps({"case": case, "error": error.strerror}))
                return 1
            except ValueError as error:
                print(json.dumps({"case": case, "error": f"the module's answer is not understood: {error}"}))
                return 1
    except OSError as error:
        print(f"the module {name} cannot be loaded or unloaded: {error.strerror}")
        return _CANNOT_RUN
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
