"""Content-addressed files: an artifact is stored under its SHA-256 and checked before it is accepted."""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from django.conf import settings

from server.core.errors import DomainError
from server.core.files import forget_files

MAX_BYTES = 512 * 1024 * 1024


def artifact_path(sha256: str) -> Path:
    """Where the file with this SHA-256 lies, whether it is there or not."""
    root: Path = settings.STATE_DIR / "artifacts"
    return root / sha256[:2] / sha256[2:]


def has_artifact(sha256: str, size: int) -> bool:
    """Whether a file of this hash and size, in bytes, is stored."""
    try:
        return artifact_path(sha256).stat().st_size == size
    except FileNotFoundError:
        return False


def put_artifact(sha256: str, chunks: Iterable[bytes]) -> bool:
    """Store `chunks` under `sha256`; False if it was there already.

    Raises DomainError `hash-mismatch` when the bytes are not what was announced, `too-large` above MAX_BYTES. A crash
    leaves no half file under the name.
    """
    target = artifact_path(sha256)
    if target.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".incoming-", delete=False) as file:
        incoming = Path(file.name)
        try:
            for chunk in chunks:
                size += len(chunk)
                if size > MAX_BYTES:
                    raise DomainError("too-large", f"artifact {sha256[:12]} is larger than {MAX_BYTES} bytes")
                digest.update(chunk)
                file.write(chunk)
            if digest.hexdigest() != sha256:
                raise DomainError("hash-mismatch", f"the bytes sent hash to {digest.hexdigest()}, not to {sha256}")
            file.flush()
            os.fsync(file.fileno())
            incoming.chmod(0o644)
            incoming.replace(target)
        except BaseException:
            incoming.unlink(missing_ok=True)
            raise
    return True


def forget_interrupted_uploads() -> int:
    """Remove what web processes that were killed left of uploads; returns how many files."""
    return forget_files(settings.STATE_DIR / "artifacts", ("*/.incoming-*",), days=1)
