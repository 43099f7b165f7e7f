"""The kernels of a trial."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog

from server.builds.blame import blame, blame_of_series
from server.builds.models import Build, BuildState
from server.builds.services import recipe_of, retire_build, want_build
from server.core.errors import DomainError
from server.lab.models import Machine, Trial
from server.lab.trials.choosing import Place
from server.sources.models import Patch, Revision

log = structlog.get_logger(__name__)
# What surrounds vmlinux in the image, and what is run while both are made.
_MAKES_THE_IMAGE = re.compile(
    r"^arch/[^/]+/(boot|tools)/|^(scripts|usr|certs)/|^tools/(objtool|build|lib|scripts|include|bpf/resolve_btfids)/"
    r"|^(?!Documentation/|samples/|tools/)(.*/)?(Makefile|Kbuild|Kconfig)[^/]*$"
)
_FINAL = frozenset({BuildState.BUILT, BuildState.FAILED})
UNDER_WAY = frozenset({BuildState.WANTED, BuildState.DISPATCHED, BuildState.RUNNING})


@dataclass(frozen=True)
class Pair:
    """What one machine is to boot."""

    machine: Machine
    base: Build
    patched: Build

    @property
    def is_final(self) -> bool:
        return self.base.state in _FINAL and self.patched.state in _FINAL

    def is_same_code(self, *, hash_tells: bool) -> bool:
        """Whether both hold the same code and data, so that whatever differs is not the kernel."""
        same_kernel = hash_tells and self.base.kernel_hash != "" and self.base.kernel_hash == self.patched.kernel_hash
        return self.base.state == BuildState.BUILT and (self.base.pk == self.patched.pk or same_kernel)


@dataclass(frozen=True)
class Kernels:
    """The pairs of the machines for which kernels can be made, and in words why others have none."""

    pairs: tuple[Pair, ...]
    trouble: str = ""


def are_under_way(trial: Trial, places: Sequence[Place]) -> bool:
    """Whether all kernels are wanted already, and some of them not made yet: then there is nothing to do but wait.

    A few queries, since most trials that a sweep looks at wait, and are looked at again and again.
    """
    makers = {(place.config.pk, place.machine.toolchain_id): place for place in places}
    try:
        recipes = {recipe_of(place.config, place.machine.toolchain) for place in makers.values()}
    except DomainError:
        return False
    trees = {trial.base.tree_sha, trial.patched.tree_sha}
    there = Build.objects.filter(tree_sha__in=trees, recipe__in=recipes, state__in=[*_FINAL, *UNDER_WAY])
    states = {
        (tree_sha, config, toolchain): state
        for tree_sha, config, toolchain, state in there.values_list("tree_sha", "config", "toolchain", "state")
    }
    wanted = {(tree_sha, *maker) for tree_sha in trees for maker in makers}
    return wanted <= states.keys() and any(states[key] in UNDER_WAY for key in wanted)


def want_kernels(trial: Trial, places: Iterable[Place]) -> Kernels:
    """Want both kernels for each place; one build serves all places of one configuration."""
    wanted: dict[tuple[int, int], tuple[Build, Build] | str] = {}
    pairs, troubles = [], set()
    for place in places:
        key = (place.config.pk, place.machine.toolchain_id)
        if key not in wanted:
            wanted[key] = _want(trial, place)
        found = wanted[key]
        if isinstance(found, str):
            # A slip in one configuration is no reason to leave the other machines idle.
            log.warning("kernel_not_wanted", trace=trial.trace, machine=place.machine.name, reason=found)
            troubles.add(found)
        else:
            pairs.append(Pair(place.machine, *found))
    return Kernels(tuple(pairs), "; ".join(sorted(troubles)))


def _want(trial: Trial, place: Place) -> tuple[Build, Build] | str:
    def of(revision: Revision) -> Build:
        return want_build(revision=revision, config=place.config, toolchain=place.machine.toolchain, trace=trial.trace)

    try:
        # The base first: many trials share it, and it tells whether a failure is the patched revision's own.
        base = of(trial.base)
        return base, base if trial.base_id == trial.patched_id else of(trial.patched)
    except DomainError as error:
        return error.message


def does_hash_tell(trial: Trial) -> bool:
    """Whether two kernels of the trial with one hash boot as one.

    The hash is of vmlinux. What boots is an image made from it, by files that a series may change as well: where it
    does, the kernels are measured like any others.
    """
    if trial.series_id is None:
        return True
    patches = Patch.objects.filter(series=trial.series_id)
    return not any(_MAKES_THE_IMAGE.search(path) for paths in patches.values_list("paths", flat=True) for path in paths)


def retire_unequal(pairs: Iterable[Pair]) -> bool:
    """Two kernels of two compilers would compare the compilers: the older one is built again first."""
    unequal = {
        (pair.base.pk, pair.patched.pk): min(pair.base, pair.patched, key=lambda build: build.pk)
        for pair in pairs
        if pair.base.state == pair.patched.state == BuildState.BUILT
        and pair.base.compiler_version != pair.patched.compiler_version
    }
    for (base, patched), older in unequal.items():
        retire_build(older, f"builds {base} and {patched} were made by different compilers")
    return bool(unequal)


def missing_kernel(trial: Trial, pair: Pair) -> str:
    """Whose fault it is that there is no pair of kernels, for people; empty where there is one."""
    if trial.purpose == Trial.Purpose.SERIES and trial.series_id is not None:
        return blame_of_series(pair.base, pair.patched, trial.series_id).sentence
    return blame(pair.base, pair.patched, who="the patched revision").sentence
