"""Builds that nobody wants any more, or not in this way."""

from collections.abc import Collection

from django.db.models import Exists, OuterRef, Q, QuerySet

from server.builds.models import Build, BuildState
from server.builds.recipes import recipe_of
from server.core.errors import DomainError
from server.sources.models import Series, SeriesState, WantedRevision

_OWN_TREE = OuterRef("tree_sha")


def unwanted_builds() -> QuerySet[Build]:
    """Builds that wait or run for superseded series alone: no living series and no policy wants their source tree."""
    return _unclaimed().filter(_wanted_by(SeriesState.SUPERSEDED))


def _unclaimed() -> QuerySet[Build]:
    """Builds that wait or run and that no living series and no policy wants."""
    chosen = WantedRevision.objects.filter(revision__tree_sha=_OWN_TREE)
    return Build.objects.filter(
        ~_wanted_by(SeriesState.APPLIED),
        ~Exists(chosen),
        state__in=[BuildState.WANTED, BuildState.DISPATCHED, BuildState.RUNNING],
    )


def _wanted_by(state: str) -> Q:
    """Builds whose source tree is the base or the head of a series in this state.

    Two questions, each by an index: one with OR over both would read every series for each build.
    """
    series = Series.objects.filter(state=state)
    return Q(Exists(series.filter(base__tree_sha=_OWN_TREE))) | Q(Exists(series.filter(head__tree_sha=_OWN_TREE)))


def cancel_unwanted(reason: str, keep: Collection[int] = (), *, trees: Collection[str] | None = None) -> int:
    """Cancel the builds that only superseded series wanted; returns how many. Who wants one later wants it again.

    `keep` are ids of builds that somebody waits for whom this layer does not know; `trees`, if given, the source trees
    that somebody like that wants no more: builds of those are canceled instead, where nobody else wants them.
    """
    found = unwanted_builds() if trees is None else _unclaimed().filter(tree_sha__in=trees)
    unwanted = found.exclude(pk__in=keep).order_by("pk")
    return sum(build.advance(BuildState.CANCELED, reason) for build in unwanted)


def cancel_edited() -> int:
    """Cancel waiting builds whose configuration or toolchain was edited since they were wanted; returns how many.

    A builder would be given today's lines for yesterday's recipe. Who still wants such a kernel wants the new one.
    """
    canceled = 0
    waiting = Build.objects.filter(state=BuildState.WANTED).select_related("config", "toolchain")
    recipes: dict[tuple[int, int], str] = {}
    for build in waiting:
        key = (build.config_id, build.toolchain_id)
        if key not in recipes:
            recipes[key] = _present_recipe(build)
        if recipes[key] != build.recipe:
            canceled += build.advance(BuildState.CANCELED, "its configuration or toolchain was edited")
    return canceled


def is_present(build: Build) -> bool:
    """Whether building it again would follow the recipe that it was made by."""
    return build.recipe == _present_recipe(build)


def _present_recipe(build: Build) -> str:
    try:
        return recipe_of(build.config, build.toolchain)
    except DomainError:
        return ""
