"""Real kernel history for measuring how bases are found: every linux-source-6.1 that Debian still serves, in order."""

import sys
from pathlib import Path

from demo.guard import only_writer
from demo.packages import SourcePackages
from demo.processes import git
from demo.source import PACKAGE, check_space
from demo.treemaker import commit_package, commits, prepare_repository

STABLE = "linux-6.1.y"
_SUBJECT = f"linux: Import Debian's {PACKAGE} "


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def ensure_history(cache: Path) -> Path:
    """A bare repository with one commit and one tag for each version; needs no network once it is whole."""
    repository = cache / "linux-6.1.git"
    whole = cache / "linux-6.1.whole"
    with only_writer(cache, say):
        if not whole.exists():
            _make(cache, repository)
            whole.touch()
    return repository


def _make(cache: Path, repository: Path) -> None:
    prepare_repository(repository, STABLE)
    packages = SourcePackages(cache / "apt", PACKAGE)
    for version in packages.refresh():
        if _SUBJECT + version in commits(repository, STABLE):
            continue
        check_space(cache)
        say(f"downloading {PACKAGE} {version}")
        package = packages.download(version)
        say(f"committing {version}")
        commit_package(repository, STABLE, package, f"{_SUBJECT}{version}\n")
        packages.discard()
    for subject, sha in reversed(commits(repository, STABLE).items()):
        git(repository, "update-ref", f"refs/tags/{_tag_of(subject.removeprefix(_SUBJECT), repository)}", sha)


def _tag_of(version: str, repository: Path) -> str:
    """The tag v6.1.170 for the first package of that version, v6.1.170-4 for those that follow."""
    first = f"v{version.partition('-')[0]}"
    return f"v{version}" if git(repository, "for-each-ref", f"refs/tags/{first}") else first


if __name__ == "__main__":
    print(ensure_history(Path(__file__).resolve().parent.parent / ".cache" / "bench"))
