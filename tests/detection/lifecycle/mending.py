"""A small real tree whose branch regressed, and trials that say whether a later commit mends it."""

from dataclasses import dataclass
from pathlib import Path

from server.detection.findings.checks import Name, checks_named
from server.detection.models import Finding
from server.detection.on_trial_over import answer_check
from server.detection.sweep import tend_life
from server.lab.models import Machine, Trial
from server.sources.mirror import record_revisions
from server.sources.models import Branch, Tree
from server.sources.trees.fetch import fetch_tree
from tests.detection.lifecycle.findings import SAME, UP, as_judged, judged, write_down
from tests.detection.measured import physical
from tests.sources.posting import Upstream


@dataclass
class World:
    """A tree with a commit that made things slower, between two measured heads."""

    tree: Tree
    upstream: Upstream
    machine: Machine
    good: str
    culprit: str
    finding: Finding

    def commit(self, message: str) -> str:
        return self.upstream.commit({f"file-{self.upstream.commits}": "x"}, message)

    def look(self) -> None:
        fetch_tree(tree=self.tree)
        tend_life()
        self.finding.refresh_from_db()

    def fix_trials(self) -> list[Trial]:
        return list(Trial.objects.filter(purpose=Trial.Purpose.FIX).order_by("pk"))

    def measure(self, trial: Trial, verdict: str) -> None:
        write_down(trial, {self.machine: {"fork": verdict}})
        trial.advance(Trial.State.DONE)
        answer_check(trial)
        self.finding.refresh_from_db()

    def outcomes(self) -> list[str]:
        return [row["outcome"] for row in checks_named(self.finding, Name.FIX)]


def make_world(where: Path) -> World:
    """A finding of the tree's branch, confirmed, with its culprit."""
    upstream = Upstream.create(where / "upstream")
    before = upstream.commit({"README": "a tree"}, "Begin")
    good = upstream.commit({"README": "a better tree"}, "Say more")
    culprit = upstream.commit({"mm": "slow"}, "mm: Make it slow")
    after = upstream.commit({"README": "a large tree"}, "Say even more")
    tree = Tree.objects.create(name="linus", url=str(upstream.path), branch_patterns=["master"])
    fetch_tree(tree=tree)
    first, parent, made, last = record_revisions(tree=tree, shas=[before, good, culprit, after])
    machine = physical("m1", "zen3")
    trial = judged(None, {machine: {"fork": UP, "mmap": SAME}}, purpose=Trial.Purpose.CONFIRM, base=first, patched=last)
    branch = Branch.objects.get(tree=tree)
    finding = as_judged(trial, state=Finding.State.CONFIRMED, branch=branch, before=first, after=last, culprit=made)
    assert parent.sha == good
    return World(tree, upstream, machine, good, culprit, finding)
