"""Files with an age."""

import time
from collections.abc import Iterable
from pathlib import Path

_DAY = 86_400


def forget_files(folder: Path, patterns: Iterable[str], *, days: float) -> int:
    """Remove files below `folder` that match and were last written more than `days` ago; returns how many."""
    oldest = time.time() - days * _DAY
    old = [path for pattern in patterns for path in folder.glob(pattern) if path.stat().st_mtime < oldest]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)
