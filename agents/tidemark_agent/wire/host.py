"""Who this host is to the service: its token, where its agent was started, and a client for both."""

import os
import re
import socket
import stat
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidemark_agent.errors import AgentError, InfrastructureError
from tidemark_agent.log import Log
from tidemark_agent.system.disk import settle, temporary_for, try_lock
from tidemark_agent.version import agent_version
from tidemark_agent.wire.client import Client
from tidemark_agent.wire.transport import TemporaryError, usable_token

_BOOT_ID = re.compile(r"[0-9a-f-]{1,36}")
_LONGEST_JOB, _LONGEST_NODE, _LONGEST_HOST, _LONGEST_SCRIPT = 100, 60, 200, 64
_LARGEST_NUMBER = 2**31 - 1


@dataclass(frozen=True)
class Place:
    """What the service is told beside a key. Empty texts and None: nobody said, or not started by Jenkins.

    `script` is the SHA-256 of the job's script, by which the service sees whether it is its own.
    """

    host: str = ""
    boot_id: str = ""
    job: str = ""
    number: int | None = None
    node: str = ""
    script: str = ""

    def body(self) -> dict[str, object]:
        """As the protocol writes it; what is not known is left out."""
        texts = {"host": self.host, "boot_id": self.boot_id, "job": self.job, "node": self.node, "script": self.script}
        number = {} if self.number is None else {"number": self.number}
        return {"version": agent_version(), **{name: text for name, text in texts.items() if text}, **number}


def place_here(
    job: str | None = None,
    number: str | None = None,
    node: str | None = None,
    script: str = "",
    *,
    environment: Mapping[str, str] | None = None,
    root: Path = Path("/"),
) -> Place:
    """The place of this process; what is None is taken from the environment in which Jenkins starts programs."""
    environment = os.environ if environment is None else environment
    text = environment.get("BUILD_NUMBER", "") if number is None else number
    counted = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(_LARGEST_NUMBER)) else None
    return Place(
        host=socket.gethostname()[:_LONGEST_HOST],
        boot_id=boot_id(root),
        job=(environment.get("JOB_NAME", "") if job is None else job)[:_LONGEST_JOB],
        number=counted if counted is None or counted <= _LARGEST_NUMBER else None,
        node=(environment.get("NODE_NAME", "") if node is None else node)[:_LONGEST_NODE],
        script=script[:_LONGEST_SCRIPT],
    )


def place_of(brought_by: Mapping[str, Any], root: Path = Path("/")) -> Place:
    """The place of an agent that goes on with what a build of Jenkins has brought, as the disk remembers it."""
    number = brought_by.get("number")
    return replace(
        place_here(environment={}, root=root),
        job=str(brought_by.get("job", ""))[:_LONGEST_JOB],
        number=number if isinstance(number, int) else None,
        node=str(brought_by.get("node", ""))[:_LONGEST_NODE],
    )


def boot_id(root: Path = Path("/")) -> str:
    """The running kernel's random id, or "" if it shows none."""
    try:
        text = (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
    return text if _BOOT_ID.fullmatch(text) else ""


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


def short_client(server: str, token_file: Path, ca_file: Path | None, log: Log, stop: threading.Event) -> Client:
    """Speaks under a name of its own: only a claim binds a name to an attempt. Raises InfrastructureError."""
    token = token_reader(token_file, log)
    try:
        token()
    except OSError as error:
        # Whoever calls by hand, or a job, is better off with this than with two minutes of waiting for a file.
        raise InfrastructureError(f"the token cannot be read: {error}") from error
    return Client(server=server, token=token, agent=uuid.uuid4().hex, log=log, stop=stop, ca_file=ca_file)
