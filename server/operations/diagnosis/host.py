"""What lies on this host: its disk, the mirror, files of secrets, keys for mail, the agent's package."""

import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from server.core.errors import DomainError
from server.core.programs.git import GitError, Repository
from server.lab.port import dispatcher
from server.operations.diagnosis.ailment import Ailment, ailment
from server.operations.standing import disk_room
from server.reports.sending.signature import signing_keys, told_by_dns

# As little as fetches and uploads still want.
_FULL = 2 * 2**30
_LOW = 10 * 2**30
_LOW_SHARE = 0.05
_OTHERS = stat.S_IRWXO
# So many of the mirror's refs are looked at.
_SOME_REFS = 200
_AGENT_SUFFIXES = frozenset({".py", ".sh", ".toml", ".c", ".h"})


def disk_ailments() -> Iterator[Ailment]:
    room = disk_room()
    told = f"{room.free / 2**30:.1f} GiB of {room.size / 2**30:.0f} are free in {settings.STATE_DIR}"
    mend = "manage.py expire_artifacts --help, TIDEMARK_ARTIFACT_GB, or a larger disk"
    if room.free < _FULL:
        yield ailment("disk-full", f"{told}: nothing is fetched or taken", mend)
    elif room.free < min(_LOW, room.size * _LOW_SHARE):
        yield ailment("disk-low", told, mend)
    folder = Path(settings.STATE_DIR)
    if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
        yield ailment(
            "folder-not-writable",
            f"this user cannot write to {folder}",
            f"chown -R USER {folder}, or run this as the service's user",
        )


def mirror_ailments() -> Iterator[Ailment]:
    """Whether some of its refs lead to commits that are there. A site that never fetched has none."""
    path = Path(settings.STATE_DIR) / "mirror.git"
    if not path.exists():
        return
    mend = f"move {path} away: the next fetch makes it anew from the trees (manage.py fetch_tree NAME)"
    repository = Repository(path)
    try:
        refs = repository.output("for-each-ref", f"--count={_SOME_REFS}", "--format=%(objectname)", "refs/tidemark")
        told = repository.output("cat-file", "--batch-check", stdin=refs)
    except GitError as error:
        yield ailment("mirror-broken", f"git cannot read {path}: {error.message}", mend)
        return
    lost = sum(line.endswith(b" missing") for line in told.splitlines())
    if lost:
        yield ailment("mirror-broken", f"{lost} of {len(refs.split())} refs of {path} lead nowhere", mend)


def secret_ailments() -> Iterator[Ailment]:
    """Files that open something must be closed to other accounts of this host."""
    for path in sorted(_secret_files()):
        try:
            mode = path.stat().st_mode
        except OSError:
            continue
        # A device, as /dev/null in a file's place, holds nothing.
        if stat.S_ISREG(mode) and mode & _OTHERS:
            yield ailment("secret-readable", f"every account of this host can read {path}", f"chmod o-rwx {path}")


def _secret_files() -> set[Path]:
    named = [value for name, value in os.environ.items() if name.startswith("TIDEMARK_") and name.endswith("_FILE")]
    named += [settings.GIT_CREDENTIALS, settings.JENKINS_TOKEN_FILE, settings.METRICS_TOKEN_FILE]
    named += [entry.partition("=")[2] for entry in settings.DKIM_KEYS]
    # Other kinds of files are named in the same way.
    return {Path(name) for name in named if name and name not in {settings.JENKINS_CA_FILE, settings.ALIVE_FILE}}


def mail_ailments() -> Iterator[Ailment]:
    if not settings.MAIL_ENABLED:
        return
    if not settings.DKIM_KEYS:
        yield ailment(
            "dkim-missing",
            "mails leave unsigned",
            "make a key and name it in TIDEMARK_DKIM_KEYS (docs/operations/mail.md)",
        )
        return
    try:
        keys = signing_keys()
    except DomainError as error:
        yield ailment("dkim-unusable", error.message, "put TIDEMARK_DKIM_KEYS right: no mail leaves before")
        return
    for key in keys:
        if why := told_by_dns(key):
            yield ailment("dkim-mismatch", why, "put the record that `manage.py dkim` prints into DNS")


def agent_ailments() -> Iterator[Ailment]:
    """Of the package that the local dispatcher starts; one beside its sources must hold them as they are."""
    if not dispatcher().is_local:
        return
    package = Path(settings.LOCAL_AGENT)
    mend = f"python3 scripts/build_agent.py {package}"
    try:
        with zipfile.ZipFile(package) as archive:
            packed = {info.filename: info.CRC for info in archive.infolist()}
    except (OSError, zipfile.BadZipFile) as error:
        yield ailment("agent-missing", f"the agent {package} cannot be read: {error}", mend)
        return
    sources = _agent_sources(Path(settings.BASE_DIR) / "agents")
    changed = [name for name, crc in sources.items() if packed.get(name) != crc]
    if changed:
        yield ailment("agent-stale", f"{package} differs from its sources in {len(changed)} files: {changed[0]}", mend)


def _agent_sources(root: Path) -> dict[str, int]:
    paths = (path for part in ("tidemark_agent", "benchmarks") for path in (root / part).rglob("*"))
    return {
        path.relative_to(root).as_posix(): zlib.crc32(path.read_bytes())
        for path in paths
        if path.is_file() and path.suffix in _AGENT_SUFFIXES
    }
