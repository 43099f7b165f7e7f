"""The walk over the patches of a series: each cumulative prefix against the one before."""

from collections.abc import Sequence
from itertools import pairwise

from django.conf import settings
from django.db import transaction
from django.db.models import Count

from server.core.errors import DomainError
from server.core.models import Transition
from server.detection.models import Comparison, Finding, Verdict
from server.lab.models import Machine, Trial
from server.lab.trials.asking import USUAL_LOOKS, Ask, want_trial
from server.sources.models import Revision, Series

_HOUR = 3600.0
_FEWEST = 2
_CHANGED = (Finding.Kind.REGRESSED, Finding.Kind.IMPROVED, Finding.Kind.SPLIT)
# Walks that one sweep asks for by itself.
_AT_ONCE = 10


def ask_for_walk(series: Series, actor: str, machines: Sequence[Machine] = ()) -> list[Trial]:
    """One trial for each patch: the prefix that ends before it against the one that ends with it.

    On `machines`, or else on those that speak for the series' finding, in the cases that the series changed (in all it
    measured, if none). `actor` is the person who asked, empty for the service. Asking again gives the same trials.
    DomainError `no-walk` where there is nothing to walk, `walk-asked` where it was asked for other machines.
    """
    with transaction.atomic():
        series = Series.objects.select_for_update(of=("self",), no_key=True).get(pk=series.pk)
        prefixes = _prefixes(series)
        asked = trials_of_walk(series)
        if asked:
            if machines and {machine.pk for machine in machines} != set(asked[0].machines.values_list("pk", flat=True)):
                raise DomainError("walk-asked", f"the walk of series {series.pk} was asked for on other machines")
            return asked
        where = tuple(machines) or _speakers(series)
        benchmarks = _changed_cases(series)
        trials = [
            want_trial(
                Ask(
                    key=f"series:{series.pk}:patch:{index}",
                    purpose=Trial.Purpose.PATCH,
                    base=before,
                    patched=after,
                    looks=USUAL_LOOKS,
                    trace=series.trace,
                    series=series,
                    machines=where,
                    benchmarks=benchmarks,
                    budget_seconds=settings.SERIES_HOURS * _HOUR if settings.SERIES_HOURS > 0 else None,
                )
            )
            for index, (before, after) in enumerate(pairwise(prefixes), 1)
        ]
        _remember(series, f"its {len(trials)} patches are to be measured one by one", actor)
    return trials


def walk_what_changed() -> None:
    """Ask for the walk of short series that changed something, where the site wants that."""
    if settings.WALK_PATCHES < _FEWEST:
        return
    findings = Finding.objects.filter(
        state__in=Finding.STANDING, kind__in=_CHANGED, trial__isnull=False, series__state=Series.State.APPLIED
    ).annotate(patches=Count("series__patches"))
    short = findings.filter(patches__gte=_FEWEST, patches__lte=settings.WALK_PATCHES)
    walked = Trial.objects.filter(purpose=Trial.Purpose.PATCH).values("series")
    for finding in short.exclude(series__in=walked).select_related("series")[:_AT_ONCE]:
        if finding.series is not None:
            ask_for_walk(finding.series, "")


def trials_of_walk(series: Series) -> list[Trial]:
    """In the order of the patches; none where no walk was asked for."""
    return list(Trial.objects.filter(series=series, purpose=Trial.Purpose.PATCH).order_by("pk"))


def _prefixes(series: Series) -> list[Revision]:
    patches = list(series.patches.select_related("revision").order_by("index"))
    made = [patch.revision for patch in patches if patch.revision is not None]
    if series.state == Series.State.SUPERSEDED:
        raise DomainError("no-walk", f"a newer version has replaced series {series.pk}: machines measure it no more")
    if series.base is None or len(made) != len(patches):
        raise DomainError("no-walk", f"series {series.pk} is not applied")
    if len(made) < _FEWEST:
        raise DomainError("no-walk", f"series {series.pk} is one patch: what it adds is what the series adds")
    return [series.base, *made]


def _speakers(series: Series) -> tuple[Machine, ...]:
    """The machine that speaks for each microarchitecture of the finding."""
    finding = Finding.objects.filter(series=series).first()
    if finding is None:
        raise DomainError("no-walk", f"series {series.pk} has no finding yet", permanent=False)
    verdicts = finding.verdicts.filter(comparison__isnull=False).select_related("comparison__session__machine")
    machines = {row.comparison.session.machine for row in verdicts if row.comparison}
    if not machines:
        raise DomainError("no-walk", f"no machine measured series {series.pk}")
    return tuple(sorted(machines, key=lambda machine: machine.name))


def _changed_cases(series: Series) -> tuple[str, ...]:
    trial = Trial.objects.filter(series=series, purpose=Trial.Purpose.SERIES).first()
    changed = Comparison.objects.filter(session__trial=trial, verdict__in=[Verdict.REGRESSED, Verdict.IMPROVED])
    names = changed.values_list("case__benchmark__name", "case__name").distinct()
    return tuple(sorted(f"{benchmark}/{case}" for benchmark, case in names)) or tuple(trial.benchmarks if trial else ())


def _remember(series: Series, reason: str, actor: str) -> None:
    """A line of the series' history: it stays in its state."""
    Transition.objects.create(
        trace=series.trace,
        subject="series",
        subject_id=series.pk,
        before=series.state,
        after=series.state,
        reason=reason,
        actor=actor,
    )
