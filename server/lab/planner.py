"""What to build and to boot for a series."""

import structlog
from django.db import transaction
from django.db.models import QuerySet

from server.builds.blame import blame_of_series
from server.builds.models import Build, BuildState
from server.builds.services import retire_build, want_build
from server.core.errors import DomainError
from server.lab.models import Boot, BootState, Machine, Session, SessionState
from server.sources.models import Revision, Series, SeriesState, Tree

log = structlog.get_logger(__name__)

# Balanced against drift: each kernel stands as often early as late.
_INTERLEAVED = (Boot.Arm.BASE, Boot.Arm.PATCHED, Boot.Arm.PATCHED, Boot.Arm.BASE)


def boot_order(boots_per_side: int) -> list[str]:
    """Arms in the order of their boots: A B B A A B B A ..., as many of each arm as asked for."""
    return [_INTERLEAVED[position % 4] for position in range(2 * boots_per_side)]


def plan_series(*, series_id: int) -> list[Session]:
    """Want the kernels of an applied series; once all of them are final, plan a session on each good machine.

    A machine whose kernels cannot be built gets a session that failed with the reason, so that nothing is missing
    without being said. Safe to repeat.
    """
    series = Series.objects.select_related("base__tree", "head").filter(pk=series_id, state=SeriesState.APPLIED).first()
    if series is None or series.base is None or series.head is None:
        return []
    pairs = []
    for machine in _machines_for(series.base.tree):
        try:
            # The base first: many series share it, and it tells whether a failure is the series' own.
            base = _build_of(series, machine, series.base)
            pairs.append((machine, base, _build_of(series, machine, series.head)))
        except DomainError as error:
            # A slip in one configuration is no reason to leave the other machines idle.
            log.warning("kernel_not_wanted", trace=series.trace, machine=machine.name, reason=error.message)
    final = {BuildState.BUILT, BuildState.FAILED}
    if not all(build.state in final for _machine, base, patched in pairs for build in (base, patched)):
        return []
    if _retire_unequal(pairs):
        return []
    with transaction.atomic():
        return [_plan_session(series, machine, base, patched) for machine, base, patched in pairs]


def _machines_for(tree: Tree) -> QuerySet[Machine]:
    """Good machines of the microarchitectures that the tree is interested in; of all where the lab has none of them."""
    enabled = Machine.objects.filter(enabled=True).select_related("config", "toolchain")
    wanted = enabled.filter(uarch__name__in=tree.uarchs)
    return (wanted if wanted.exists() else enabled).filter(health=Machine.Health.GOOD)


def wanted_benchmarks(series: Series) -> list[str]:
    """What a session of this series measures: what its paths ask for, with the default set, and what its tree wants.

    Empty, which means everything, for a series about which no rule spoke.
    """
    tree = series.base.tree.benchmarks if series.base else []
    return sorted({*series.benchmarks, *tree}) if series.benchmarks else []


def _retire_unequal(pairs: list[tuple[Machine, Build, Build]]) -> bool:
    """Two kernels of two compilers would compare the compilers: the older one is built again first."""
    unequal = {
        (base.pk, patched.pk): min(base, patched, key=lambda build: build.pk)
        for _machine, base, patched in pairs
        if base.state == patched.state == BuildState.BUILT and base.compiler_version != patched.compiler_version
    }
    for (base, patched), older in unequal.items():
        retire_build(older, f"builds {base} and {patched} were made by different compilers")
    return bool(unequal)


def _build_of(series: Series, machine: Machine, revision: Revision) -> Build:
    return want_build(revision=revision, config=machine.config, toolchain=machine.toolchain, trace=series.trace)


def _plan_session(series: Series, machine: Machine, base: Build, patched: Build) -> Session:
    session, created = Session.objects.get_or_create(
        series=series,
        machine=machine,
        defaults={
            "base_build": base,
            "patched_build": patched,
            "benchmarks": wanted_benchmarks(series),
            "state": SessionState.PLANNED,
            "trace": series.trace,
        },
    )
    if not created:
        return session
    session.record_creation()
    for position, arm in enumerate(boot_order(machine.boots_per_side)):
        Boot.objects.create(
            session=session, position=position, arm=arm, state=BootState.PLANNED, trace=series.trace
        ).record_creation()
    judgement = blame_of_series(base, patched, series.pk)
    if judgement.sentence:
        session.advance(SessionState.FAILED, judgement.sentence)
        for boot in session.boots.all():
            boot.advance(BootState.FAILED, "not booted: a kernel is missing")
    return session


def series_to_plan() -> list[int]:
    """Ids of applied series that are not judged and lack sessions: trees of high priority first, then the oldest."""
    return list(
        Series.objects.filter(state=SeriesState.APPLIED, sessions__isnull=True)
        .order_by("-base__tree__priority", "id")
        .values_list("id", flat=True)
    )
