"""Whether the disk is to blame: programs that meet a full one rarely say so, or end as if all were well."""

import shutil
from pathlib import Path

_NEARLY_FULL = 256 * 1024**2


def is_nearly_full(directory: Path) -> bool:
    return shutil.disk_usage(directory).free < _NEARLY_FULL
