"""The walk over the patches of a series: each prefix against the one before, what each adds, and what all add up to."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

from django.conf import settings
from django.db import transaction
from django.db.models import Count

from server.core.errors import DomainError
from server.core.models import Transition
from server.core.reasons import Because
from server.core.rounding import seen_effect
from server.detection.findings.vector import as_speed, shorten
from server.detection.models import Comparison, Finding, Verdict
from server.detection.trials.scope import is_same_code
from server.lab.models import Machine, Session, Trial
from server.lab.trials.question import USUAL_LOOKS, Ask, want_trial
from server.sources.models import Patch, Revision, Series

# Half the width of a 95 % interval, in standard errors.
_HALF = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Link:
    """A ratio on logs, with the square of its standard error."""

    log: float
    variance: float

    @property
    def ratio(self) -> float:
        return math.exp(self.log)

    @property
    def interval(self) -> tuple[float, float]:
        reach = _HALF * math.sqrt(self.variance)
        return math.exp(self.log - reach), math.exp(self.log + reach)


# What the same code adds.
NOTHING = Link(0.0, 0.0)


def link(ratio: float | None, low: float | None, high: float | None) -> Link | None:
    """From a ratio and its 95 % interval; None where it has none."""
    if not (ratio and low and high) or min(ratio, low, high) <= 0 or math.inf in (ratio, high):
        return None
    error = math.log(high / low) / (2 * _HALF)
    return Link(math.log(ratio), error * error)


def joined(one: Link | None, other: Link | None) -> Link | None:
    """The product. Each was measured with boots of its own, so the variances add."""
    if one is None or other is None:
        return None
    return Link(one.log + other.log, one.variance + other.variance)


def agree(one: Link, other: Link, *, cells: int, slack: float) -> bool:
    """Whether two ratios differ by no more than their errors allow, at 1 % over all `cells`, or by `slack`."""
    reach = NormalDist().inv_cdf(1 - 0.005 / cells) * math.sqrt(one.variance + other.variance)
    return abs(one.log - other.log) <= max(reach, math.log1p(slack))


# Machine, case, metric, core type.
Key = tuple[int, int, int, int]


def key_of(row: Comparison) -> Key:
    return row.session.machine_id, row.case_id, row.metric_id, row.core_type_id


def name_of_cell(row: Comparison) -> str:
    """As people call it; the core type is named where the machine has others, and "all" is none."""
    cores = "" if row.core_type.name == "all" else f" on {row.core_type.name} cores"
    return f"{row.metric.name} of {row.case.name}{cores}"


def cell_in_full(row: Comparison) -> str:
    """With its benchmark: cases of several may have one name."""
    cores = "" if row.core_type.name == "all" else f" on {row.core_type.name} cores"
    return f"{row.metric.name} of {row.case.benchmark.name}/{row.case.name}{cores}"


class Chain:
    """The product so far of each cell; None from the patch on that has no ratio for it."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self.so_far: dict[Key, Link | None] = dict.fromkeys(keys, NOTHING)

    def add(self, sessions: Iterable[Session], rows: Mapping[Key, Comparison]) -> None:
        """One more patch."""
        same = {session.machine_id for session in sessions if is_same_code(session)}
        for key, start in self.so_far.items():
            row = rows.get(key)
            if key[0] not in same:
                self.so_far[key] = joined(start, link(row.ratio, row.ratio_low, row.ratio_high) if row else None)


_CHANGES = (Verdict.REGRESSED, Verdict.IMPROVED)


def sentence_of(trial: Trial, sessions: Sequence[Session], rows: Sequence[Comparison]) -> str:
    """What one patch adds, over all machines: "adds nothing beyond 1.0 % on zen3 and zen5"."""
    if trial.state not in Trial.FINAL:
        return "is being measured"
    by_machine: dict[int, list[Comparison]] = defaultdict(list)
    for row in rows:
        by_machine[row.session.machine_id].append(row)
    said: dict[str, list[str]] = defaultdict(list)
    for session in sorted(sessions, key=lambda session: session.machine.uarch.name):
        said[_on_machine(session, by_machine[session.machine_id])].append(session.machine.uarch.name)
    parts = [f"{words} on {_listed(names)}" for words, names in said.items()]
    return "; ".join(parts) or f"was not measured: {trial.reason}"


def _on_machine(session: Session, rows: Sequence[Comparison]) -> str:
    if is_same_code(session):
        return "changes no code"
    if not rows:
        return f"was not measured ({session.reason or 'no boot gave a value'})"
    changed = [told for verdict in _CHANGES if (told := _changed([row for row in rows if row.verdict == verdict]))]
    if changed:
        return ", ".join(changed)
    unsure = [name_of_cell(row) for row in rows if row.verdict == Verdict.INCONCLUSIVE]
    if unsure:
        return f"cannot be told ({shorten(unsure)})"
    return f"adds nothing beyond {seen_effect(max(row.min_effect for row in rows))}"


def _changed(rows: Sequence[Comparison]) -> str:
    """Of changes in one direction the largest: what a patch costs does not hide behind what it gains."""
    if not rows:
        return ""
    most = max(rows, key=lambda row: abs(math.log(row.ratio)) if row.ratio and row.ratio > 0 else 0.0)
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"{most.verdict} {name_of_cell(most)} ({as_speed(most.ratio or 1, most.metric.better)}){more}"


