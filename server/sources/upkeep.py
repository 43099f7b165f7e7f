"""Keeping bare repositories fit over months of small fetches: few packs, packed refs, no litter of killed processes."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import structlog
from django.conf import settings

from server.core.database import advisory_lock
from server.core.files import remove_tree
from server.core.programs.git import GitError, Repository
from server.sources.archives.epochs import UNCLEAN
from server.sources.mirror import bare_repository

log = structlog.get_logger(__name__)

# Each fetch adds a pack; looking an object up asks all of them.
_MANY_PACKS = 10
# Loose objects lie in 256 folders: counting one of them tells enough.
_MANY_LOOSE_IN_ONE = 8
_MANY_LOOSE_REFS = 200
# No git of ours runs so long, first fetches by hand included: what is older belongs to a killed process.
_LITTER_AGE = 24 * 3600.0
# A ref is locked for milliseconds. A lock that a killed git left stops every later change of that ref.
_LOCK_AGE = 15 * 60.0
# Rolling up packs of all of the kernel takes minutes, once in months. What does not fit goes on in an hour.
_SECONDS = 1200.0
# A fetch may just be bringing objects that no ref holds yet: only those that were older than a day go.
_PRUNE = "--prune=1.day.ago"
_UNCLEAN_AGE = 25 * 3600.0
_TEMPORARY = re.compile(r"(tmp_|\.tmp-|tmp-|incoming-)")
_KEEPER = b"fetch-pack "


def tend_all() -> None:
    """The mirror and every epoch of every list; prints nothing when nothing was to do."""
    state = Path(settings.STATE_DIR)
    _remove_scratch(state / "scratch")
    end = time.monotonic() + _SECONDS
    for path in [state / "mirror.git", *sorted((state / "lists").glob("*/*.git"))]:
        left = end - time.monotonic()
        if (path / "HEAD").exists() and left > 1:
            try:
                tend_repository(bare_repository(path), seconds=left)
            except OSError as error:
                # A file that nobody may delete is no reason to neglect the others.
                log.warning("repository_not_tended", path=str(path), error=str(error))


def tend_repository(repository: Repository, *, seconds: float = _SECONDS) -> list[str]:
    """Do what is due; returns what was done, nothing when nothing was to do. One process at a time does it.

    Harmless to fetches and readers beside it and when killed: git puts a new pack in place before it deletes those
    whose objects it holds. Nothing is ever pruned but what an archive has purged. A step that fails or takes too long
    is tried again next time.
    """
    with advisory_lock(f"sources.tend.{repository.git_dir}") as free:
        if not free:
            return []
        removed = [path.name for path in _litter(repository.git_dir) if _removed(path)]
        done = [f"removed {name}" for name in removed]
        end = time.monotonic() + seconds
        for name, command in _due(repository.git_dir):
            try:
                repository.output(*command, timeout=max(end - time.monotonic(), 1.0))
            except GitError as error:
                log.warning("repository_not_tended", path=str(repository.git_dir), step=name, error=error.message)
                break
            done.append(name)
        if done:
            log.info("repository_tended", path=str(repository.git_dir), done=done)
        return done


def _due(git_dir: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Steps as they fall due, each looked for after the one before was done."""
    objects = git_dir / "objects"
    loose = len(list((objects / "17").glob("*")))
    unclean = git_dir / UNCLEAN
    if unclean.exists():
        # Packed with others, what was purged would look young.
        if _age(unclean, time.time()) > _UNCLEAN_AGE:
            yield "let go of purged mails", ("gc", "--quiet", _PRUNE)
            unclean.unlink(missing_ok=True)
    elif len(_packs(objects)) > _MANY_PACKS or loose > _MANY_LOOSE_IN_ONE:
        # Geometric: the small packs become one, the large ones stay as they are until they are outgrown.
        yield "packed objects", ("repack", "--geometric=2", "-d", "--quiet")
    if sum(1 for path in (git_dir / "refs").rglob("*") if path.is_file()) > _MANY_LOOSE_REFS:
        yield "packed refs", ("pack-refs", "--all")
    newest = max((_modified(path) for path in _packs(objects)), default=0.0)
    graph = objects / "info" / "commit-graphs" / "commit-graph-chain"
    if newest > _modified(graph):
        # Without it, asking whether one commit holds another walks a million commits.
        yield "wrote the commit graph", ("commit-graph", "write", "--reachable", "--split", "--no-progress")
        if graph.exists():
            # git leaves it alone where the new packs hold no new commits; that is no reason to ask each hour.
            graph.touch()


def _packs(objects: Path) -> list[Path]:
    return list((objects / "pack").glob("*.pack"))


def _modified(path: Path) -> float:
    """When, in seconds since 1970; long ago if it is not there (any more)."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _litter(git_dir: Path) -> Iterator[Path]:
    """Files that killed processes left: half-written packs and objects, marks that keep a pack, locks of refs."""
    now = time.time()
    objects = git_dir / "objects"
    for path in [*objects.glob("*"), *objects.glob("*/*"), *objects.glob("info/commit-graphs/*")]:
        temporary = _TEMPORARY.match(path.name) or (path.suffix == ".keep" and _is_left_by_fetch(path))
        if temporary and _age(path, now) > _LITTER_AGE:
            yield path
    for path in (objects / "pack").glob("pack-*"):
        # A pack that was taken in halfway.
        if path.suffix != ".idx" and not path.with_suffix(".idx").exists() and _age(path, now) > _LITTER_AGE:
            yield path
    locks = [*git_dir.glob("*.lock"), *(git_dir / "refs").rglob("*.lock"), *(objects / "info").rglob("*.lock")]
    yield from (path for path in locks if _age(path, now) > _LOCK_AGE)


def _is_left_by_fetch(path: Path) -> bool:
    try:
        return path.read_bytes().startswith(_KEEPER)
    except OSError:
        return False


def _age(path: Path, now: float) -> float:
    return now - (_modified(path) or now)


def _removed(path: Path) -> bool:
    if path.is_dir():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)
    return not path.exists()


def _remove_scratch(folder: Path) -> None:
    now = time.time()
    for path in folder.glob("*"):
        if _age(path, now) > _LITTER_AGE and _removed(path):
            log.info("scratch_removed", path=str(path))
