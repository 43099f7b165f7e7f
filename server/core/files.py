"""The service's own files: how old they may get, and who may read them."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

_DAY = 86_400
# Nothing for other accounts of the host; the group may read: a git server that hands the mirror to builders is in it.
_MASK = 0o027


def keep_from_others() -> None:
    """From now on this process and those it starts make files that other accounts cannot read; never a laxer umask."""
    before = os.umask(_MASK)
    os.umask(before | _MASK)


def forget_files(folder: Path, patterns: Iterable[str], *, days: float) -> int:
    """Remove files below `folder` that match and were last written more than `days` ago; returns how many."""
    oldest = time.time() - days * _DAY
    old = [path for pattern in patterns for path in folder.glob(pattern) if path.stat().st_mtime < oldest]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)
