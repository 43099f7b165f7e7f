"""Whether a hostile series can change the kernels of others: hostile and honest builds in turn on one builder.

    python -m bench.builds.poison [--rounds 50] [--folder DIR]

First a fresh builder makes the honest kernels: the base, and a series of one patch. Then another one builds, with one
checkout, one object directory and one compiler cache, a hostile series and an honest kernel in turn. Every honest
kernel must have the build id and the text hash of the fresh one. Debian's Linux 6.1 (the demo's tree), the agent's own
builder in its sandbox. What comparing the checkout with its tree costs is printed beside the build's own time.
"""

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from tidemark_agent.build.checkout import first_difference, read_listing

from bench.builds.costs import prepared, targets
from bench.builds.revisions import BuildError, Revision, Target, build
from bench.kit import ROOT
from demo.processes import git

_REF = "refs/tidemark/series/666/"
_WHO = {f"GIT_{role}_{field}": value for role in ("AUTHOR", "COMMITTER") for field, value in (
    ("NAME", "x"), ("EMAIL", "x@example.org"), ("DATE", "2026-01-01T00:00:00Z")
)}  # fmt: skip
_FOLDERS = "/build/obj /build/ccache /build/src"
_EVERYWHERE = f"for d in {_FOLDERS}; do touch $$d/mm/memory.o $$d/evil; echo x > $$d/mm/memory.c; done"
# What the files of a hostile series hold: attributes of several kinds, and a Makefile that writes wherever it can.
HOSTILE = (
    {".gitattributes": "*.c text eol=crlf\n*.h text eol=crlf\n"},
    {".gitattributes": "*.sh text eol=crlf\nscripts/* text eol=crlf\n"},
    {".gitattributes": "* text=auto eol=crlf\n"},
    {"mm/.gitattributes": "*.c ident\n*.c working-tree-encoding=UTF-16\n"},
    {".gitattributes": "*.c filter=lfs -text\n*.S export-subst\n"},
    {"mm/.gitignore": "*.o\n*.c\n", "mm/evil.o": "evil\n"},
    {"mm/Makefile": f"$(shell {_EVERYWHERE})\n"},
)


@dataclass
class Result:
    """Honest kernels that came out as they should, and the seconds of each honest build."""

    right: int = 0
    seconds: list[float] | None = None


def hostile_series(repository: Path, base: str) -> list[Revision]:
    """One commit on the base for each of HOSTILE, without a work tree: its own attributes change nothing of it."""
    found = []
    for number, files in enumerate(HOSTILE, start=1):
        index = {"GIT_INDEX_FILE": str(repository / "index.hostile"), **_WHO}
        git(repository, "read-tree", base, env=index)
        for name, text in files.items():
            blob = git(repository, "hash-object", "-w", "--stdin", stdin=text.encode())
            git(repository, "update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", env=index)
        tree = git(repository, "write-tree", env=index)
        commit = git(repository, "commit-tree", tree, "-p", base, "-m", f"hostile {number}", env=index)
        git(repository, "update-ref", f"{_REF}{number}", commit)
        found.append(Revision(100 + number, commit, f"{_REF}{number}", None))
    return found


def interleave(
    wanted: Target, honest: Sequence[Revision], hostile: Sequence[Revision], folder: Path, rounds: int
) -> Result:
    fresh = {revision.commit: build(wanted, revision, folder / "fresh") for revision in honest}
    for revision in honest:
        say(f"fresh: prefix {revision.prefix} {fresh[revision.commit].build_id}")
    result = Result(seconds=[])
    turns = zip(range(rounds), cycle(hostile), cycle(honest), strict=False)
    for turn, enemy, friend in turns:
        try:
            build(wanted, enemy, folder / "used")
            word = "built"
        except BuildError as error:
            word = "failed: " + str(error).splitlines()[0][:80]
        made, clean = build(wanted, friend, folder / "used"), fresh[friend.commit]
        is_right = (made.build_id, made.text_hash) == (clean.build_id, clean.text_hash)
        result.right += is_right
        assert result.seconds is not None
        result.seconds.append(made.wall)
        say(f"{turn + 1}: hostile {enemy.prefix - 100} {word}; prefix {friend.prefix} "
            f"{'same' if is_right else 'DIFFERS'} in {made.wall:.1f} s")  # fmt: skip
    return result


def cost_of_proof(source: Path) -> tuple[int, float]:
    """Files of the checkout, and the median seconds of comparing them with the tree."""
    words = ["git", "-C", str(source), "ls-tree", "-r", "-z", "--full-tree", "HEAD"]
    entries = read_listing(subprocess.run(words, check=True, capture_output=True).stdout)
    seconds = []
    for _ in range(3):
        began = time.monotonic()
        if wrong := first_difference(source, entries, stop=threading.Event()):
            raise BuildError(wrong)
        seconds.append(time.monotonic() - began)
    return len(entries), statistics.median(seconds)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.builds.poison", description="hostile and honest builds in turn"
    )
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "bench" / "poison")
    chosen = parser.parse_args(arguments)
    with prepared(chosen.folder) as revisions:
        repository = chosen.folder / "repo.git"
        wanted = targets(repository)[0]
        hostile = hostile_series(repository, revisions[0].commit)
        result = interleave(wanted, [revisions[0], revisions[2]], hostile, chosen.folder, chosen.rounds)
        files, proof = cost_of_proof(chosen.folder / "used" / "work" / wanted.job.tree / "src")
    median = statistics.median(result.seconds or [0.0])
    print(f"honest kernels as on a fresh builder: {result.right} of {chosen.rounds} (bar: all)")
    share = f"{proof / median:.2f} of an honest build ({median:.1f} s)"
    print(f"proof of the checkout: {proof:.1f} s for {files} files, {share}")
    return int(result.right != chosen.rounds)


if __name__ == "__main__":
    sys.exit(main())