def closing_sentences(series: Series, so_far: Mapping[Key, Link | None]) -> tuple[str, ...]:
    """For each machine, whether its patches add up to what the whole series was measured to do."""
    rows = Comparison.objects.filter(session__trial__series=series, session__trial__purpose=Trial.Purpose.SERIES)
    wholes = {key_of(row): row for row in rows.select_related("session__machine", "case", "metric", "core_type")}
    shared: dict[str, list[tuple[Comparison, Link, Link]]] = defaultdict(list)
    for key, together in so_far.items():
        row = wholes.get(key)
        whole = link(row.ratio, row.ratio_low, row.ratio_high) if row else None
        if row and whole and together:
            shared[row.session.machine.name].append((row, together, whole))
    return tuple(_closing(machine, cells) for machine, cells in sorted(shared.items()))


def _closing(machine: str, cells: Sequence[tuple[Comparison, Link, Link]]) -> str:
    apart = [
        f"{name_of_cell(row)} ({_both(row, together, whole, 'against')})"
        for row, together, whole in cells
        if not agree(together, whole, cells=len(cells), slack=row.min_effect)
    ]
    if apart:
        return f"{machine}: the patches do not add up to the whole series in {shorten(apart)}"
    if len(cells) == 1:
        told = _both(*cells[0], "patch by patch,")
        return f"{machine}: the patches add up to the whole series ({told} at once)"
    return f"{machine}: the patches add up to the whole series in all {len(cells)} cells"


def _both(row: Comparison, together: Link, whole: Link, between: str) -> str:
    better = row.metric.better
    return f"{as_speed(together.ratio, better)} {between} {as_speed(whole.ratio, better)}"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


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
        **Because.BY_PERSON(reason).columns(),
        actor=actor,
    )


@dataclass(frozen=True)
class WalkCell:
    """What one patch adds in one cell, as ratios with 95 % intervals; `cumulative` from the base up to this patch."""

    uarch: str
    machine: str
    name: str
    better: str
    min_effect: float
    verdict: str
    ratio: float | None
    low: float | None
    high: float | None
    cumulative: float | None
    cumulative_low: float | None
    cumulative_high: float | None


@dataclass(frozen=True)
class WalkRow:
    """One patch."""

    index: int
    subject: str
    sha: str
    sentence: str
    cells: tuple[WalkCell, ...]


@dataclass(frozen=True)
class Walk:
    """`closing` compares what the patches add up to with what the whole series was measured to do, once it is done."""

    rows: tuple[WalkRow, ...]
    closing: tuple[str, ...]
    state: str
    done: bool


def walk_of(series: Series) -> Walk | None:
    """None where no walk was asked for."""
    trials = trials_of_walk(series)
    if not trials:
        return None
    patches = {patch.revision_id: patch for patch in series.patches.select_related("revision").defer("trailers")}
    found = _comparisons(trials)
    chain = Chain(key for rows in found.values() for key in rows)
    rows = tuple(_row(patches[trial.patched_id], trial, found[trial.pk], chain) for trial in trials)
    over = [trial for trial in trials if trial.state in Trial.FINAL]
    done = len(over) == len(trials)
    state = f"all {len(trials)} patches measured" if done else f"{len(over)} of {len(trials)} patches measured"
    return Walk(rows, closing_sentences(series, chain.so_far) if done else (), state, done)


def _comparisons(trials: Sequence[Trial]) -> dict[int, dict[Key, Comparison]]:
    """By trial and cell, in the order in which people read them."""
    rows = (
        Comparison.objects.filter(session__trial__in=trials)
        .select_related("session__machine__uarch", "case", "metric", "core_type")
        .order_by("session__machine__uarch__name", "session__machine__name", "case__name", "metric__name", "pk")
    )
    found: dict[int, dict[Key, Comparison]] = {trial.pk: {} for trial in trials}
    for row in rows:
        if row.session.trial_id is not None:
            found[row.session.trial_id][key_of(row)] = row
    return found


def _row(patch: Patch, trial: Trial, rows: Mapping[Key, Comparison], chain: Chain) -> WalkRow:
    sessions = list(trial.sessions.select_related("machine__uarch", "base_build", "patched_build"))
    chain.add(sessions, rows)
    return WalkRow(
        index=patch.index,
        subject=patch.subject,
        sha=patch.revision.sha if patch.revision else "",
        sentence=sentence_of(trial, sessions, list(rows.values())),
        cells=tuple(_cell(row, chain.so_far[key]) for key, row in rows.items()),
    )


def _cell(row: Comparison, so_far: Link | None) -> WalkCell:
    low, high = so_far.interval if so_far else (None, None)
    return WalkCell(
        uarch=row.session.machine.uarch.name,
        machine=row.session.machine.name,
        name=name_of_cell(row),
        better=row.metric.better,
        min_effect=row.min_effect,
        verdict=row.verdict,
        ratio=row.ratio,
        low=row.ratio_low,
        high=row.ratio_high,
        cumulative=so_far.ratio if so_far else None,
        cumulative_low=low,
        cumulative_high=high,
    )
