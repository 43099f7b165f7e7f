"""A server that speaks S3, as a process of its own on loopback: moto's, or the versitygw that S3_SERVER names."""

import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server

BUCKET = "kernels"
_START_SECONDS = 30.0


@contextmanager
def s3_server() -> Iterator[str]:
    """Run it for the block; yields its address."""
    with create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="s3-") as folder:
        process = subprocess.Popen(
            _words(port, Path(folder)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_ENVIRONMENT
        )
        try:
            _wait(f"http://127.0.0.1:{port}/", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)


_KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
_ENVIRONMENT = {**os.environ, **_KEYS, "ROOT_ACCESS_KEY": "key", "ROOT_SECRET_KEY": "secret"}


def _words(port: int, folder: Path) -> list[str]:
    program = os.environ.get("S3_SERVER")
    if not program:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    for name in ("buckets", "beside"):
        (folder / name).mkdir()
    # Not every file system has attributes: what it notes of objects lies in files of its own.
    places = [str(folder / name) for name in ("beside", "buckets")]
    return [program, "--port", f"127.0.0.1:{port}", "posix", "--sidecar", *places]


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):  # noqa: S310 (our own server)
                return
        except urllib.error.HTTPError:
            # It answers, and wants to know who asks.
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise RuntimeError(f"the S3 server does not answer at {address}: exit {process.poll()}")
