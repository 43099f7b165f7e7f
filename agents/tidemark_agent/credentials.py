"""The machine's token, which is kept in a file of its own."""

import stat
from collections.abc import Callable
from pathlib import Path

from tidemark_agent.log import Log

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def token_reader(file: Path, log: Log) -> Callable[[], str]:
    """What reads the token anew at each call; it raises OSError while there is none.

    A file that others may read is warned about and used all the same: the token is for this one machine, and a lab
    that stops measuring because of a mode helps nobody.
    """

    def read() -> str:
        return file.read_text(encoding="utf-8", errors="replace").strip()

    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return read
    if mode & _OTHERS:
        log.warning("token-exposed", file=str(file), mode=f"{mode:04o}", wanted="0600")
    return read
