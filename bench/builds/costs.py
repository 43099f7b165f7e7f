"""What building costs: a base and a series of five patches, for x86-64 and arm64, cold and incremental, made twice.

    python -m bench.builds.costs [--arch x86_64] [--folder DIR] [--no-clang] [--no-perf] [--warm]

Built are the base and every prefix with the agent's own builder, inside its sandbox, from Debian's Linux 6.1 (the
demo's tree). Cold means an empty object directory and an empty ccache. Then the base and the last prefix are built
again in another folder with a ccache of its own, and the base again in the first folder after the whole series: build
id and text hash must be the same. Base and last prefix are booted in an emulator with one case of a benchmark. The
figures are only worth something on a host that does nothing else.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.builds.revisions import Booted, Built, Revision, Target, boot, build, series_of, target
from bench.kit import ROOT
from bench.table import table
from demo.processes import only_writer
from demo.source import ensure_tree

MOST_OF_COLD = 0.15
_HEAD = ["", "wall s", "CPU s", "of cold: wall", "CPU", ""]


@dataclass
class Findings:
    """The rows so far, and what did not hold."""

    rows: list[list[str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def require(self, what: str, *, holds: bool) -> str:
        """Returns the word for the table."""
        if not holds:
            self.wrong.append(what)
        return "pass" if holds else "FAIL"


@dataclass(frozen=True)
class Bench:
    """One architecture's part."""

    wanted: Target
    revisions: Sequence[Revision]
    folder: Path
    findings: Findings
    perf: bool
    warm: bool

    def run(self) -> None:
        """Build the base and all prefixes, then again elsewhere, then boot."""
        base, *prefixes = self.revisions
        cold = self._built(base, None, "cold")
        found = [cold, *(self._built(revision, cold, _title(revision)) for revision in prefixes)]
        self._compare_texts(found)
        again = build(self.wanted, base, self.folder / "one")
        self._again("base again, after the series", again, cold, cold)
        if self.warm:
            shutil.copytree(self.folder / "one/ccache", self.folder / "two/ccache")
        elsewhere = [build(self.wanted, revision, self.folder / "two") for revision in (base, self.revisions[-1])]
        self._again(f"base elsewhere, {'warm ccache' if self.warm else 'cold'}", elsewhere[0], cold, cold)
        self._again("the whole series elsewhere", elsewhere[1], found[-1], cold)
        if self.perf:
            self._build_perf(base, cold)
        for one in (cold, found[-1]):
            self._boot(one)

    def _compare_texts(self, found: Sequence[Built]) -> None:
        """Each patch against the prefix before it: the text hash is another one where the code is."""
        for revision, before, after in zip(self.revisions[1:], found, found[1:], strict=False):
            wanted = revision.patch is not None and revision.patch.changes_code
            what = "another text hash" if wanted else "same text hash"
            self._note(_title(revision), what, holds=(before.text_hash != after.text_hash) == wanted)

    def _built(self, revision: Revision, cold: Built | None, title: str) -> Built:
        made = build(self.wanted, revision, self.folder / "one")
        wall, cpu = (made.wall / cold.wall, made.cpu / cold.cpu) if cold else (1.0, 1.0)
        is_judged = cold is not None and revision.patch is not None and revision.patch.is_one_file
        mark = self.findings.require(f"{self.wanted.name}: {title}", holds=wall <= MOST_OF_COLD) if is_judged else ""
        self._row(title, made, wall, cpu, mark)
        return made

    def _again(self, title: str, made: Built, first: Built, cold: Built) -> None:
        same = (made.build_id, made.text_hash) == (first.build_id, first.text_hash)
        mark = self.findings.require(f"{self.wanted.name}: {title}", holds=same)
        self._row(title, made, made.wall / cold.wall, made.cpu / cold.cpu, f"same build id and text hash: {mark}")

    def _build_perf(self, base: Revision, cold: Built) -> None:
        made = build(self.wanted, base, self.folder / "one", perf=True)
        holds = made.has_perf and made.build_id == cold.build_id
        mark = self.findings.require(f"{self.wanted.name}: perf", holds=holds)
        self._row("base with perf", made, made.wall / cold.wall, made.cpu / cold.cpu, mark)

    def _boot(self, made: Built) -> None:
        booted = boot(made.image, made.build_id, self.wanted.job.arch, self.folder)
        what = f"{self.wanted.name}: boot of prefix {made.prefix}: {_trouble(booted)}"
        mark = self.findings.require(what, holds=booted.outcome == "measured")
        fault = "-" if booted.nanoseconds is None else f"{booted.nanoseconds:.1f} ns per fault"
        self._say([f"boot of prefix {made.prefix}", f"{booted.seconds:.1f}", "", "", "", f"{fault} {mark}"])

    def _note(self, title: str, what: str, *, holds: bool) -> None:
        mark = self.findings.require(f"{self.wanted.name}: {title}", holds=holds)
        self._say([title, "", "", "", "", f"{what}: {mark}"])

    def _row(self, title: str, made: Built, wall: float, cpu: float, mark: str) -> None:
        shares = [f"{wall:.1%}", f"{cpu:.1%}"]
        self._say([title, f"{made.wall:.1f}", f"{made.cpu:.1f}", *shares, mark])

    def _say(self, row: list[str]) -> None:
        self.findings.rows.append([f"{self.wanted.name}: {row[0]}", *row[1:]])
        print("  ".join(self.findings.rows[-1]), file=sys.stderr, flush=True)


