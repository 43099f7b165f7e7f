"""Compiles a kernel and prints how little memory was left meanwhile: `mem_used.py CASE RUNS --source ARCHIVE ...`."""

import argparse
import json
import os
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from kernel_tree import CompileError, Tree, unpacked

_PAUSE_SECONDS = 0.1
# /proc/zoneinfo is long on large machines, and watermarks seldom move.
_ZONES_EACH = 10
_KIB_PER_MIB = 1024.0
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


@dataclass
class Lowest:
    """The extremes so far, in KiB."""

    total: int = 0
    free: int = sys.maxsize
    available: int = sys.maxsize
    watermark: int = 0
    _looks: int = field(default=0, init=False)

    def look(self, proc: Path = Path("/proc")) -> None:
        """Take one sample; raises ValueError where the kernel does not say what it should."""
        sizes = meminfo((proc / "meminfo").read_text(encoding="ascii", errors="replace"))
        self.total = sizes["MemTotal"]
        self.free = min(self.free, sizes["MemFree"])
        self.available = min(self.available, sizes["MemAvailable"])
        if self._looks % _ZONES_EACH == 0:
            pages = low_watermark((proc / "zoneinfo").read_text(encoding="ascii", errors="replace"))
            self.watermark = max(self.watermark, pages * os.sysconf("SC_PAGE_SIZE") // 1024)
        self._looks += 1

    def values(self) -> dict[str, float]:
        """The metrics, in MiB."""
        sizes = {
            "free-min": self.free,
            "available-min": self.available,
            "used-peak": self.total - self.available,
            "low-watermark": self.watermark,
        }
        return {metric: kilobytes / _KIB_PER_MIB for metric, kilobytes in sizes.items()}


def meminfo(text: str) -> dict[str, int]:
    """MemTotal, MemFree and MemAvailable in kB; raises ValueError if one is missing."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name in {"MemTotal", "MemFree", "MemAvailable"} and rest.split()[1:] == ["kB"]:
            found[name] = int(rest.split()[0])
    if len(found) != 3:  # noqa: PLR2004 (the names above)
        raise ValueError("/proc/meminfo does not name MemTotal, MemFree and MemAvailable")
    return found


def low_watermark(text: str) -> int:
    """The sum of all zones' low watermarks, in pages; raises ValueError if there is none."""
    lines = [line.split() for line in text.splitlines()]
    found = [int(words[1]) for words in lines if len(words) == 2 and words[0] == "low"]  # noqa: PLR2004 (low N)
    if not found:
        raise ValueError("/proc/zoneinfo names no low watermark")
    return sum(found)


def watched(tree: Tree) -> Lowest:
    """Compile once, with a look at the memory ten times a second."""
    lowest, over = Lowest(), threading.Event()
    problems: list[Exception] = []

    def look() -> None:
        while not over.is_set():
            try:
                lowest.look()
            except (OSError, ValueError) as error:
                problems.append(error)
                return
            over.wait(_PAUSE_SECONDS)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        tree.compile()
    finally:
        over.set()
        thread.join()
    if problems:
        raise CompileError(str(problems[0]))
    return lowest


def main() -> int:
    options = _options()
    try:
        source = unpacked(options.source, options.kept)
        tree = Tree(source, options.scratch / "objects", options.config, options.target, options.jobs)
        for _ in range(options.runs):
            tree.prepare()
            # Each run begins with an empty page cache: else MemFree would tell what earlier runs have read.
            DROP_CACHES.write_text("3", encoding="ascii")
            for metric, value in watched(tree).values().items():
                print(json.dumps({"case": options.case, "metric": metric, "value": value}), flush=True)
    except (CompileError, OSError) as error:
        print(json.dumps({"case": options.case, "error": str(error)}), flush=True)
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("runs", type=int)
    parser.add_argument("--source", type=Path, required=True, help="the archive of a kernel source")
    parser.add_argument("--kept", type=Path, required=True, help="where it is unpacked, once")
    parser.add_argument("--scratch", type=Path, required=True, help="where objects go")
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--config", default="tinyconfig")
    parser.add_argument("--target", default="vmlinux")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
