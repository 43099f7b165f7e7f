"""A real git server on loopback."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SECONDS = 10.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def git_daemon(folder: Path) -> Iterator[str]:
    """`git daemon` for all repositories below `folder`; yields the address that the names of folders follow."""
    port = free_port()
    options = ["--export-all", "--reuseaddr", f"--base-path={folder}", "--listen=127.0.0.1", f"--port={port}"]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    process = subprocess.Popen(
        ["git", "daemon", *options, str(folder)], env=environment, start_new_session=True, stderr=subprocess.DEVNULL
    )
    try:
        _wait(process, port)
        yield f"git://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    end = time.monotonic() + _SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, "git daemon ended"
            assert time.monotonic() < end, "git daemon does not answer"
            time.sleep(0.02)
        else:
            return
