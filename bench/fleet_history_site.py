"""The rows and the git repository of the simulated fleet: a branch with its commits, machines, benchmarks."""

from bench.fleet_history_levels import RUNS, WARMUP, Levels
from bench.fleet_history_truth import CASES_EACH, UARCHS, Truth
from server.builds.models import KernelConfig, Toolchain
from server.lab.models import CoreType, Machine, Microarchitecture
from server.results.models import Benchmark, Case, Metric
from server.sources.mirror import mirror, record_revisions, tree_ref
from server.sources.models import Branch, MeasureRule, Revision, Tree

BRANCH = "master"
_START = 1_790_000_000
_BETWEEN_COMMITS = 6 * 3600


def make_site(truth: Truth, levels: Levels) -> tuple[Branch, list[Revision], list[Machine]]:
    """A branch whose head is its first commit, with rows for all of them, and machines that are well."""
    # What the rules that a site begins with ask for is not measured here.
    MeasureRule.objects.all().delete()
    tree = Tree.objects.create(name="fleet", url="file:///nowhere.git", branch_patterns=[BRANCH])
    revisions = record_revisions(tree=tree, shas=_commits(tree, truth), foreign=False)
    branch = Branch.objects.create(tree=tree, name=BRANCH, head=revisions[0], head_at=revisions[0].committed_at)
    _benchmarks(truth.benchmarks, levels)
    return branch, revisions, _machines(truth, levels)


def _commits(tree: Tree, truth: Truth) -> list[str]:
    """First-parent history, oldest first; each commit changes one file, so that each can be taken back."""
    lines = []
    for place in range(truth.revisions):
        text, at = f"level {place}\n", _START + place * _BETWEEN_COMMITS
        message = f"mm: Revision {place}\n"
        lines += [f"commit {tree_ref(tree, BRANCH)}", f"mark :{place + 1}"]
        lines += [f"committer Ada Author <ada@example.org> {at} +0000", f"data {len(message)}", message]
        lines += [f"M 644 inline mm/file-{place}.c", f"data {len(text)}", text]
    mirror().output("fast-import", "--quiet", stdin="\n".join([*lines, ""]).encode())
    return mirror().output("rev-list", "--first-parent", "--reverse", tree_ref(tree, BRANCH)).decode().split()


def _benchmarks(count: int, levels: Levels) -> None:
    for number in range(count):
        row = Benchmark.objects.create(name=f"bench-{number}", title=f"Bench {number}", version="1")
        slower_is_more = bool(levels.slower_is_more[number * CASES_EACH])
        Metric.objects.create(
            benchmark=row,
            name="time" if slower_is_more else "rate",
            title="time" if slower_is_more else "rate",
            unit="ns" if slower_is_more else "ops/s",
            better="lower" if slower_is_more else "higher",
        )
        Case.objects.bulk_create(
            Case(benchmark=row, name=f"case-{case}", title=f"Case {case}", runs=RUNS, warmup=WARMUP)
            for case in range(CASES_EACH)
        )


def _machines(truth: Truth, levels: Levels) -> list[Machine]:
    config = KernelConfig.objects.create(name="lab", arch="x86_64", fragment="")
    toolchain = Toolchain.objects.create(name="gcc", compiler="gcc")
    kinds = {name: Microarchitecture.objects.create(name=name, arch="x86_64", title=name) for name in UARCHS}
    machines = [
        Machine.objects.create(
            name=f"{levels.uarch(number)}-{number}",
            uarch=kinds[levels.uarch(number)],
            config=config,
            toolchain=toolchain,
            boot_driver="kexec",
        )
        for number in range(truth.machines)
    ]
    CoreType.objects.bulk_create(CoreType(machine=machine, name="all", cpus="0-7") for machine in machines)
    return machines
