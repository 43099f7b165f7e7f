"""Hosts that ask, thousands of them in one process: each asks, claims what it is given, beats until it is to end.

python -m bench.dispatch.asking PORT FILE SECONDS: FILE has a line "NAME TOKEN" for each host; they come within so many
SECONDS. A line of JSON for each claim: key, when the key was there (the monotonic clock), the claim's status.
"""

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

_WAIT_SECONDS = 100.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_BEAT_SECONDS = 0.5


class Host:
    """One host, as tidemark-agent asks."""

    def __init__(self, port: int, name: str, token: str) -> None:
        self._port, self._name, self._token = port, name, token

    async def live(self, after: float) -> None:
        await asyncio.sleep(after)
        pause = _FIRST_PAUSE
        while True:
            try:
                status, answer = await self._post("work", {"safe": True, "keys": [], "wait": _WAIT_SECONDS})
                if status == 200:  # noqa: PLR2004 (HTTP's word for well)
                    pause = _FIRST_PAUSE
                    if answer.get("key"):
                        await self._work(answer["key"], time.monotonic())
                    continue
            except (OSError, ValueError, IndexError):
                # It was cut off, or a process ended.
                pass
            await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 (when a desk asks)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _work(self, key: str, at: float) -> None:
        status, _ = await self._post(f"attempts/{key}/claim", {})
        print(json.dumps({"key": key, "host": self._name, "at": at, "claim": status}), flush=True)
        go_on = status == 200  # noqa: PLR2004
        while go_on:
            await asyncio.sleep(_BEAT_SECONDS)
            status, answer = await self._post(f"attempts/{key}/heartbeat", {"progress": ""})
            go_on = answer.get("continue") is True
        await self._post(f"attempts/{key}/end", {"outcome": "done", "reason": ""})

    async def _post(self, path: str, said: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        body = json.dumps({"agent": f"agent-{self._name}", "version": "bench", "host": self._name, **said}).encode()
        head = f"POST /api/v1/agent/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        head += f"Authorization: Bearer {self._token}\r\nContent-Type: application/json\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.read()
        finally:
            writer.close()
        told, _, content = answer.partition(b"\r\n\r\n")
        status = int(told.split(b" ", 2)[1])
        if b"transfer-encoding: chunked" in told.lower():
            content = _joined(content)
        return status, json.loads(content)


def _joined(chunked: bytes) -> bytes:
    whole = b""
    while chunked:
        size, _, chunked = chunked.partition(b"\r\n")
        count = int(size, 16)
        if not count:
            return whole
        whole, chunked = whole + chunked[:count], chunked[count + 2 :]
    raise ValueError("the answer broke off")


async def main(port: int, lines: list[str], spread: float) -> None:
    hosts = [Host(port, *line.split()) for line in lines]
    await asyncio.gather(*(host.live(number / len(hosts) * spread) for number, host in enumerate(hosts)))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]).read_text(encoding="ascii").splitlines(), float(sys.argv[3])))
