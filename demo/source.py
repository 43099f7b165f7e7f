"""The demo's kernel tree: two Debian releases of Linux 6.1 as the history of one branch. `python -m demo.source`."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from demo.errors import DemoError
from demo.guard import only_writer
from demo.packages import SourcePackages
from demo.treemaker import commit_package, commits, prepare_repository

PACKAGE = "linux-source-6.1"
BRANCH = "linux-6.1.y"
_SUBJECT = "linux: Import Debian's " + PACKAGE + " "
_NEEDED_BYTES = 2_500_000_000


@dataclass(frozen=True)
class KernelTree:
    repository: Path
    head: str


def ensure_tree(cache: Path, say: Callable[[str], None]) -> KernelTree:
    """Make the tree, or go on where an earlier try ended; without any network when it is there.

    The caller is the `only_writer` of `cache`.
    """
    repository = cache / "linux"
    chosen = cache / "versions"
    if not chosen.exists():
        check_space(cache)
        say("reading Debian's package lists")
        versions = SourcePackages(cache / "apt", PACKAGE).refresh()
        _write_whole(chosen, "\n".join(_oldest_and_newest(versions)) + "\n")
    prepare_repository(repository, BRANCH)
    packages = SourcePackages(cache / "apt", PACKAGE)
    for version in chosen.read_text().split():
        if _SUBJECT + version in commits(repository, BRANCH):
            continue
        check_space(cache)
        say(f"downloading {PACKAGE} {version}")
        package = _download(packages, version, chosen)
        say(f"committing {version}")
        commit_package(repository, BRANCH, package, _SUBJECT + version + "\n")
    packages.discard()
    head = next(iter(commits(repository, BRANCH).values()))
    return KernelTree(repository, head)


def _oldest_and_newest(versions: list[str]) -> list[str]:
    return versions if len(versions) == 1 else [versions[0], versions[-1]]


def _download(packages: SourcePackages, version: str, chosen: Path) -> Path:
    try:
        return packages.download(version)
    except DemoError:
        # Debian may have dropped a version since it was chosen: the next run chooses again, commits made stay.
        chosen.unlink(missing_ok=True)
        raise


def check_space(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_BYTES:
        raise DemoError(f"no room in {folder}: {free // 10**6} MB free, {_NEEDED_BYTES // 10**6} MB needed")


def _write_whole(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.rename(path)


def main() -> None:
    cache = Path(__file__).resolve().parent.parent / ".cache" / "demo"

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    with only_writer(cache, say):
        print(ensure_tree(cache, say))


if __name__ == "__main__":
    main()
