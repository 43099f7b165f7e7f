"""What a remote says it has, and getting it: git as a client of somebody else's server."""

import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from server.core.files import remove_tree
from server.core.git import Completed, GitError, Repository
from server.core.processes import Limits

# A server that has not named its refs by then hangs.
LIST_SECONDS = 30.0
_LINE = re.compile(r"([0-9a-f]{40})\trefs/(heads|tags)/([^\n]+)")
# A million refs fit.
_LISTING = Limits(file_bytes=2**20, memory_bytes=512 * 2**20)
# Several times all of the kernel's history: what is larger is no kernel tree.
_FETCHING = Limits(file_bytes=32 * 2**30, memory_bytes=8 * 2**30)
# Below that nothing is fetched. One fetch leaves so much of it for the database and everybody else.
_ROOM = 2 * 2**30
_KEPT_FREE = _ROOM // 2
# Objects are checked on arrival, so that nobody's trick (a path into .git, a harmful .gitmodules) gets into the mirror.
# These say only that some old program wrote a commit or tree oddly; histories that hold such objects cannot change.
_HARMLESS = (
    *("badDate", "badDateOverflow", "badEmail", "badName", "badTagName", "badTimezone", "extraHeaderEntry"),
    *("missingEmail", "missingNameBeforeEmail", "missingSpaceBeforeDate", "missingSpaceBeforeEmail"),
    *("missingTaggerEntry", "multipleAuthors", "nulInCommit", "zeroPaddedDate", "zeroPaddedFilemode"),
)
_CHECKS = {"fetch.fsckObjects": "true", "core.alternateRefsCommand": "true"} | {
    f"fetch.fsck.{name}": "ignore" for name in _HARMLESS
}


@dataclass(frozen=True)
class Listing:
    """Branches and tags of a remote: name to object id. A tag's object may be a tag or a commit."""

    heads: dict[str, str]
    tags: dict[str, str]


class RefGoneError(GitError):
    """A ref went away between listing and fetching."""


def list_remote(repository: Repository, url: str, *, tags: bool, timeout: float | None) -> Listing:
    """The refs of `url`. Raises GitError when it cannot be reached, talks nonsense or hangs."""
    kinds = ["--heads", "--tags"] if tags else ["--heads"]
    done = repository.run("ls-remote", "--refs", *kinds, "--", url, timeout=timeout, limits=_LISTING)
    _check(done, "ls-remote")
    found: dict[str, dict[str, str]] = {"heads": {}, "tags": {}}
    for line in done.stdout.decode(errors="backslashreplace").split("\n"):
        if ref := _LINE.fullmatch(line):
            found[ref[2]][ref[3]] = ref[1]
    return Listing(found["heads"], found["tags"])


def fetch_refs(repository: Repository, url: str, refs: Iterable[str], *, timeout: float | None) -> None:
    """Bring the objects of `refs` into the repository, without changing any ref of it.

    Raises RefGoneError when the remote no longer has one of them, GitError when anything else goes wrong. They come in
    whole or not at all: git leaves what it has of a pack that broke off, and a server can send one without end.
    """
    objects = repository.git_dir / "objects"
    limits = within_room(_FETCHING, repository.git_dir)
    # By that name upkeep knows what a killed worker left.
    apart = Path(tempfile.mkdtemp(prefix="incoming-", dir=objects))
    try:
        done = repository.run(
            *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--stdin", "--", url),
            stdin="".join(f"{ref}\n" for ref in refs).encode(),
            timeout=timeout,
            extra=_configuration(_CHECKS) | _written_to(apart, objects),
            limits=limits,
        )
        if done.code and "couldn't find remote ref" in done.stderr:
            raise RefGoneError("ref-gone", f"git fetch: {done.stderr.strip()}")
        _check(done, "fetch")
        _take_in(apart, objects)
    finally:
        remove_tree(apart)


def within_room(limits: Limits, git_dir: Path) -> Limits:
    """`limits`, and no file larger than half of what the disk has room for: others fetch, too.

    GitError where that is hardly any.
    """
    free = shutil.disk_usage(git_dir).free
    if free < _ROOM:
        raise GitError("disk-full", f"nothing is fetched: only {free >> 20} MB of disk are left for {git_dir.name}")
    return replace(limits, file_bytes=min(limits.file_bytes, (free - _KEPT_FREE) // 2))


def _written_to(apart: Path, objects: Path) -> dict[str, str]:
    return {"GIT_OBJECT_DIRECTORY": str(apart), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{objects}"'}


def _take_in(apart: Path, objects: Path) -> None:
    """Move what came to its place: a pack counts from the moment that its index is there."""
    for path in sorted(apart.rglob("*"), key=lambda path: path.suffix == ".idx"):
        if path.is_file() and path.suffix != ".keep":
            target = objects / path.relative_to(apart)
            target.parent.mkdir(exist_ok=True)
            path.replace(target)


def _check(done: Completed, verb: str) -> None:
    if done.code:
        said = done.stderr.strip() or f"exit status {done.code}"
        raise GitError("git-failed", f"git {verb}: {said}", stderr=done.stderr)


def _configuration(values: dict[str, str]) -> dict[str, str]:
    """Variables that set git's configuration for one run."""
    numbered = list(enumerate(values.items()))
    keys = {f"GIT_CONFIG_KEY_{n}": key for n, (key, _) in numbered}
    return (
        keys | {f"GIT_CONFIG_VALUE_{n}": value for n, (_, value) in numbered} | {"GIT_CONFIG_COUNT": str(len(values))}
    )
