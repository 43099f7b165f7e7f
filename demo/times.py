"""How long each stage took last time, so that the next run can say what to expect."""

import json
from collections.abc import Mapping
from pathlib import Path

from demo.world import ROOT
from scripts.stack import local_directory

# Seconds on two quiet cores: with nothing in the caches, and with the kernel tree and the compiler's results there.
_COLD = {
    "tree": 45.0,
    "service": 12.0,
    "mirror": 15.0,
    "mails": 8.0,
    "apply": 5.0,
    "builds": 180.0,
    "sessions": 200.0,
    "verdict": 3.0,
    "report": 4.0,
    "check": 1.0,
}
_WARM = {**_COLD, "tree": 1.0, "builds": 60.0}


def is_comparable(kind: str, local: Path) -> bool:
    """Whether a run's times tell what the next one takes: tests in stacks of their own and other series differ."""
    return kind == "slow" and local == local_directory(ROOT, {})


class Times:
    """Kept in the cache, apart for cold and warm runs."""

    def __init__(self, cache: Path) -> None:
        self._path = cache / "times.json"
        self._kind = "warm" if (cache / "versions").exists() and self._path.exists() else "cold"

    def expected(self) -> dict[str, float]:
        known = self._read().get(self._kind, {})
        return {name: known.get(name, seconds) for name, seconds in (_COLD if self._kind == "cold" else _WARM).items()}

    def remember(self, seconds: Mapping[str, float]) -> None:
        """Keep the times of a run that went through without a break."""
        known = self._read()
        known[self._kind] = {name: round(value, 1) for name, value in seconds.items()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(known, indent=1), encoding="utf-8")
        part.rename(self._path)

    def _read(self) -> dict[str, dict[str, float]]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
