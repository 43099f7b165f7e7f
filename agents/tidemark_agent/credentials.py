"""The host's token, which is kept in a file of its own, and renewed there before it ends."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from tidemark_agent.client import Client
from tidemark_agent.disk import settle, temporary_for
from tidemark_agent.errors import AgentError
from tidemark_agent.locks import try_lock
from tidemark_agent.log import Log
from tidemark_agent.transport import TemporaryError, usable_token

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_PATIENCE_SECONDS = 5.0
_OWNER_ONLY = 0o600


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


def renew_token(client: Client, file: Path, log: Log) -> bool:
    """Ask for the next token and put it into `file`; whether that was done.

    The old one is taken until the new one is used: whatever fails here, and wherever this process ends, the token in
    the file is good, and the next hello begins anew. Of several agents with one file a single one asks.
    """
    held = None
    try:
        held = try_lock(file.with_name(f"{file.name}.lock"))
        if held is None:
            return False
        return _renewed(client, file, log)
    except (AgentError, OSError) as error:
        # The service shows a token that comes near its end; somebody then makes one by hand.
        log.warning("token-not-renewed", file=str(file), reason=str(error))
        return False
    finally:
        if held is not None:
            os.close(held)


def _renewed(client: Client, file: Path, log: Log) -> bool:
    """The caller holds the lock. Room for the new token is made first: one that cannot be kept is not asked for."""
    before = file.stat()
    temporary = temporary_for(file)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            # Where the file belongs to another user than this one, that user could not read the new one.
            os.fchown(stream.fileno(), before.st_uid, before.st_gid)
            os.fchmod(stream.fileno(), stat.S_IMODE(before.st_mode))
            answer = client.post("token", {}, patience=_PATIENCE_SECONDS, failures=1)
            token = answer.get("token")
            if token is None:
                return False
            stream.write(usable_token(str(token)) + "\n")
        settle(temporary, file)
    except TemporaryError as error:
        raise OSError(f"the service sent no token: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    log.info("token-renewed", file=str(file), expires_at=str(answer.get("expires_at")))
    return True
