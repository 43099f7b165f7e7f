"""Handing out files of builds, to agents and to people: checked on their way."""

from collections.abc import Iterator

from server.builds.checking import put_aside
from server.builds.reading import ArtifactStream, open_artifact
from server.core.errors import DomainError


def serve_artifact(sha256: str) -> ArtifactStream:
    """The file in pieces; raises DomainError `not-found`, or `store-away`.

    One that turns out to be damaged ends before its last piece with DomainError `damaged`, so that its reader sees a
    transfer that was cut off, and is put aside: asked for again, it is not found.
    """
    stream = open_artifact(sha256)
    return ArtifactStream(stream.size, _checked(sha256, stream.chunks))


def _checked(sha256: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from chunks
    except DomainError as error:
        if error.code == "damaged":
            put_aside(sha256, "found when it was read")
        raise
