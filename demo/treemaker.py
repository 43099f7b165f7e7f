"""Commits made straight from source archives: tar stream in, `git fast-import` stream out, nothing unpacked to disk."""

import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from demo.processes import IDENTITY, DemoError, git, git_environment, run

_CHUNK = 1 << 20


def prepare_repository(repository: Path, branch: str) -> None:
    """An empty bare repository, or the one that is there, without what an interrupted import left."""
    if not (repository / "HEAD").exists():
        repository.parent.mkdir(parents=True, exist_ok=True)
        run(["git", "init", "--quiet", "--bare", "--template=", repository], env=git_environment())
    for name, value in (
        ("gc.auto", "0"),
        # Speed before size: the packs are read once by the service's mirror, and looking for deltas takes a minute.
        ("core.compression", "1"),
        ("pack.window", "0"),
        ("pack.threads", "2"),
    ):
        git(repository, "config", name, value)
    git(repository, "symbolic-ref", "HEAD", f"refs/heads/{branch}")
    for leftover in (repository / "objects" / "pack").glob("tmp_*"):
        leftover.unlink()
    for lock in (repository / "refs" / "heads").glob("*.lock"):
        lock.unlink()


def commits(repository: Path, branch: str) -> dict[str, str]:
    """Subject of each commit on `branch`, and its hash; empty when there is no such branch yet."""
    if not git(repository, "for-each-ref", f"refs/heads/{branch}"):
        return {}
    lines = git(repository, "log", "--format=%s%x00%H", f"refs/heads/{branch}").splitlines()
    pairs = (line.partition("\0") for line in lines)
    return {subject: sha for subject, _, sha in pairs}


def commit_package(repository: Path, branch: str, package: Path, message: str) -> str:
    """Commit the source archive inside a linux-source package; returns the commit's hash."""
    with _source_archive(package) as stream:
        return commit_archive(repository, branch, stream, message)


@contextmanager
def _source_archive(package: Path) -> Iterator[IO[bytes]]:
    """The plain tar inside the .tar.xz inside the package, as a stream through three processes."""
    commands: list[list[str]] = [
        ["dpkg-deb", "--fsys-tarfile", str(package)],
        ["tar", "--extract", "--to-stdout", "--wildcards", "*/linux-source-*.tar.xz"],
        ["xz", "--decompress", "--stdout", "--threads=0"],
    ]
    running: list[subprocess.Popen[bytes]] = []
    stdin: IO[bytes] | None = None
    try:
        for command in commands:
            process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if stdin is not None:
                stdin.close()  # Only the child may hold it, or a broken pipe is never noticed.
            running.append(process)
            stdin = process.stdout
        assert stdin is not None
        try:
            yield stdin
            _drain(stdin)
        finally:
            # Who reads a stream that breaks off can only complain about its end; the reason stands here.
            stdin.close()
            _raise_first_failure(package, running)
    finally:
        for process in running:
            process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


def _raise_first_failure(package: Path, running: list["subprocess.Popen[bytes]"]) -> None:
    for process in running:
        # A negative status is a signal: a pipe whose reader went away, not a fault of this program.
        if process.wait() > 0:
            assert process.stderr is not None
            text = process.stderr.read().decode(errors="replace").strip()
            raise DemoError(f"{package.name} cannot be unpacked: {text}")


def _drain(stream: IO[bytes]) -> None:
    while stream.read(_CHUNK):
        pass


def commit_archive(repository: Path, branch: str, archive: IO[bytes], message: str) -> str:
    """Commit all of a tar stream, without its top folder, as the new content of `branch`.

    The same archive on the same parent gives the same hash everywhere: the date is the newest file's. The branch moves
    at the very end, so an interrupted import leaves it as it was.
    """
    parent = git(repository, "for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")
    command = ["git", "-C", str(repository), "fast-import", "--quiet", "--done", "--depth=0"]
    importer = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=git_environment())
    assert importer.stdin is not None
    assert importer.stderr is not None
    complaint = ""
    try:
        with importer.stdin as sink:
            _write_import(sink, archive, f"refs/heads/{branch}", parent, message)
    except (BrokenPipeError, tarfile.TarError) as error:
        complaint = str(error)
    finally:
        text = importer.stderr.read().decode(errors="replace").strip()
        importer.stderr.close()
        importer.wait()
    if complaint or importer.returncode != 0:
        raise DemoError(f"git fast-import into {repository} failed: {text or complaint}")
    return git(repository, "rev-parse", f"refs/heads/{branch}")


@dataclass(frozen=True)
class _Entry:
    mode: str
    mark: int
    path: bytes


def _write_import(sink: IO[bytes], archive: IO[bytes], ref: str, parent: str, message: str) -> None:
    entries: list[_Entry] = []
    newest = 0
    with tarfile.open(fileobj=archive, mode="r|") as tar:
        for member in tar:
            path = member.name.removeprefix("./").partition("/")[2]
            if member.isdir() or not path:
                continue
            content, mode = _content(tar, member)
            sink.write(b"blob\nmark :%d\ndata %d\n" % (len(entries) + 1, len(content)))
            sink.write(content)
            entries.append(_Entry(mode, len(entries) + 1, path.encode("utf-8", "surrogateescape")))
            newest = max(newest, int(member.mtime))
    _write_commit(sink, entries, ref=ref, parent=parent, message=message, date=newest)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> tuple[bytes, str]:
    if member.issym():
        return member.linkname.encode("utf-8", "surrogateescape"), "120000"
    stream = tar.extractfile(member) if member.isreg() else None
    if stream is None:
        raise tarfile.TarError(f"{member.name} is neither file nor symlink")
    return stream.read(), "100755" if member.mode & 0o111 else "100644"


def _write_commit(sink: IO[bytes], entries: list[_Entry], *, ref: str, parent: str, message: str, date: int) -> None:
    text = message.encode()
    identity = IDENTITY.encode()
    sink.write(
        b"commit %s\nauthor %s %d +0000\ncommitter %s %d +0000\n" % (ref.encode(), identity, date, identity, date)
    )
    sink.write(b"data %d\n%s\n" % (len(text), text))
    if parent:
        sink.write(b"from %s\n" % parent.encode())
    sink.write(b"deleteall\n")
    for entry in entries:
        # Quoted as git's C-style strings: paths with spaces or odd bytes pass too.
        quoted = entry.path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
        sink.write(b'M %s :%d "%s"\n' % (entry.mode.encode(), entry.mark, quoted))
    sink.write(b"done\n")
