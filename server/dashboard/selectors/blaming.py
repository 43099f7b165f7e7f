"""For which series a kernel is built, and who is to blame when it does not build."""

from collections.abc import Sequence
from dataclasses import dataclass

from server.builds.blame import blame, blame_of_series
from server.builds.models import Build
from server.sources.models import Series

_SERIES = 10


@dataclass(frozen=True, slots=True)
class Blamed:
    """One series that needs this kernel as its base or as patched; `sentence` is empty while nothing is wrong."""

    id: int
    subject: str
    mark: str
    arm: str
    sentence: str


def blamed_in(build: Build) -> tuple[Blamed, ...]:
    """The newest series whose base or head has the source of this build; two queries."""
    # Two questions, each by an index: one with OR over both would read every series.
    based = Series.objects.filter(base__tree_sha=build.tree_sha).order_by().values("pk")
    ending = Series.objects.filter(head__tree_sha=build.tree_sha).order_by().values("pk")
    named = Series.objects.filter(pk__in=based.union(ending)).select_related("base", "head").defer("trailers")
    series = list(named.order_by("-id")[:_SERIES])
    others = _other_arms(build, series)
    return tuple(_blamed(build, row, others) for row in series)


def _other_arms(build: Build, series: list[Series]) -> dict[str, Build]:
    """The builds of the same recipe for the other kernels of these series, by source tree hash."""
    trees = {revision.tree_sha for row in series for revision in (row.base, row.head) if revision}
    same = Build.objects.filter(config=build.config_id, toolchain=build.toolchain_id, arch=build.arch)
    same = same.defer("log_tail", "first_error")
    return {row.tree_sha: row for row in same.filter(tree_sha__in=trees, recipe=build.recipe)} | {build.tree_sha: build}


def _blamed(build: Build, series: Series, builds: dict[str, Build]) -> Blamed:
    assert series.base is not None
    assert series.head is not None
    identical = series.base.tree_sha == series.head.tree_sha
    arm = "base" if build.tree_sha == series.base.tree_sha else "patched"
    base, patched = builds.get(series.base.tree_sha), builds.get(series.head.tree_sha)
    return Blamed(
        id=series.pk,
        subject=series.subject,
        mark=series.mark,
        arm="base = patched" if identical else arm,
        sentence=blame(base, patched).sentence if base and patched else "",
    )


def blame_sentences(series: Series, builds: Sequence[Build]) -> tuple[str, ...]:
    """For each recipe with a kernel that does not build: who is to blame. `builds` are those of the series."""
    if series.base is None or series.head is None:
        return ()
    by_recipe: dict[tuple[object, ...], dict[str, Build]] = {}
    for row in builds:
        recipe = (row.config_id, row.toolchain_id, row.arch, row.recipe)
        by_recipe.setdefault(recipe, {})[row.tree_sha] = row
    pairs = ((found.get(series.base.tree_sha), found.get(series.head.tree_sha)) for found in by_recipe.values())
    told = (blame_of_series(base, patched, series.pk).sentence for base, patched in pairs if base and patched)
    return tuple(dict.fromkeys(sentence for sentence in told if sentence))
