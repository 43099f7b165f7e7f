"""CPU time of polling 20 trees over a git daemon on loopback: without news, and with news in one of them.

    python -m bench.archive.trees [--trees 20] [--rounds 5]

Each tree has 10 branches, 3 of them watched, and 800 tags, as mainline has. A round is what beat and the workers do:
`sources.poll_trees`, then `sources.fetch_tree` for each tree. Counted is the time of the process that runs the tasks
and of every git it starts; not that of the server, of PostgreSQL and of the message broker.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.kit import ROOT
from bench.scratch_database import servers
from bench.table import table
from demo.processes import git
from tests.sources.serving import git_daemon

MOST_CPU_SECONDS = 2.0
BRANCHES, TAGS = 10, 800
_MARKS = 900
_START = 1_793_500_000


def make_trees(folder: Path, count: int) -> None:
    """`count` bare repositories `tree-N.git` below `folder`."""
    first = folder / "tree-0.git"
    git(folder, "init", "-q", "--bare", "-b", "branch-0", str(first))
    git(first, "fast-import", "--quiet", stdin=_history().encode())
    for number in range(BRANCHES):
        git(first, "update-ref", f"refs/heads/branch-{number}", f"refs/tags/v{TAGS - 1 - number}^{{commit}}")
    git(first, "pack-refs", "--all")
    for number in range(1, count):
        shutil.copytree(first, folder / f"tree-{number}.git")


def _history() -> str:
    lines = []
    for number in range(1, _MARKS + 1):
        lines += [
            "commit refs/heads/branch-0",
            f"mark :{number}",
            f"committer A <a@x> {_START + number} +0000",
            "data 1",
        ]
        lines += ["x", f"M 644 inline file-{number % 50}", f"data {len(str(number))}", str(number), ""]
    for number in range(TAGS):
        lines += [f"tag v{number}", f"from :{number + 1}", f"tagger A <a@x> {_START + number} +0000", "data 1", "t"]
    return "\n".join(lines) + "\n"


def add_news(folder: Path) -> None:
    """One commit on a watched branch of the first tree."""
    tree = folder / "tree-0.git"
    head = git(tree, "rev-parse", "refs/heads/branch-1")
    commit = git(tree, "commit-tree", f"{head}^{{tree}}", "-p", head, "-m", "News")
    git(tree, "update-ref", "refs/heads/branch-1", commit)


def rounds(environment: Mapping[str, str], base: str, folder: Path, count: int, quiet: int) -> list[dict[str, Any]]:
    """One line for each round that the child made: the first, `quiet` ones without news, and one with news."""
    command = [sys.executable, "-m", "bench.scratch_database", "bench.archive.trees_rounds", base, str(count)]
    with (
        tempfile.TemporaryDirectory() as state,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment, "TIDEMARK_STATE_DIR": state},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as child,
    ):
        assert child.stdin
        assert child.stdout
        found = []
        for number in range(quiet + 2):
            if number == quiet + 1:
                add_news(folder)
            child.stdin.write("round\n")
            child.stdin.flush()
            found.append(json.loads(child.stdout.readline()))
        child.stdin.close()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch, servers() as environment:
        folder = Path(scratch)
        make_trees(folder, options.trees)
        with git_daemon(folder) as base:
            first, *quiet, news = rounds(environment, base, folder, options.trees, options.rounds)
    print(table(["", "CPU s", "CPU s of git", "seconds", "queries", "heads moved"], _rows(first, quiet, news)))
    worst = max(found["cpu"] for found in quiet)
    right = all(found["moved"] == 0 for found in quiet) and news["moved"] == 1 and not any(f["failing"] for f in quiet)
    holds = worst < MOST_CPU_SECONDS
    print(
        f"\n{options.trees} trees without news: worst round {worst:.2f} s of CPU, limit {MOST_CPU_SECONDS:g} s: ",
        end="",
    )
    print("pass" if holds and right else "FAIL")
    return 0 if holds and right else 1


def _rows(first: dict[str, Any], quiet: list[dict[str, Any]], news: dict[str, Any]) -> list[list[str]]:
    middle = {key: median(found[key] for found in quiet) for key in ("cpu", "git", "seconds", "queries", "moved")}
    worst = max(quiet, key=lambda found: float(found["cpu"]))
    named = [("first round", first), ("no news, median", middle), ("no news, worst", worst), ("news in one", news)]
    return [
        [name, f"{f['cpu']:.2f}", f"{f['git']:.2f}", f"{f['seconds']:.2f}", f"{f['queries']:g}", f"{f['moved']:g}"]
        for name, f in named
    ]


if __name__ == "__main__":
    sys.exit(main())
