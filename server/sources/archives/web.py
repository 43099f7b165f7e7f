"""One bounded GET of a small file: what a hostile server may cost in time, bytes and memory is fixed beforehand."""

import time
import zlib
from pathlib import Path

import httpx2

from server.core.addresses import without_credentials
from server.core.errors import DomainError
from server.core.git import credential
from server.core.watchdog import Watchdog

# For each read; the whole answer, trickled or not, has `_LONGEST`.
_TIMEOUT = 20.0
_LONGEST = 60.0
_MOST_REDIRECTS = 5
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 16 + zlib.MAX_WBITS
# The file itself may be gzip, and a server may say so as a coding of its own, too.
_MOST_PACKED = 2


def fetched(url: str, *, largest: int) -> tuple[str, bytes] | None:
    """Where the file was found in the end, and its content, unpacked if it is gzip; None where there is nothing.

    It may redirect, but not to another host. Raises DomainError "list-unreachable" for everything else, among it
    content that is larger than `largest` bytes, packed or unpacked.
    """
    watchdog = Watchdog(_LONGEST)
    try:
        with watchdog.on_guard(), _client() as client:
            place = httpx2.URL(url)
            for _ in range(_MOST_REDIRECTS):
                # Asked for anew at each step: a redirect may lead from https to http.
                auth = credential(str(place), cwd=Path("/"))
                with client.stream("GET", place, auth=auth, extensions={"trace": watchdog}) as answer:
                    if answer.next_request is None:
                        content = _content(url, answer, largest)
                        if watchdog.words():
                            # One that tells no length looks whole where it was ended.
                            raise unreachable(url, watchdog.words())
                        return None if content is None else (str(place), _unpacked(url, content, largest))
                    place = answer.next_request.url
                if place.host != httpx2.URL(url).host:
                    raise unreachable(url, f"redirects to another host, {place.host}")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise unreachable(url, watchdog.words() or str(error) or type(error).__name__) from error
    finally:
        watchdog.forget()
    raise unreachable(url, "redirects too often")


def _client() -> httpx2.Client:
    # One connection at a time: the watchdog holds the newest.
    limits = httpx2.Limits(max_connections=1)
    return httpx2.Client(timeout=_TIMEOUT, headers={"Accept-Encoding": "identity"}, limits=limits)


def unreachable(url: str, why: str) -> DomainError:
    return DomainError("list-unreachable", without_credentials(f"{url}: {why}"), permanent=False)


def _content(url: str, answer: httpx2.Response, largest: int) -> bytes | None:
    if answer.status_code in {httpx2.codes.NOT_FOUND, httpx2.codes.GONE}:
        return None
    if not answer.is_success:
        raise unreachable(url, f"HTTP {answer.status_code}")
    content = bytearray()
    started = time.monotonic()
    # Raw: a coding that the server chose is unpacked below, where there is a limit.
    for part in answer.iter_raw():
        content += part
        if len(content) > largest:
            raise _too_large(url, largest)
        if time.monotonic() - started > _LONGEST:
            raise unreachable(url, f"took longer than {_LONGEST:g} s")
    return bytes(content)


def _unpacked(url: str, content: bytes, largest: int) -> bytes:
    for _ in range(_MOST_PACKED):
        if not content.startswith(_GZIP_MAGIC):
            break
        try:
            content = zlib.decompressobj(_GZIP).decompress(content, largest + 1)
        except zlib.error as error:
            raise unreachable(url, f"no gzip: {error}") from error
        if len(content) > largest:
            raise _too_large(url, largest)
    return content


def _too_large(url: str, largest: int) -> DomainError:
    return unreachable(url, f"larger than {largest // 2**20} MB")
