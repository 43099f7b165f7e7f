"""A regression in a branch is mended by a later revision: found by what commits and timelines say, then measured."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import structlog
from django.db.models import Q

from server.core.programs.git import GitError, Repository
from server.core.reasons import Because
from server.detection.branches.change_points import change_points_after
from server.detection.findings.checks import (
    Check,
    CheckOutcome,
    Name,
    add_check,
    ask_for,
    checks_named,
    set_checks,
)
from server.detection.findings.result import remade
from server.detection.findings.vector import heard, shorten
from server.detection.lifecycle.confirmation import cases_of
from server.detection.models import Comparison, Finding, Verdict
from server.detection.trials.scope import is_same_code
from server.lab.models import Machine, Trial, TrialState
from server.lab.trials.question import USUAL_LOOKS, Ask
from server.sources.mirror import mirror, record_revisions
from server.sources.models import Revision

# As many characters of a commit id as kernel people write; fewer name several commits.
_SHORTEST = 12
_NAMED = re.compile(r"^[ \t]*Fixes:[ \t]*([0-9a-f]{12,40})\b|This reverts commit ([0-9a-f]{12,40})\b", re.MULTILINE)
# One look reads so many commits that match, among the new ones of a branch; the time limit ends what is endless.
_MOST_FOUND = 200
_SECONDS = 60.0


@dataclass(frozen=True)
class Mending:
    """A commit that says it mends `culprit`, and the first-parent commit with which it came into the branch."""

    culprit: str
    sha: str
    landed: str


def mendings(mirror: Repository, culprits: Collection[str], *, since: str, head: str) -> list[Mending]:
    """What came between the two commits and mends one of the culprits, the oldest first.

    The whole history is read, not only first parents: mending commits come in by merges. GitError where it cannot be.
    """
    if not culprits or since == head:
        return []
    short = "|".join(sorted({sha[:_SHORTEST] for sha in culprits}))
    pattern = f"(Fixes:[ \t]*|This reverts commit )({short})"
    some = ("-z", "--reverse", f"-n{_MOST_FOUND}", "--format=%H%n%B", "-E", f"--grep={pattern}")
    told = mirror.output("log", *some, f"{since}..{head}", "--", timeout=_SECONDS).decode(errors="replace")
    pieces = (entry.partition("\n") for entry in told.split("\0") if entry)
    return [
        Mending(culprit, sha.strip(), _landed(mirror, sha.strip(), since=since, head=head))
        for sha, _, body in pieces
        for culprit in _named(body, culprits)
    ]


def _named(body: str, culprits: Collection[str]) -> Iterator[str]:
    told = {fixes or reverts for fixes, reverts in _NAMED.findall(body)}
    return (culprit for culprit in sorted(culprits) if any(culprit.startswith(name) for name in told))


def _landed(mirror: Repository, sha: str, *, since: str, head: str) -> str:
    """The oldest first-parent commit of the branch that holds `sha`."""
    told = mirror.output("rev-list", "--first-parent", "--reverse", f"{since}..{head}", "--", timeout=_SECONDS)
    line = told.decode().split()
    if sha in line:
        return sha
    low, high = 0, len(line) - 1
    if not line:
        raise GitError("git-failed", f"nothing lies between {since[:_SHORTEST]} and {head[:_SHORTEST]}")
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if mirror.is_ancestor(sha, line[middle]) else (middle + 1, high)
    return line[low]


log = structlog.get_logger(__name__)

_REGRESSIONS = (Finding.Kind.REGRESSED, Finding.Kind.SPLIT)
_OPEN = (Finding.State.CONFIRMED, Finding.State.REPORTED)
# Who is not mended by so many tries needs a person.
_MOST_TRIES = 5
_SHORT = 12


@dataclass(frozen=True)
class Candidate:
    """A revision that may hold what mends a finding, and why it is thought so."""

    revision: Revision
    why: str


def mendable() -> list[Finding]:
    """Regressions in branches that still exist and whose head was not looked at yet for what mends them."""
    rows = Finding.objects.filter(
        Q(branch__deleted_at=None), state__in=_OPEN, kind__in=_REGRESSIONS, branch__head__isnull=False
    )
    found = rows.select_related("branch__tree", "branch__head", "before", "after", "culprit", "trial").order_by("pk")
    return [finding for finding in found if _may_try(finding) and _has_news(finding)]


def look_for_mending(finding: Finding) -> Trial | None:
    """Read what came into the branch since the last look, and measure the first candidate; None where there is none.

    Runs in the transaction of the caller, who holds the finding. GitError, temporary, where the mirror cannot be read.
    """
    head = _head(finding)
    known = _tried(finding)
    if not _may_try(finding):
        return None
    candidate = next((one for one in _candidates(finding, head) if one.revision.sha not in known), None)
    if candidate is not None and (trial := measure(finding, candidate)):
        return trial
    text = f"nothing up to {head[:_SHORT]} says that it mends this"
    set_checks(finding, [Name.FIX_SEARCH], [Check(Name.FIX_SEARCH, CheckOutcome.NOT_CHECKED, text, revision=head)])
    return None


def _has_news(finding: Finding) -> bool:
    """A head that was not read, or a timeline that went back, which shows when the head is measured: later."""
    if _looked_up_to(finding) != _head(finding):
        return True
    known = _tried(finding)
    return any(point.revision.sha not in known for point in change_points_after(finding))


def _tried(finding: Finding) -> set[str]:
    return {str(row.get("revision", "")) for row in checks_named(finding, Name.FIX)}


def _may_try(finding: Finding) -> bool:
    """One candidate at a time, and a few in all."""
    tried = checks_named(finding, Name.FIX)
    return len(tried) < _MOST_TRIES and not any(row.get("outcome") == CheckOutcome.PENDING for row in tried)


def _candidates(finding: Finding, head: str) -> Iterator[Candidate]:
    assert finding.branch is not None
    tree = finding.branch.tree
    since = _read_from(finding, head)
    for found in mendings(mirror(), culprits_of(finding), since=since, head=head):
        revision = record_revisions(tree=tree, shas=[found.landed])[0]
        yield Candidate(revision, f"{found.sha[:_SHORT]} says that it mends {found.culprit[:_SHORT]}")
    for landed in _promised(finding, head):
        revision = record_revisions(tree=tree, shas=[landed])[0]
        yield Candidate(revision, f"a person says that `{finding.promised_fix}` mends it")
    for point in change_points_after(finding):
        yield Candidate(point.revision, f"a timeline went back at {point.revision.sha[:_SHORT]}")


def _promised(finding: Finding, head: str) -> Iterator[str]:
    """First-parent commits by which one with the subject that a person named came into the branch after the change."""
    subject = finding.promised_fix
    if not subject or finding.after is None:
        return
    start = finding.after.sha if mirror().resolve(finding.after.sha) is not None else _read_from(finding, head)
    if start == head:
        return
    some = ("--reverse", f"-n{_MOST_FOUND}", "--format=%H %s", "--fixed-strings", f"--grep={subject}")
    told = mirror().output("log", *some, f"{start}..{head}", "--", timeout=_SECONDS).decode(errors="replace")
    for line in told.splitlines():
        sha, _, found = line.partition(" ")
        if found.strip() == subject:
            yield _landed(mirror(), sha, since=start, head=head)


def _read_from(finding: Finding, head: str) -> str:
    """What was read last, or `head` where that is gone from the mirror: what came between cannot be told any more."""
    assert finding.after is not None
    since = _looked_up_to(finding) or finding.after.sha
    if mirror().resolve(since) is not None or mirror().resolve(head) is None:
        return since
    log.warning("fix_search_begins_at_head", trace=finding.trace, finding=finding.pk, gone=since, head=head)
    return head


def culprits_of(finding: Finding) -> set[str]:
    """What made the change, where it is known: for all machines, or for some of them."""
    each = finding.bisections.filter(culprit__isnull=False).values_list("culprit__sha", flat=True)
    return {*each, *([finding.culprit.sha] if finding.culprit else [])}


def measure(finding: Finding, candidate: Candidate, *, number: int = 1) -> Trial | None:
    """Ask whether the candidate mends the finding; None where nothing of it regressed. `number` counts such questions.

    The caller holds the finding.
    """
    regressed = regressed_comparisons(finding)
    revision, base = candidate.revision, _good_end(finding)
    if not regressed:
        return None
    machines: dict[int, Machine] = {row.session.machine_id: row.session.machine for row in regressed}
    trial = ask_for(
        finding,
        Ask(
            key=fix_key(finding, revision) + (f":{number}" if number > 1 else ""),
            purpose=Trial.Purpose.FIX,
            base=base,
            patched=revision,
            looks=USUAL_LOOKS,
            trace=finding.trace,
            machines=tuple(sorted(machines.values(), key=lambda machine: machine.name)),
            benchmarks=cases_of(regressed),
            budget_seconds=finding.trial.budget_seconds if finding.trial else None,
        ),
    )
    text = f"{candidate.why}: measured against {base.sha[:_SHORT]}"
    add_check(finding, Check(Name.FIX, CheckOutcome.PENDING, text, revision=revision.sha))
    return trial


def fix_key(finding: Finding, revision: Revision) -> str:
    """Of the trial that asks first; later ones count on behind it."""
    return f"finding:{finding.pk}:fix:{revision.sha[:_SHORT]}"


def _good_end(finding: Finding) -> Revision:
    """The parent of what made the change, else the last head that was measured without it."""
    assert finding.before is not None
    if finding.culprit is None:
        return finding.before
    parent = mirror().resolve(f"{finding.culprit.sha}^")
    return record_revisions(tree=finding.culprit.tree, shas=[parent])[0] if parent else finding.before


def regressed_comparisons(finding: Finding) -> list[Comparison]:
    """Of the finding's judged comparisons those that regressed and were not taken away by a check."""
    result = remade(finding)
    rows: Iterable[Comparison] = heard(result.comparisons, finding.checks) if result else ()
    return [row for row in rows if row.verdict == Verdict.REGRESSED]


