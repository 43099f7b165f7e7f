"""The values of one known kernel on one machine, now against the last time it was measured there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from django.db.models import Q

from server import stats
from server.builds.models import Build
from server.detection.noise.cell_key import CellKey
from server.detection.noise.effects import LEAST_EFFECT, min_effects
from server.lab.kernel_trust import trees_of_patches
from server.lab.models import Boot, Session
from server.results.models import Measurement, Metric

_CHANGES = (stats.Verdict.REGRESSED, stats.Verdict.IMPROVED)


@dataclass(frozen=True)
class Moved:
    """`names` are cells with their ratio now / then, largest first, of `judged` that could be told."""

    before: Session
    judged: int
    names: tuple[str, ...]


@dataclass
class _Boots:
    """What the boots of one kernel in one session gave in one cell."""

    first: Measurement
    values: list[list[float]] = field(default_factory=list)


def moved_cells(session: Session) -> Moved | None:
    """Which cells of the session's base kernel lie beyond their minimum effect of where they were the last time.

    None when this code was never measured on the machine before, or is somebody's patches. Another version of a
    benchmark is another program and is not compared.
    """
    builds = _builds_of_same_code(session.base_build)
    before = _last_time(session, builds)
    if before is None:
        return None
    then, now = _boots(before, builds), _boots(session, builds)
    keys = [key for key in now if key in then and _is_same_program(now[key].first, then[key].first)]
    effects = min_effects([session])
    cells = [_cell(then[key], now[key], effects.get((session.pk, *key), LEAST_EFFECT)) for key in keys]
    judged = stats.judge_family(stats.compare(cells))
    told = [(key, one) for key, one in zip(keys, judged, strict=True) if one.verdict != stats.Verdict.INCONCLUSIVE]
    moved = [(one.ratio or 1.0, now[key].first) for key, one in told if one.verdict in _CHANGES]
    moved.sort(key=lambda entry: -max(entry[0], 1 / entry[0]))
    names = tuple(f"{first.metric.name} of {first.case.name} ({ratio:.3g}x)" for ratio, first in moved)
    return Moved(before, len(told), names)


def _builds_of_same_code(build: Build) -> set[int]:
    """None for a build of patches: its author may let it pass for another, or be slow from some day on."""
    same = Build.objects.filter(kernel_hash=build.kernel_hash).exclude(kernel_hash="")
    trees = dict(same.values_list("pk", "tree_sha"))
    patched = trees_of_patches({build.tree_sha, *trees.values()})
    if build.tree_sha in patched:
        return set()
    return {build.pk, *(pk for pk, tree in trees.items() if tree not in patched)}


def _last_time(session: Session, builds: Iterable[int]) -> Session | None:
    earlier = Session.objects.filter(
        Q(base_build__in=builds) | Q(patched_build__in=builds),
        machine=session.machine_id,
        state=Session.State.DONE,
        pk__lt=session.pk,
    )
    return earlier.order_by("-pk").first()


def _boots(session: Session, builds: set[int]) -> Mapping[CellKey, _Boots]:
    """What the boots of these kernels measured; in an A/A session those of both arms."""
    ran = {Boot.Arm.BASE: session.base_build_id, Boot.Arm.PATCHED: session.patched_build_id}
    arms = [arm for arm, build in ran.items() if build in builds]
    rows = (
        Measurement.objects.filter(boot__session=session, boot__arm__in=arms, boot__state=Boot.State.MEASURED)
        .exclude(metric__better=Metric.Better.NONE)
        .select_related("case", "metric")
        .order_by("case__name", "metric__name", "core_type", "boot__position")
    )
    found: dict[CellKey, _Boots] = {}
    for row in rows:
        key = (row.case_id, row.metric_id, row.core_type_id)
        found.setdefault(key, _Boots(row)).values.append(row.values[row.warmup :])
    return found


def _is_same_program(one: Measurement, other: Measurement) -> bool:
    return not one.version or not other.version or one.version == other.version


def _cell(then: _Boots, now: _Boots, effect: float) -> stats.Cell:
    metric = now.first.metric
    return stats.Cell(
        base=then.values,
        patched=now.values,
        # Which way is better does not matter here: whether it moved does.
        better="lower",
        min_effect=effect,
        resolution=metric.resolution,
        exact=metric.exact,
        name=f"{metric.name} of {now.first.case.name}",
    )