def _title(revision: Revision) -> str:
    return f"{revision.prefix} {revision.patch.title}" if revision.patch else "base"


def _trouble(booted: Booted) -> str:
    return f"{booted.outcome} {booted.reason}\n{booted.console[-600:]}"


def targets(repository: Path) -> list[Target]:
    """What is built in full, one for each architecture."""
    return [
        target("x86-64", ROOT / "demo/kernel.config", repository, arch="x86_64"),
        target("arm64", ROOT / "bench/arm64.config", repository, arch="arm64", cross="aarch64-linux-gnu-"),
    ]


@contextmanager
def prepared(folder: Path) -> Iterator[list[Revision]]:
    """The revisions, in `folder`/repo.git; nothing of an earlier run is left there."""

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cache = ROOT / ".cache" / "demo"
    with only_writer(cache, say):
        tree = ensure_tree(cache, say)
        yield series_of(tree.repository, tree.head, folder / "repo.git")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.builds.costs", description="what building kernels costs")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "bench" / "builds")
    parser.add_argument("--arch", choices=["x86_64", "arm64"], help="only this one")
    parser.add_argument("--no-clang", action="store_true")
    parser.add_argument("--no-perf", action="store_true")
    parser.add_argument("--warm", action="store_true", help="elsewhere with a copy of the first ccache: half the time")
    chosen = parser.parse_args(arguments)
    findings = Findings()
    with prepared(chosen.folder) as revisions:
        repository = chosen.folder / "repo.git"
        for wanted in targets(repository):
            if chosen.arch in {None, wanted.job.arch}:
                place = chosen.folder / wanted.name
                Bench(wanted, revisions, place, findings, perf=not chosen.no_perf, warm=chosen.warm).run()
        if not chosen.no_clang:
            clang = target("clang", ROOT / "demo/kernel.config", repository, arch="x86_64", family="clang")
            made = build(clang, revisions[0], chosen.folder / "clang")
            findings.rows.append([f"clang: cold ({made.compiler})", f"{made.wall:.1f}", f"{made.cpu:.1f}", "", "", ""])
    print(table(_HEAD, findings.rows))
    for wrong in findings.wrong:
        print(f"does not hold: {wrong}")
    return int(bool(findings.wrong))


if __name__ == "__main__":
    sys.exit(main())
