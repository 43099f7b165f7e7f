"""What a report rests on: the rows of one finding, checked to be whole before a word is written."""

from dataclasses import dataclass

from django.db.models import Q

from server.builds.models import Build
from server.core.errors import DomainError
from server.detection.lifecycle.hearing import heard
from server.detection.models import Comparison, Finding, Verdict
from server.detection.scope import is_same_code
from server.lab.facts import first_facts
from server.lab.models import Boot, Machine, Session
from server.lab.trials.planning import SAME_CODE
from server.reports.culprits import culprit_sentence, walk_sentences
from server.reports.explanations import explanation_sentence
from server.sources.models import Message, Revision, Series

MOVED = (Verdict.REGRESSED, Verdict.IMPROVED)


@dataclass(frozen=True)
class MachineFacts:
    """A machine as the booted system saw it in this session. `cut_short`: more boots might have told more."""

    machine: Machine
    cpu: str
    cmdline: str
    cut_short: bool


@dataclass(frozen=True)
class Evidence:
    """`comparisons` are as they are heard after the checks; `culprit` and `walk` say which patch does what.

    `explanation`: which facts separate the machines that changed from the others, where that is known.
    """

    finding: Finding
    series: Series
    root: Message | None
    base: Revision
    virtual: bool
    comparisons: tuple[Comparison, ...]
    machines: tuple[MachineFacts, ...]
    builds: tuple[Build, ...]
    gaps: tuple[str, ...]
    culprit: str
    walk: tuple[str, ...]
    explanation: str

    @property
    def moved(self) -> tuple[Comparison, ...]:
        return tuple(row for row in self.comparisons if row.verdict in MOVED)


def gather(finding: Finding) -> Evidence:
    """Raises DomainError `incomplete-report` when a reader could not trust or check what would be told."""
    if finding.series_id is None:
        raise DomainError("incomplete-report", "a change of a branch has no thread to answer on")
    series = Series.objects.select_related("base__tree", "head", "mailing_list").get(pk=finding.series_id)
    if finding.kind == Finding.Kind.INCONCLUSIVE:
        raise DomainError("incomplete-report", "nothing inconclusive is mailed")
    if series.base is None or series.head is None:
        raise DomainError("incomplete-report", "the base of the series is not known")
    sessions = list(
        Session.objects.filter(series=series).select_related(
            "machine__uarch", "base_build__config", "base_build__toolchain", "patched_build"
        )
    )
    comparisons = _comparisons(finding, sessions)
    _check_complete(finding, sessions, comparisons)
    judged = {row.session_id for row in comparisons}
    used = [session for session in sessions if session.pk in judged]
    unbooted = [session for session in sessions if is_same_code(session)]
    return Evidence(
        finding=finding,
        series=series,
        root=root_message(series),
        base=series.base,
        virtual=is_virtual(finding),
        comparisons=comparisons,
        machines=_machine_facts(used),
        builds=tuple({session.base_build_id: session.base_build for session in (*used, *unbooted)}.values()),
        gaps=(
            *(_gap(gap) for gap in finding.gaps),
            *(f"{session.machine.name}: {SAME_CODE}" for session in unbooted),
        ),
        culprit=culprit_sentence(finding),
        walk=walk_sentences(series),
        explanation=explanation_sentence(finding),
    )


def _comparisons(finding: Finding, sessions: list[Session]) -> tuple[Comparison, ...]:
    """What a failed check takes away from the finding is not claimed by its mail either."""
    machine, case = "session__machine", "case__benchmark"
    rows = Comparison.objects.filter(session__in=sessions).select_related(
        f"{machine}__uarch", case, "metric", "core_type"
    )
    ordered = rows.order_by(f"{machine}__uarch__name", f"{machine}__name", f"{case}__name", "case__name", "id")
    return tuple(heard(list(ordered), finding.checks))


def is_virtual(finding: Finding) -> bool:
    """Whether any virtual machine has a part in it; asked of the rows again, because such a mail must never leave."""
    if finding.virtual:
        return True
    judged = Session.objects.filter(series=finding.series_id, comparisons__isnull=False)
    return (
        judged.filter(machine__virtual=True).exists()
        or Boot.objects.filter(session__in=judged, facts__virtual=True).exists()
    )


def root_message(series: Series) -> Message | None:
    """The mail that a reply answers; None when the archive has deleted it.

    One that the series is made of: anybody can send another with the same Message-ID, and recipients of his choice.
    """
    first = series.patches.filter(index=1).values("message")
    own = Message.objects.filter(Q(pk=series.cover_id) | Q(patches__series=series)).distinct()
    root = own.filter(message_id=series.first_message_id).first() or own.filter(pk__in=first).first()
    return None if root is None or root.kind == Message.Kind.DELETED else root


def _check_complete(finding: Finding, sessions: list[Session], comparisons: tuple[Comparison, ...]) -> None:
    if not comparisons and not any(is_same_code(session) for session in sessions):
        raise DomainError("incomplete-report", "there is no comparison to show")
    if finding.kind != Finding.Kind.UNCHANGED and not any(row.verdict in MOVED for row in comparisons):
        raise DomainError("incomplete-report", f"the finding says {finding.kind}, but no cell has moved")
    for row in comparisons:
        numbers = (
            row.base_mean,
            row.base_sd,
            row.patched_mean,
            row.patched_sd,
            row.ratio,
            row.ratio_low,
            row.ratio_high,
        )
        if row.verdict in MOVED and None in numbers:
            raise DomainError("incomplete-report", f"{row} without its numbers")
    told = {row.session_id for row in comparisons}
    said = {str(gap.get("machine")) for gap in finding.gaps}
    for session in sessions:
        left_out = (session.machine.virtual and not finding.virtual) or is_same_code(session)
        if session.pk not in told and session.machine.name not in said and not left_out:
            raise DomainError(
                "incomplete-report", f"{session.machine.name} has no result, and the finding does not say so"
            )


def _machine_facts(sessions: list[Session]) -> tuple[MachineFacts, ...]:
    measured = Boot.objects.filter(session__in=sessions, state=Boot.State.MEASURED)
    first = first_facts(measured)
    return tuple(
        MachineFacts(
            machine=session.machine,
            cpu=_text(first.get(session.pk), "model_name"),
            cmdline=_text(first.get(session.pk), "cmdline"),
            cut_short=session.cut_short,
        )
        for session in sorted(sessions, key=lambda s: (s.machine.uarch.name, s.machine.name))
    )


def _text(facts: object, name: str) -> str:
    value = facts.get(name) if isinstance(facts, dict) else None
    return value if isinstance(value, str) else ""


def _gap(gap: dict[str, object]) -> str:
    where = ", ".join(str(gap[name]) for name in ("machine", "case") if gap.get(name))
    return f"{where}: {gap.get('reason', '')}"
