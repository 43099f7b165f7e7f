"""Getting a document: from a file, or from a service's public API without any token."""

import http.client
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from tidemark_agent.errors import AgentError
from tidemark_agent.printable import one_line
from tidemark_agent.reproduce.document import DocumentError
from tidemark_agent.transport import TIMEOUT_SECONDS, TemporaryError, build_opener, pieces

_LONGEST = 4 * 1024 * 1024


def read_source(source: str, ca_file: Path | None = None) -> bytes:
    """What is at the address or in the file `source`, at most 4 MiB; raises DocumentError.

    A redirect is not followed: the address that was typed says whom its reader trusts.
    """
    if source.startswith(("http://", "https://")):
        return _fetched(source, ca_file)
    if "://" in source:
        raise DocumentError(f"{one_line(source, 80)} is neither a file nor an address with http or https")
    try:
        with Path(source).open("rb") as stream:
            return _limited(stream.read(_LONGEST + 1), source)
    except (OSError, ValueError) as error:
        raise DocumentError(f"{one_line(source, 80)} cannot be read: {one_line(str(error))}") from error


def _fetched(address: str, ca_file: Path | None) -> bytes:
    name = one_line(address, 200)
    try:
        if not urlsplit(address).hostname:
            raise DocumentError(f"{name} names no host")
        request = urllib.request.Request(address, headers={"Accept": "application/json"})  # noqa: S310 (http or https)
        with build_opener(address, ca_file).open(request, timeout=TIMEOUT_SECONDS) as answer:
            return _limited(b"".join(pieces(answer, _LONGEST)), name)
    except urllib.error.HTTPError as error:
        error.close()
        where = error.headers.get("Location")
        if where:
            raise DocumentError(f"{name} points to {one_line(where)}; give that address if you trust it") from error
        raise DocumentError(f"{name} answers {error.code} {one_line(str(error.reason))}") from error
    except (TemporaryError, AgentError, OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, DocumentError):
            raise
        raise DocumentError(f"{name} cannot be fetched: {one_line(str(error))}") from error


def _limited(data: bytes, name: str) -> bytes:
    if len(data) > _LONGEST:
        raise DocumentError(f"{name} is larger than {_LONGEST} bytes")
    return data
