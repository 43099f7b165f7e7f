"""The demo's kernel tree: two Debian releases of Linux 6.1 as the history of one branch. `python -m demo.source`."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from demo.processes import DemoError, only_writer, run
from demo.treemaker import commit_package, commits, prepare_repository

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_HOST_SUITE = "bookworm"
_CONFIG = """\
Dir::Etc::sourcelist "{home}/sources.list";
Dir::Etc::sourceparts "-";
Dir::State "{home}/state";
Dir::State::status "{home}/status";
Dir::Cache "{home}/cache";
APT::Architecture "amd64";
APT::Architectures:: "amd64";
APT::Sandbox::User "root";
APT::Update::Post-Invoke "";
APT::Update::Post-Invoke-Success "";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::Retries "3";
"""


class SourcePackages:
    """The versions of one linux-source package that a suite of Debian serves, by default Debian 12 itself.

    They come from where the host's own apt gets Debian 12; another suite comes from the same mirror. A host that has
    it not, or cannot reach it, names a mirror in TIDEMARK_DEBIAN_MIRROR, with `debian` and `debian-security` below it.
    Proxies of the host's apt stay in force.
    """

    def __init__(self, home: Path, package: str, suite: str = _HOST_SUITE) -> None:
        self.home = home.resolve()
        self.package = package
        self.suite = suite

    def refresh(self) -> list[str]:
        """Read the package lists and give the served versions, oldest first."""
        self._write_config()
        try:
            self._apt("apt-get", "-q", "update", "--error-on=any")
        except DemoError as error:
            raise DemoError(
                f"Debian's package lists cannot be read: {error}\nCheck the network and apt's proxy, or name a mirror "
                "in TIDEMARK_DEBIAN_MIRROR (like http://mirror.example/); then run again."
            ) from error
        lines = self._apt("apt-cache", "madison", self.package).splitlines()
        versions = list(dict.fromkeys(line.split("|")[1].strip() for line in reversed(lines)))
        if not versions:
            raise DemoError(f"Debian's {self.suite} does not serve {self.package}")
        return versions

    def download(self, version: str) -> Path:
        """The package file, checked by apt against the signed lists. A file that is there already is whole."""
        final = self.home / "packages" / f"{self.package}_{version}.deb"
        if final.exists():
            return final
        final.parent.mkdir(parents=True, exist_ok=True)
        part = self.home / "packages" / "part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        try:
            self._apt("apt-get", "-q", "download", f"{self.package}={version}", cwd=part)
        except DemoError as error:
            raise DemoError(f"{self.package} {version} cannot be downloaded: {error}") from error
        next(part.glob("*.deb")).rename(final)
        part.rmdir()
        return final

    def discard(self) -> None:
        """Drop package files: they have become commits."""
        shutil.rmtree(self.home / "packages", ignore_errors=True)

    def _write_config(self) -> None:
        for name in ("state/lists/partial", "cache/archives/partial"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        (self.home / "status").touch()
        (self.home / "apt.conf").write_text(_CONFIG.format(home=self.home))
        signed = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
        lines = [f"deb {signed}{source}\n" for source in _sources(self.suite)]
        (self.home / "sources.list").write_text("".join(lines))

    def _apt(self, *command: str, cwd: Path | None = None) -> str:
        return run(command, cwd=cwd, env={**os.environ, "APT_CONFIG": str(self.home / "apt.conf"), "LC_ALL": "C"})


def _sources(suite: str) -> list[str]:
    """Address, suite and component of each repository that serves `suite`."""
    mirror = os.environ.get("TIDEMARK_DEBIAN_MIRROR", "").rstrip("/")
    if mirror:
        own = [f"{mirror}/debian {suite} main"]
        return [*own, f"{mirror}/debian-security {suite}-security main"] if suite == _HOST_SUITE else own
    form = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    known = run(["apt-get", "indextargets", "--format", form, "Identifier: Packages"]).splitlines()
    found = [line for line in dict.fromkeys(known) if _is_wanted(line.split())]
    if suite != _HOST_SUITE:
        # Security has archives of its own; what is beside the plain suite serves the others as well.
        found = [f"{line.split()[0]} {suite} main" for line in found if line.split()[1] == _HOST_SUITE]
    if not found:
        raise DemoError(
            f"this host's apt has no sources of Debian 12 ({_HOST_SUITE}): name a mirror in TIDEMARK_DEBIAN_MIRROR "
            "(like http://mirror.example/)"
        )
    return found


def _is_wanted(target: list[str]) -> bool:
    return (
        len(target) == len(("address", "suite", "component"))
        and target[1].startswith(_HOST_SUITE)
        and target[2] == "main"
    )


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
