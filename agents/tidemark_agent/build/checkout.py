"""The checkout of a tree: what a source must look like, and bringing it to a commit."""

import hashlib
import os
import re
import shlex
import shutil
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from tidemark_agent.errors import InfrastructureError, KilledError, StoppedError
from tidemark_agent.log import Log
from tidemark_agent.system.disk import remove_tree
from tidemark_agent.system.process import capture, capture_bytes, clean_environment, heed_stop

# Proving that a checkout holds the tree of its commit: every file byte by byte, every mode, and nothing besides.
#
# git's own comparison is not enough: it believes the times in its index, and it compares what its attributes make of
# a file. Here each file is hashed as it lies there, as git hashes a blob: after the word "blob", its size and a NUL.

_PLAIN: Final = b"100644"
_PROGRAM: Final = b"100755"
_LINK: Final = b"120000"
_SUBMODULE: Final = b"160000"
_MODES: Final = frozenset({_PLAIN, _PROGRAM, _LINK, _SUBMODULE})
_GIT: Final = b".git"
_CHUNK = 1024**2
_SHA1_DIGITS = 40
_MOST_THREADS = 4
# Files that one thread hashes before it looks again whether it is to stop.
_AT_ONCE = 512


@dataclass(frozen=True)
class Entry:
    """What a tree says of one path: git's mode and the hash of the blob, or of a submodule's commit."""

    mode: bytes
    sha: bytes


def read_listing(listing: bytes) -> dict[bytes, Entry]:
    """Entries by path from `git ls-tree -r -z --full-tree`; InfrastructureError for anything else."""
    found: dict[bytes, Entry] = {}
    for record in listing.split(b"\0")[:-1]:
        head, _, path = record.partition(b"\t")
        words = head.split(b" ")
        if len(words) != 3 or words[0] not in _MODES or not path:  # noqa: PLR2004 (mode, kind, hash)
            raise InfrastructureError(f"git lists a tree in a way that is not understood: {record[:200]!r}")
        found[path] = Entry(mode=words[0], sha=words[2])
    if not found or not listing.endswith(b"\0"):
        raise InfrastructureError("git lists no whole tree")
    return found


def first_difference(source: Path, entries: dict[bytes, Entry], *, stop: threading.Event) -> str:
    """Where the files below `source` are not those of `entries`, in words; "" where they are. StoppedError at a stop.

    `.git` in `source` itself is not looked at: git does not let a tree hold that name.
    """
    root = os.fsencode(source)
    present, strange = _present(root, entries)
    if strange:
        return strange
    missing = next((path for path in entries if path not in present), None)
    if missing is not None:
        return f"{os.fsdecode(missing)} is missing"
    paths = [path for path, entry in entries.items() if entry.mode != _SUBMODULE]
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        parts = (paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE))
        found = pool.map(lambda part: _differing(root, part, entries, stop), parts)
        return next((difference for difference in found if difference), "")


