"""Questions about machines, asked once: machines of one microarchitecture that disagree, and a known kernel that
measures otherwise than before.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Exists, OuterRef, Q

from server import stats
from server.builds.models import Build
from server.core.errors import DomainError
from server.core.reasons import Because
from server.core.states import new_trace
from server.detection.findings.table import sessions_of
from server.detection.findings.vector import as_speed, shorten
from server.detection.models import Comparison, Finding, MachineQuestion, Verdict
from server.detection.trials.effects import LEAST_EFFECT, CellKey, min_effects
from server.lab.hosts.probes import trees_of_patches
from server.lab.models import Boot, Machine, Session, Trial
from server.results.models import ArchivedSession, KeptKind, Measurement, Metric
from server.sources.models import Branch


@dataclass(frozen=True)
class Disagreement:
    """`machine` is the one to look at first: the one whose verdicts fewest others share."""

    machine: Machine
    detail: str


def disagreements_of(finding: Finding) -> list[Disagreement]:
    """At most one for each microarchitecture, in the order of their names. One query."""
    rows = (
        Comparison.objects.filter(session__in=sessions_of(finding), session__machine__virtual=finding.virtual)
        .exclude(verdict=Verdict.INCONCLUSIVE)
        .select_related("session__machine__uarch", "case", "metric", "core_type")
        .order_by("session__machine__uarch__name", "case__name", "metric__name", "session__machine__name")
    )
    by_uarch: dict[str, dict[tuple[int, int, str], list[Comparison]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_uarch[row.session.machine.uarch.name][row.case_id, row.metric_id, row.core_type.name].append(row)
    found = []
    for uarch, cells in by_uarch.items():
        contradicting = [cell for cell in cells.values() if len({row.verdict for row in cell}) > 1]
        if contradicting:
            found.append(_disagreement(uarch, contradicting))
    return found


def _disagreement(uarch: str, cells: Sequence[Sequence[Comparison]]) -> Disagreement:
    alone = Counter(row.session.machine for cell in cells for row in _loneliest(cell))
    machine = min(alone, key=lambda one: (-alone[one], one.name))
    said = [
        f"{cell[0].metric.name} of {cell[0].case.name} ({cell[0].core_type.name}) is "
        + ", ".join(f"{row.verdict} on {row.session.machine.name}" for row in cell)
        for cell in cells
    ]
    return Disagreement(machine, f"machines of {uarch} disagree: {shorten(said)}")


def _loneliest(cell: Sequence[Comparison]) -> Iterator[Comparison]:
    """The rows with the verdict that fewest machines gave; of two machines both are."""
    counts = Counter(row.verdict for row in cell)
    fewest = min(counts.values())
    return (row for row in cell if counts[row.verdict] == fewest)


Kind = MachineQuestion.Kind
State = MachineQuestion.State
_LONGEST_TEXT = 2000


def open_question(
    key: str,
    kind: str,
    machine: Machine,
    detail: str,
    *,
    finding: Finding | None = None,
    branch: Branch | None = None,
    place: int | None = None,
    trial: Trial | None = None,
    trace: str = "",
) -> MachineQuestion:
    """The question of this key, asked now if it was not before; one that was answered stays answered.

    `key` is what is asked and holds at most 200 characters; `detail` says for people what was seen.
    """
    fields = {"kind": kind, "machine": machine, "detail": detail, "finding": finding, "branch": branch, "place": place}
    fields["trial"] = trial
    question, created = MachineQuestion.objects.get_or_create(
        key=key,
        defaults={**fields, "state": State.OPEN, **Because.ASKED(detail).columns(), "trace": trace or new_trace()},
    )
    return question.record_creation() if created else question


def answer_question(question: MachineQuestion, actor: str, text: str) -> None:
    """Store what a person found out. Raises DomainError without a name or a text, and if it was answered before."""
    text = " ".join(text.split())[:_LONGEST_TEXT]
    if not actor:
        raise DomainError("no-actor", "say who answers this")
    if not text:
        raise DomainError("no-reason", "say what was found: others will want to know")
    if question.state != State.OPEN or not question.advance(State.ANSWERED, Because.BY_PERSON(text), actor=actor[:150]):
        raise DomainError("over", f"question {question.pk} was answered before: look again")


def settle_question(question: MachineQuestion, text: str) -> bool:
    """The service found the answer itself; False if somebody answered before."""
    return question.state == State.OPEN and question.advance(State.ANSWERED, Because.ANSWERED(text))


def ask_about_disagreements(finding: Finding) -> None:
    """One question for each microarchitecture whose machines contradict each other in this finding."""
    for found in disagreements_of(finding):
        key = f"disagreement:{finding.pk}:{found.machine.uarch_id}"
        open_question(key, Kind.DISAGREEMENT, found.machine, found.detail, finding=finding, trace=finding.trace)


_CHANGES = (stats.StatisticalVerdict.REGRESSED, stats.StatisticalVerdict.IMPROVED)


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
    told = [
        (key, one)
        for key, one in zip(keys, judged, strict=True)
        if one.verdict != stats.StatisticalVerdict.INCONCLUSIVE
    ]
    moved = [(one.ratio or 1.0, now[key].first) for key, one in told if one.verdict in _CHANGES]
    moved.sort(key=lambda entry: -max(entry[0], 1 / entry[0]))
    names = tuple(
        f"{first.metric.name} of {first.case.name} ({as_speed(ratio, first.metric.better)})" for ratio, first in moved
    )
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
    ).exclude(Exists(ArchivedSession.objects.filter(session=OuterRef("pk"), kind=KeptKind.SAMPLES)))
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
    return one.version_id == other.version_id


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


# Fewer cells say little about a machine: one benchmark may have its own trouble.
FEWEST_CELLS = 3
# A machine's level has moved when most of its cells have.
_MOST = 0.5


def base_drift(trial: Trial) -> list[tuple[Machine, str]]:
    """Machines of the trial whose base kernel measures otherwise than the last time, each with a sentence.

    The same code (by build or kernel hash) on the same machine, in the newest session before; each machine with such a
    drift has its question. Harmless to repeat.
    """
    found = []
    sessions = trial.sessions.filter(state=Session.State.DONE).select_related("machine", "base_build")
    for session in sessions.order_by("machine__name"):
        moved = moved_cells(session)
        if moved is None or moved.judged < FEWEST_CELLS or len(moved.names) <= _MOST * moved.judged:
            continue
        text = _sentence(session, moved)
        key = f"base:{session.pk}"
        open_question(key, MachineQuestion.Kind.BASE, session.machine, text, trace=trial.trace)
        found.append((session.machine, text))
    return found


def _sentence(session: Session, moved: Moved) -> str:
    return (
        f"the base kernel measures otherwise in session {session.pk} than in session {moved.before.pk}: "
        f"{len(moved.names)} of {moved.judged} cells moved, most {shorten(moved.names)}"
    )
