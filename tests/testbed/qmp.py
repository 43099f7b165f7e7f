"""QEMU's control socket, as far as the testbed needs it."""

import json
import socket
from pathlib import Path

from tests.testbed.paths import TestbedError

_PATIENCE = 20.0


def execute(path: Path, command: str, **arguments: str) -> object:
    """One command to the machine whose socket is at `path`, and its answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_PATIENCE)
        connection.connect(str(path))
        stream = connection.makefile("rw", encoding="utf-8")
        stream.readline()
        answer: object = None
        for word, more in (("qmp_capabilities", {}), (command, arguments)):
            stream.write(json.dumps({"execute": word, "arguments": more}) + "\n")
            stream.flush()
            answer = _answer(stream.readline, command)
        return answer


def _answer(readline: object, command: str) -> object:
    """Events come between answers; the first answer that is none ends the waiting."""
    assert callable(readline)
    while line := readline():
        answer = json.loads(line)
        if "return" in answer:
            return answer["return"]
        if "error" in answer:
            raise TestbedError(f"QEMU refuses {command}: {answer['error']}")
    raise TestbedError(f"QEMU ended while it was asked for {command}")
