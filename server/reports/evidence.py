"""What a report rests on: the rows of one finding, checked to be whole before a word is written."""

from dataclasses import dataclass

from server.builds.models import Build
from server.core.errors import DomainError
from server.detection.models import Comparison, Finding, Verdict
from server.lab.models import Boot, Machine, Session
from server.sources.models import Message, Revision, Series

MOVED = (Verdict.REGRESSED, Verdict.IMPROVED)


@dataclass(frozen=True)
class MachineFacts:
    """A machine as the booted system saw it in this session."""

    machine: Machine
    cpu: str
    cmdline: str


@dataclass(frozen=True)
class Evidence:
    finding: Finding
    series: Series
    root: Message | None
    base: Revision
    virtual: bool
    comparisons: tuple[Comparison, ...]
    machines: tuple[MachineFacts, ...]
    builds: tuple[Build, ...]
    gaps: tuple[str, ...]

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
    comparisons = tuple(
        Comparison.objects.filter(session__in=sessions)
        .select_related("session__machine__uarch", "case__benchmark", "metric", "core_type")
        .order_by(
            "session__machine__uarch__name", "session__machine__name", "case__benchmark__name", "case__name", "id"
        )
    )
    _check_complete(finding, sessions, comparisons)
    judged = {row.session_id for row in comparisons}
    used = [session for session in sessions if session.pk in judged]
    return Evidence(
        finding=finding,
        series=series,
        root=root_message(series),
        base=series.base,
        virtual=is_virtual(finding),
        comparisons=comparisons,
        machines=_machine_facts(used),
        builds=tuple({session.base_build_id: session.base_build for session in used}.values()),
        gaps=tuple(_gap(gap) for gap in finding.gaps),
    )


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
    """The mail that a reply answers; None when the archive has deleted it."""
    mails = Message.objects.filter(mailing_list=series.mailing_list_id, message_id=series.root_message_id)
    return mails.exclude(kind=Message.Kind.DELETED).order_by("id").first()


def _check_complete(finding: Finding, sessions: list[Session], comparisons: tuple[Comparison, ...]) -> None:
    if not comparisons:
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
        left_out = session.machine.virtual and not finding.virtual
        if session.pk not in told and session.machine.name not in said and not left_out:
            raise DomainError(
                "incomplete-report", f"{session.machine.name} has no result, and the finding does not say so"
            )


def _machine_facts(sessions: list[Session]) -> tuple[MachineFacts, ...]:
    measured = Boot.objects.filter(session__in=sessions, state=Boot.State.MEASURED)
    first = {boot.session_id: boot.facts for boot in measured.order_by("session", "-position")}
    return tuple(
        MachineFacts(
            machine=session.machine,
            cpu=_text(first.get(session.pk), "model_name"),
            cmdline=_text(first.get(session.pk), "cmdline"),
        )
        for session in sorted(sessions, key=lambda s: (s.machine.uarch.name, s.machine.name))
    )


def _text(facts: object, name: str) -> str:
    value = facts.get(name) if isinstance(facts, dict) else None
    return value if isinstance(value, str) else ""


def _gap(gap: dict[str, object]) -> str:
    where = ", ".join(str(gap[name]) for name in ("machine", "case") if gap.get(name))
    return f"{where}: {gap.get('reason', '')}"