def _present(root: bytes, entries: dict[bytes, Entry]) -> tuple[set[bytes], str]:
    """All paths below `root`, and the first that does not belong there or is of another kind, in words."""
    folders = {folder for path in entries for folder in _folders(path)}
    present: set[bytes] = set()
    waiting = [b""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(root + b"/" + folder) as found:
            for item in found:
                path = folder + b"/" + item.name if folder else item.name
                if path == _GIT:
                    continue
                is_folder = item.is_dir(follow_symlinks=False)
                if is_folder and path in folders:
                    waiting.append(path)
                elif strange := _strange(item, entries.get(path), is_folder=is_folder):
                    return present, f"{os.fsdecode(path)} {strange}"
                else:
                    present.add(path)
    return present, ""


def _folders(path: bytes) -> Iterator[bytes]:
    folder = path.rpartition(b"/")[0]
    while folder:
        yield folder
        folder = folder.rpartition(b"/")[0]


def _strange(item: os.DirEntry[bytes], entry: Entry | None, *, is_folder: bool) -> str:
    """What is wrong with the kind and the mode of what lies there; "" when they are those of the tree."""
    if entry is None:
        return "is not in the tree"
    if entry.mode == _SUBMODULE:
        return "" if is_folder and _is_empty(item.path) else "is no empty folder, as that of a submodule is"
    mode = item.stat(follow_symlinks=False).st_mode
    if entry.mode == _LINK:
        return "" if stat.S_ISLNK(mode) else "is no link"
    if not stat.S_ISREG(mode):
        return "is no plain file"
    may_run = bool(mode & stat.S_IXUSR)
    return "" if may_run == (entry.mode == _PROGRAM) else "may be run" if may_run else "may not be run"


def _is_empty(folder: bytes) -> bool:
    with os.scandir(folder) as found:
        return next(found, None) is None


def _differing(root: bytes, paths: list[bytes], entries: dict[bytes, Entry], stop: threading.Event) -> str:
    if stop.is_set():
        raise StoppedError("looking at the checkout was ended")
    for path in paths:
        entry = entries[path]
        if _hash_of(root + b"/" + path, entry) != entry.sha.decode("ascii"):
            return f"{os.fsdecode(path)} has other content"
    return ""


def _hash_of(path: bytes, entry: Entry) -> str:
    kind = "sha1" if len(entry.sha) == _SHA1_DIGITS else "sha256"
    if entry.mode == _LINK:
        # Names of a tree are bytes, which pathlib does not take.
        target = os.readlink(path)  # noqa: PTH115
        return hashlib.new(kind, b"blob %d\0" % len(target) + target, usedforsecurity=False).hexdigest()
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        digest = hashlib.new(kind, b"blob %d\0" % os.fstat(file.fileno()).st_size, usedforsecurity=False)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


# One checkout of a tree, moved from commit to commit: only files that differ change, so builds are incremental.
#
# What is built is a function of the commit's tree alone. No attribute of a tree, which its author writes, changes how
# git puts files down, and before each build every file is compared with the tree (build/checkout.py).

_GIT_SECONDS = 900.0
# Of what one fetch brings: the whole history of a kernel tree is some gigabytes. And so much stays free on the disk.
_LARGEST_PACK = 16 * 1024**3
_KEPT_FREE = 2 * 1024**3
_FETCHED = "refs/tidemark-agent/wanted"
# Stronger than every .gitattributes of a tree: git writes blobs as they are. A series could otherwise give files other
# line ends, and git leaves files alone that the next commit does not change, with whatever they were written as.
_ATTRIBUTES = "* -text !eol !ident !filter !working-tree-encoding\n"
_LINK_MODE = b"120000"
_INCLUDED = (b".h", b".inc", b".S")
# Programs that run while a kernel is built.
_RUNS_IN_A_BUILD = re.compile(rb"(?:scripts|certs|usr|tools(?!/testing/)|arch/[^/]+/tools|arch/[^/]+/boot/tools)/")
# A lock of git that a killed agent left: only the holder of the tree's lock works here.
_LOCKS = ("index.lock", "HEAD.lock", "shallow.lock", "config.lock")


class _SpoiledError(Exception):
    """The checkout cannot be brought to the commit: nothing in it is worth keeping."""


class _Asking(TypedDict):
    """How git is run in the checkout."""

    scratch: Path
    timeout: float
    stop: threading.Event
    environment: Mapping[str, str]
    directory: Path


@dataclass(frozen=True)
class Checkout:
    """The source of one tree in `source`; the caller holds the tree's lock."""

    source: Path
    scratch: Path
    stop: threading.Event
    log: Log
    credentials: Path | None = None

    def move_to(self, commit: str, *, git_url: str, ref: str) -> None:
        """Put exactly the files of `commit` into the checkout, and prove it.

        A checkout that git cannot bring there, or that differs from the tree, is made anew once. InfrastructureError
        when that does not help: whatever it is, the commit is not to blame. A stop leaves the checkout as it is.
        """
        try:
            self._bring_to(commit, git_url, ref)
        except _SpoiledError as first:
            self.log.warning("checkout-remade", reason=str(first))
            remove_tree(self.source)
            try:
                self._bring_to(commit, git_url, ref)
            except _SpoiledError as error:
                remove_tree(self.source)
                raise InfrastructureError(f"commit {commit} cannot be checked out: {error}") from error

    def known_symbols(self, commit: str, symbols: Sequence[str]) -> frozenset[str]:
        """Those of `symbols` (CONFIG_...) that some Kconfig file of `commit` defines."""
        names = "|".join(symbol.removeprefix("CONFIG_") for symbol in symbols)
        pattern = rf"^[[:space:]]*(menu)?config[[:space:]]+({names})[[:space:]]*$"
        try:
            found = self._git("grep", "-hE", pattern, commit, "--", "*Kconfig*")
        except KilledError:
            raise
        except InfrastructureError:
            # It ends with 1 when it finds nothing.
            return frozenset()
        return frozenset(f"CONFIG_{line.split()[-1]}" for line in found.splitlines() if line.strip())

    def may_shadow(self, old: str, new: str) -> bool:
        """Whether objects of `old` may not be what `new` would make, though make takes them for it.

        make and ccache know which headers an object was made of, not which were looked for before them in vain. Nor
        does kbuild link vmlinux anew when a program changes that its link runs, such as scripts/kallsyms.
        """
        try:
            raw = capture_bytes(["git", "diff-tree", "-r", "-z", "--no-renames", old, new], **self._asking)
        except KilledError:
            raise
        except InfrastructureError:
            # The mirror may have forgotten the old one.
            return True
        fields = raw.split(b"\0")
        changes = zip(fields[0::2], fields[1::2], strict=False)
        return any(misleads_make(about.split(b" "), path) for about, path in changes)

    def _bring_to(self, commit: str, git_url: str, ref: str) -> None:
        self._prepare(git_url)
        if not self._has(commit):
            self._fetch(git_url, ref, commit)
        try:
            self._git("checkout", "--quiet", "--force", "--detach", commit)
            self._git("clean", "-ffdxq")
        except KilledError:
            # Git did not fail: something ends what runs here, and the next build goes on from where it was.
            raise
        except InfrastructureError as error:
            # A stop may have ended it in a way that it does not tell: the checkout is not thrown away for that.
            heed_stop(self.stop)
            raise _SpoiledError(str(error)) from error
        listing = capture_bytes(["git", "ls-tree", "-r", "-z", "--full-tree", commit], **self._asking)
        if difference := first_difference(self.source, read_listing(listing), stop=self.stop):
            raise _SpoiledError(difference)

    def _prepare(self, git_url: str) -> None:
        git_dir = self.source / ".git"
        if not (git_dir / "HEAD").is_file():
            self.source.mkdir(parents=True, exist_ok=True)
            self._git("init", "--quiet", "--template=", "--initial-branch=none", ".")
        for name in _LOCKS:
            (git_dir / name).unlink(missing_ok=True)
        self._drop_packs()
        (git_dir / "info").mkdir(exist_ok=True)
        (git_dir / "info" / "attributes").write_text(_ATTRIBUTES, encoding="ascii")
        objects = _local_objects(git_url)
        alternates = git_dir / "objects" / "info" / "alternates"
        if objects is None:
            alternates.unlink(missing_ok=True)
        else:
            alternates.parent.mkdir(parents=True, exist_ok=True)
            alternates.write_text(f"{objects}\n", encoding="utf-8")

    def _drop_packs(self) -> None:
        """Remove what a fetch that was cut off has left: it is never used, and may be gigabytes."""
        for pattern in ("pack/tmp_*", "??/tmp_obj_*"):
            for left in (self.source / ".git" / "objects").glob(pattern):
                left.unlink(missing_ok=True)

    def _has(self, commit: str) -> bool:
        try:
            self._git("cat-file", "-e", f"{commit}^{{tree}}")
        except KilledError:
            raise
        except InfrastructureError:
            return False
        return True

    def _fetch(self, git_url: str, ref: str, commit: str) -> None:
        words = ("fetch", "--quiet", "--no-tags", "--force", "--", git_url, f"+{ref}:{_FETCHED}")
        asking: _Asking = {**self._asking, "environment": _git_environment(self.credentials)}
        try:
            capture(["git", *words], **asking, file_limit=largest_pack(self.source))
        finally:
            self._drop_packs()
        if not self._has(commit):
            raise InfrastructureError(f"commit {commit} is not in {ref} of {git_url}")

    def _git(self, *words: str) -> str:
        return capture(["git", *words], **self._asking)

    @property
    def _asking(self) -> _Asking:
        return {
            "scratch": self.scratch,
            "timeout": _GIT_SECONDS,
            "stop": self.stop,
            "environment": _git_environment(),
            "directory": self.source,
        }


def largest_pack(source: Path) -> int:
    """How many bytes one fetch may bring: a server can send without end. InfrastructureError where there is no room."""
    free = shutil.disk_usage(source).free - _KEPT_FREE
    if free <= 0:
        raise InfrastructureError(f"nothing is fetched: less than {_KEPT_FREE >> 30} GiB of disk are left")
    # Others may fetch at the same time.
    return min(_LARGEST_PACK, free // 2)


def misleads_make(about: list[bytes], path: bytes) -> bool:
    """Of one entry of `git diff-tree`: modes, hashes, status. A link may be a whole directory of headers."""
    if about[-1] in {b"A", b"T"} and path.endswith(_INCLUDED):
        return True
    return _LINK_MODE in {about[0].lstrip(b":"), about[1]} or bool(_RUNS_IN_A_BUILD.match(path))


def _git_environment(credentials: Path | None = None) -> Mapping[str, str]:
    """Git with no one's configuration, no hooks, no prompts; the operator's proxy is the one thing it may need.

    With `credentials` it may look into that file, through a pipe, for what opens the host that it asks; it never writes
    there, nor takes a line away that was refused.
    """
    settings = {
        "core.hooksPath": "/dev/null",
        "core.fsmonitor": "false",
        # Files as the tree has them, whatever the host's file system or a distribution prefers.
        "core.attributesFile": "/dev/null",
        "core.excludesFile": "/dev/null",
        "core.autocrlf": "false",
        "core.eol": "lf",
        "core.symlinks": "true",
        "core.fileMode": "true",
        "core.sparseCheckout": "false",
        "submodule.recurse": "false",
        "gc.auto": "0",
        "advice.detachedHead": "false",
        # The mirror may belong to the service's user; the server named it, so it is trusted.
        "safe.directory": "*",
    }
    if credentials is not None:
        place = shlex.quote(str(credentials))
        settings["credential.helper"] = f'!f() {{ test "$1" != get || git credential-store --file={place} get; }}; f'
    environment = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        # A ref of the mirror must not put another object in place of the one that is named.
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
        "GIT_CONFIG_COUNT": str(len(settings)),
    }
    for index, (name, value) in enumerate(settings.items()):
        environment[f"GIT_CONFIG_KEY_{index}"] = name
        environment[f"GIT_CONFIG_VALUE_{index}"] = value
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        if name in os.environ:
            environment[name] = os.environ[name]
    return clean_environment(environment)


def _local_objects(git_url: str) -> Path | None:
    """The object directory of a repository on this host, whose objects are then borrowed, not copied."""
    path = Path(git_url.removeprefix("file://"))
    if not path.is_absolute():
        return None
    for candidate in (path / "objects", path / ".git" / "objects"):
        if candidate.is_dir():
            return candidate.resolve()
    raise InfrastructureError(f"{git_url} is no git repository on this host")
