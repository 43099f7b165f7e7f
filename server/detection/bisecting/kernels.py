"""What is known already of the kernels of a bisection's revisions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from server.builds.models import Build, BuildState
from server.builds.services import recipe_of
from server.detection.models import Bisection
from server.lab.kernel_trust import trees_of_patches
from server.sources.models import Revision

_MADE = frozenset({BuildState.WANTED, BuildState.DISPATCHED, BuildState.RUNNING, BuildState.BUILT})


@dataclass(frozen=True)
class Kernels:
    """By index of the revision. Two with a name in common run the same code.

    `made` are built, or being built for somebody else; `broken` do not build, with the reason.
    """

    names: Mapping[int, frozenset[str]]
    made: frozenset[int]
    broken: Mapping[int, str]

    def same(self, one: int, other: int) -> bool:
        return bool(self.names.get(one, frozenset()) & self.names.get(other, frozenset()))


def kernels_of(bisection: Bisection) -> Kernels:
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
    return Kernels(names, frozenset(made), broken)


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
