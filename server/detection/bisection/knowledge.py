"""What is known of the revisions of a bisection: which they are, their kernels, what steps told, which run the same
code.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.db import transaction

from server.builds.models import Build, BuildState
from server.builds.wanted import recipe_of
from server.detection.models import Bisection, BisectionStep, Finding
from server.lab.hosts.probes import trees_of_patches
from server.sources.mirror import mirror, record_revisions
from server.sources.models import Revision, Series


def lock(bisection_id: int) -> Bisection:
    """The bisection as it is now, with all that its steps need, held to the end of the transaction."""
    rows = Bisection.objects.select_for_update(of=("self",), no_key=True).select_related(
        "finding__series", "machine__uarch", "machine__config", "machine__toolchain", "target__case__benchmark"
    )
    return rows.select_related("target__metric", "target__session__trial__base", "target__session__trial__patched").get(
        pk=bisection_id
    )


# A search among more would take no longer, but its row would: between two measured heads lie hundreds.
_MOST = 10_000


@dataclass(frozen=True)
class Between:
    """Commits in their order, the good end first, the bad end last; none, and why, where there is no such row."""

    shas: tuple[str, ...]
    why_not: str = ""


def between(finding: Finding) -> Between:
    """The base and patches of a series; of a branch, its first-parent history from before to after.

    GitError, temporary, where the mirror cannot be read.
    """
    if finding.series is not None:
        return _of_series(finding.series)
    assert finding.before is not None
    assert finding.after is not None
    return _of_history(finding.before.sha, finding.after.sha)


def _of_series(series: Series) -> Between:
    made = [patch.revision for patch in series.patches.select_related("revision").order_by("index")]
    if series.base is None or not made or None in made:
        return Between((), "its patches are no commits")
    return Between((series.base.sha, *(revision.sha for revision in made if revision is not None)))


def _of_history(before: str, after: str) -> Between:
    commits = mirror().commits(f"{before}..{after}", limit=_MOST + 1)
    if len(commits) > _MOST:
        return Between((), f"more than {_MOST} revisions lie between {before[:12]} and {after[:12]}")
    if not commits or before not in commits[-1].parents[:1]:
        return Between((), f"{before[:12]} is no first-parent ancestor of {after[:12]}")
    return Between((before, *(commit.sha for commit in reversed(commits))))


def revision_at(bisection: Bisection, index: int) -> Revision:
    """The row of a bisection's revision, written when it is first asked for."""
    sha = bisection.revisions[index]
    known = Revision.objects.filter(sha=sha).first()
    return known or record_revisions(tree=_end(bisection).tree, shas=[sha])[0]


def name_of(bisection: Bisection, index: int) -> str:
    """As people call it: patch 4 of 6, or a short commit id."""
    if bisection.finding.series_id is None:
        return bisection.revisions[index][:12]
    return f"patch {index} of {len(bisection.revisions) - 1}" if index else "the base"


def described(bisection: Bisection, index: int) -> str:
    """Its name and its subject."""
    return f"{name_of(bisection, index)}: {revision_at(bisection, index).subject}"


def _end(bisection: Bisection) -> Revision:
    return Revision.objects.select_related("tree").get(sha=bisection.revisions[-1])


_MADE = frozenset({BuildState.WANTED, BuildState.DISPATCHED, BuildState.RUNNING, BuildState.BUILT})


@dataclass(frozen=True)
class KnownKernels:
    """By index of the revision. Two with a name in common run the same code.

    `made` are built, or being built for somebody else; `broken` do not build, with the reason.
    """

    names: Mapping[int, frozenset[str]]
    made: frozenset[int]
    broken: Mapping[int, str]

    def same(self, one: int, other: int) -> bool:
        return bool(self.names.get(one, frozenset()) & self.names.get(other, frozenset()))


def kernels_of(bisection: Bisection) -> KnownKernels:
    """As its machine's configuration makes them; nothing is known of revisions that nobody asked for yet."""
    trees = dict(Revision.objects.filter(sha__in=bisection.revisions).values_list("sha", "tree_sha"))
    builds = builds_for(bisection, set(trees.values()))
    patched = patched_by_others(bisection, set(trees.values()))
    names: dict[int, frozenset[str]] = {}
    made, broken = set(), {}
    for index, sha in enumerate(bisection.revisions):
        if sha not in trees:
            continue
        build = builds.get(trees[sha])
        names[index] = names_of(build, trees[sha], is_patched=trees[sha] in patched)
        if build and build.state in _MADE:
            made.add(index)
        if build and does_not_build(build):
            broken[index] = build.reason
    return KnownKernels(names, frozenset(made), broken)


def names_of(build: Build | None, tree_sha: str, *, is_patched: bool) -> frozenset[str]:
    """What tells the code of a tree: the tree itself and, once it is built, its kernel, unless a patch made it."""
    return frozenset({tree_sha, build.kernel_hash} if build and build.kernel_hash and not is_patched else {tree_sha})


def patched_by_others(bisection: Bisection, trees: Collection[str]) -> set[str]:
    """Those of `trees` whose builds' word is not taken: inside a series its author is believed, and nowhere else."""
    return set() if bisection.finding.series_id is not None else trees_of_patches(trees)


