"""The agent program that jobs start: hands keys over, builds, switches machines. Usage: FOLDER SERVER VERB KEY ..."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemark_agent.errors import KernelError, RefusedError, StoppedError
from tidemark_agent.system.process import heed_stop

from tests.jenkins.matrix.speaker import Speaker

_READY_POLL_SECONDS = 0.25


def main() -> int:
    folder, server, verb, key = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    host = os.environ["NODE_NAME"]
    speaker = Speaker(folder=folder, server=server, host=host)
    try:
        if verb == "install":
            return install(speaker, key)
        return switch(speaker, key) if key.startswith("power-cycle") else build(speaker, key)
    except RefusedError as error:
        sys.stdout.write(f"refused: {error}\n")
        return 0


def place() -> dict[str, object]:
    env, words = os.environ, sys.argv[5:]
    script = words[words.index("--script") + 1]
    told = {"job": env["JOB_NAME"], "number": int(env["BUILD_NUMBER"]), "node": env["NODE_NAME"], "boot_id": "safe"}
    return {**told, "script": script}


def install(speaker: Speaker, key: str) -> int:
    """Arrive until the machine is kept free, then leave the key with the machine's own agent."""
    while not speaker.post(f"attempts/{key}/arrive", version="0.1.0", host=speaker.host, **place())["ready"]:
        time.sleep(_READY_POLL_SECONDS)
    target = speaker.folder / "keys" / speaker.host
    target.with_suffix(".new").write_text(f"{key} {speaker.agent}")
    target.with_suffix(".new").rename(target)
    return 0


def build(speaker: Speaker, key: str) -> int:
    """As an agent that is told to end, or whose compiler is: the one is no result, the other by itself would be."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if speaker.claim(key, **place()) is None:
        return 0
    unstopped = speaker.alive
    try:
        with compiling(stop) as alive:
            speaker.alive = alive
            return upload(speaker, key)
    except StoppedError:
        speaker.alive = unstopped
        speaker.end(key, "stopped", "stopped by a controller or an operator")
    except KernelError as error:
        speaker.alive = unstopped
        speaker.post(f"attempts/{key}/build", outcome="failed", seconds=1.0, reason=str(error), artifacts=[])
    return 0


@contextmanager
def compiling(stop: threading.Event) -> Iterator[Callable[[], None]]:
    """A compiler that runs as long as it is let; what is given says by an exception that it ended, and whose doing."""
    compiler = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)

    def alive() -> None:
        if compiler.poll() is not None:
            heed_stop(stop)
            raise KernelError(f"make: *** [main.o] {signal.strsignal(-compiler.returncode)}")
        if stop.is_set():
            raise StoppedError("told to end")

    try:
        yield alive
    finally:
        compiler.kill()
        compiler.wait()


def upload(speaker: Speaker, key: str) -> int:
    if not speaker.hold("running", key):
        speaker.end(key, "failed", "stopped")
        return 0
    image = speaker.folder / f"{key}.image"
    image.write_bytes(os.urandom(1000))
    sha256 = hashlib.sha256(image.read_bytes()).hexdigest()
    speaker.client.put_artifact(sha256, image, patience=20)
    if not speaker.hold("uploaded", key):
        speaker.end(key, "failed", "stopped")
        return 0
    artifact = {"kind": "image", "sha256": sha256, "size": 1000}
    speaker.post(f"attempts/{key}/build", outcome="built", seconds=1.0, build_id=sha256[:40], artifacts=[artifact])
    return 0


def switch(speaker: Speaker, key: str) -> int:
    """Off and on: whoever plays the machines sees the file."""
    order = speaker.claim(key, **place())
    if order is None:
        return 0
    machine = order["power_cycle"]["machine"]
    (speaker.folder / "power" / machine).touch()
    while (speaker.folder / "power" / machine).exists():
        time.sleep(0.03)
    speaker.end(key)
    return 0


if __name__ == "__main__":
    sys.exit(main())