def _looked_up_to(finding: Finding) -> str:
    return next((str(row.get("revision", "")) for row in checks_named(finding, Name.FIX_SEARCH)), "")


def _head(finding: Finding) -> str:
    assert finding.branch is not None
    assert finding.branch.head is not None
    return finding.branch.head.sha


_MENDED = (Verdict.UNCHANGED, Verdict.IMPROVED)


def answer_fix(finding: Finding, trial: Trial) -> None:
    """Move the finding to FIXED if all of it is mended; else write down what is not.

    Runs in the transaction of the caller, who holds the finding.
    """
    revision = trial.patched
    doubts = _doubts(finding, trial)
    if still := [doubt.text for doubt in doubts if doubt.still_regressed]:
        text = f"{revision.sha[:_SHORT]} does not mend this: {shorten(still)}"
        add_check(finding, Check(Name.FIX, CheckOutcome.FAILED, text, revision=revision.sha))
        return
    if doubts:
        text = f"whether {revision.sha[:_SHORT]} mends this is not known: {shorten([doubt.text for doubt in doubts])}"
        add_check(finding, Check(Name.FIX, CheckOutcome.NOT_CHECKED, text, revision=revision.sha))
        return
    text = f"{revision.sha[:_SHORT]} mends this: no regression is left against {trial.base.sha[:_SHORT]}"
    add_check(finding, Check(Name.FIX, CheckOutcome.PASSED, text, revision=revision.sha))
    if Finding.State.FIXED in Finding.NEXT.get(finding.state, frozenset()):
        finding.advance(Finding.State.FIXED, Because.FIXED(f"mended by {revision}"), fix=revision)


