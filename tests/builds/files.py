"""Builds whose files are really stored."""

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from server.builds.models import Artifact, Build, BuildState
from server.builds.records import ArtifactFile, BuildResult
from server.builds.storage import put_artifact
from server.core import clock
from tests.builders import build_build

IMAGE = b"image"


def sha_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def stored_build(files: Mapping[str, bytes] | None = None, *, days: float = 0, **fields: Any) -> Build:
    """A built kernel of these files, last used `days` ago."""
    build = build_build(**fields)
    build.artifacts.all().delete()
    for kind, content in (files or {"image": IMAGE, "log": b"log"}).items():
        put_artifact(sha_of(content), [content])
        Artifact.objects.create(build=build, kind=kind, sha256=sha_of(content), size=len(content))
    build.used_at = clock.now() - timedelta(days=days)
    build.save()
    return build


def result(*contents: bytes, **changes: Any) -> BuildResult:
    """A report of a built kernel whose files, image first, are uploaded."""
    for content in contents:
        put_artifact(sha_of(content), [content])
    kinds = ("image", "modules", "log")
    files = tuple(
        ArtifactFile(kind, sha_of(content), len(content)) for kind, content in zip(kinds, contents, strict=False)
    )
    fields: dict[str, Any] = {
        "outcome": "built", "reason": "", "seconds": 1.0, "build_id": "abcd", "compiler_version": "gcc 12",
        "log_tail": "", "artifacts": files, "text_hash": "f" * 64,
    }  # fmt: skip
    return BuildResult(**{**fields, **changes})


def state_of(build: Build) -> str:
    build.refresh_from_db()
    return BuildState(build.state)