def builds_for(bisection: Bisection, tree_shas: set[str]) -> dict[str, Build]:
    """The builds of these trees for the bisection's machine, by tree."""
    machine = bisection.machine
    builds = Build.objects.filter(
        tree_sha__in=tree_shas,
        config=machine.config,
        toolchain=machine.toolchain,
        recipe=recipe_of(machine.config, machine.toolchain),
    )
    return {build.tree_sha: build for build in builds.defer("log_tail", "first_error")}


def does_not_build(build: Build) -> bool:
    """Whether that is the kernel's own fault."""
    return build.state == BuildState.FAILED and not build.given_up


Kind = BisectionStep.Kind
Answer = BisectionStep.Answer
# Asked once more with fresh boots; what stays unsure then is left out.
TRIES = 2


@dataclass(frozen=True)
class Knowledge:
    """`low` is the last good revision, `high` the first bad one; `left_out` cannot be told; `again` was unsure once."""

    low: int
    high: int
    good: frozenset[int]
    bad: frozenset[int]
    left_out: frozenset[int]
    again: frozenset[int]

    @property
    def candidates(self) -> list[int]:
        """Revisions between that may still be measured."""
        return [index for index in range(self.low + 1, self.high) if index not in self.left_out]


def knowledge_of(bisection: Bisection) -> Knowledge:
    told = list(bisection.current_steps().filter(kind=Kind.MIDDLE).exclude(answer=""))
    last = len(bisection.revisions) - 1
    good = frozenset({0} | {step.index for step in told if step.answer == Answer.GOOD and step.index is not None})
    bad = frozenset({last} | {step.index for step in told if step.answer == Answer.BAD and step.index is not None})
    tries = Counter(step.index for step in told if step.answer == Answer.UNSURE and step.index is not None)
    skipped = {step.index for step in told if step.answer == Answer.SKIPPED and step.index is not None}
    high = min(bad)
    return Knowledge(
        low=max(index for index in good if index < high),
        high=high,
        good=good,
        bad=bad,
        left_out=frozenset(skipped | {index for index, count in tries.items() if count >= TRIES}),
        again=frozenset(index for index, count in tries.items() if count < TRIES),
    )


def was_not_measured(bisection: Bisection, kind: str, index: int | None) -> str:
    """Why, where the lab itself failed at every try of this step; empty otherwise."""
    tries = list(bisection.current_steps().filter(kind=kind, index=index, answer=Answer.UNSURE))
    if len(tries) < TRIES or any(step.ratio is not None for step in tries):
        return ""
    return tries[-1].reason


def not_seen_again(bisection: Bisection) -> bool:
    """Whether fresh boots of both ends showed nothing: then it was noise."""
    last = bisection.current_steps().filter(kind=Kind.ENDS).order_by("number").last()
    return last is not None and last.answer == Answer.GOOD


def known_by_code(bisection: Bisection, known: Knowledge, kernels: KnownKernels, index: int) -> BisectionStep | None:
    """What is known of this revision without measuring it, as a step that is not saved."""
    good = next((other for other in sorted(known.good) if kernels.same(index, other)), None)
    bad = next((other for other in sorted(known.bad) if kernels.same(index, other)), None)
    # Kernels alike that were told apart: their code tells nothing.
    if (good is None) == (bad is None):
        return None
    answer, like = (Answer.BAD, bad) if good is None else (Answer.GOOD, good)
    assert like is not None
    return BisectionStep(index=index, answer=answer, reason=f"the same code as {name_of(bisection, like)}")


def revert_by_code(
    bisection: Bisection, known: Knowledge, kernels: KnownKernels, tree_sha: str
) -> BisectionStep | None:
    """What is known of the bad end without its culprit: it may be the source, or the kernel, of one that was told."""
    is_patched = tree_sha in patched_by_others(bisection, {tree_sha})
    names = names_of(builds_for(bisection, {tree_sha}).get(tree_sha), tree_sha, is_patched=is_patched)
    for answer, indices in ((Answer.GOOD, known.good), (Answer.BAD, known.bad)):
        for index in sorted(indices):
            if names & kernels.names.get(index, frozenset()):
                step = measured_at(bisection, index)
                like = "source" if tree_sha in kernels.names[index] else "code"
                reason = f"the same {like} as {name_of(bisection, index)}"
                return BisectionStep(answer=answer, reason=reason, ratio=step.ratio if step else None)
    return None


def measured_at(bisection: Bisection, index: int) -> BisectionStep | None:
    """The step that measured this revision against the good end."""
    told = bisection.current_steps().filter(
        kind__in=[BisectionStep.Kind.MIDDLE, BisectionStep.Kind.ENDS],
        index=index,
        ratio__isnull=False,
        answer__in=[Answer.GOOD, Answer.BAD],
    )
    return told.order_by("number").last()


def answer_from_code(bisection_id: int, step_id: int) -> None:
    """Answer a step whose kernel is made by now, where its code is known; its trial is canceled by the sweep."""
    with transaction.atomic():
        bisection = lock(bisection_id)
        step = bisection.current_steps().select_related("trial__patched").filter(pk=step_id, answer="").first()
        if step is None:
            return
        known, kernels = knowledge_of(bisection), kernels_of(bisection)
        if step.kind == BisectionStep.Kind.REVERT and step.trial is not None:
            told = revert_by_code(bisection, known, kernels, step.trial.patched.tree_sha)
        else:
            told = None if step.index is None else known_by_code(bisection, known, kernels, step.index)
        if told is not None:
            step.answer, step.ratio, step.reason = told.answer, told.ratio, told.reason
            step.save(update_fields=["answer", "ratio", "reason"])