@dataclass(frozen=True)
class _Doubt:
    """What is against a regression's being mended on one microarchitecture."""

    text: str
    still_regressed: bool = False


def _doubts(finding: Finding, trial: Trial) -> list[_Doubt]:
    """For each regressed microarchitecture, what is against its being mended."""
    if trial.state != TrialState.DONE:
        return [_Doubt(f"not measured: {trial.reason or TrialState(trial.state).label}")]
    by_uarch: dict[str, list[Comparison]] = defaultdict(list)
    for row in regressed_comparisons(finding):
        by_uarch[row.session.machine.uarch.name].append(row)
    if not by_uarch:
        return [_Doubt("nothing that regressed is known any more")]
    again = _measured(trial)
    same = {session.machine_id for session in trial.sessions.select_related("machine") if is_same_code(session)}
    return [doubt for uarch in sorted(by_uarch) if (doubt := _doubt(uarch, by_uarch[uarch], again, same))]


def _measured(trial: Trial) -> dict[tuple[int, int, int, int], Comparison]:
    rows = Comparison.objects.filter(session__trial=trial).select_related("session")
    return {_cell(row): row for row in rows}


def _cell(row: Comparison) -> tuple[int, int, int, int]:
    return row.session.machine_id, row.case_id, row.metric_id, row.core_type_id


def _doubt(
    uarch: str, regressed: Sequence[Comparison], again: dict[tuple[int, int, int, int], Comparison], same: set[int]
) -> _Doubt | None:
    """No cell may be regressed again, and the one that moved most must be seen to be mended."""
    said = [(row, again.get(_cell(row))) for row in regressed if row.session.machine_id not in same]
    still = [row for row, other in said if other is not None and other.verdict == Verdict.REGRESSED]
    if still:
        names = shorten([f"{row.metric.name} of {row.case.name}" for row in still])
        return _Doubt(f"on {uarch} still regressed: {names}", still_regressed=True)
    if not said:
        return None
    most, other = max(said, key=lambda pair: abs((pair[0].ratio or 1.0) - 1.0))
    if other is None or other.verdict not in _MENDED:
        return _Doubt(f"on {uarch} {most.metric.name} of {most.case.name} could not be told")
    return None
