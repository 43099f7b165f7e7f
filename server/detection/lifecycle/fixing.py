"""A regression in a branch is mended by a later revision: found by what commits and timelines say, then measured."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import structlog
from django.db.models import Q

from server.detection.heads.going_back import change_points_after
from server.detection.lifecycle.checks import Check, Name, Outcome, add_check, checks_named, set_checks
from server.detection.lifecycle.fix_commits import mendings
from server.detection.lifecycle.hearing import heard
from server.detection.lifecycle.layout import cases_of
from server.detection.models import Comparison, Finding, Verdict
from server.detection.results import remade
from server.lab.models import Machine, Trial
from server.lab.trials.asking import USUAL_LOOKS, Ask, want_trial
from server.sources.mirror import mirror, record_revisions
from server.sources.models import Revision

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
    set_checks(finding, [Name.FIX_SEARCH], [Check(Name.FIX_SEARCH, Outcome.NOT_CHECKED, text, revision=head)])
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
    return len(tried) < _MOST_TRIES and not any(row.get("outcome") == Outcome.PENDING for row in tried)


def _candidates(finding: Finding, head: str) -> Iterator[Candidate]:
    assert finding.branch is not None
    tree = finding.branch.tree
    since = _read_from(finding, head)
    for found in mendings(mirror(), culprits_of(finding), since=since, head=head):
        revision = record_revisions(tree=tree, shas=[found.landed])[0]
        yield Candidate(revision, f"{found.sha[:_SHORT]} says that it mends {found.culprit[:_SHORT]}")
    for point in change_points_after(finding):
        yield Candidate(point.revision, f"a timeline went back at {point.revision.sha[:_SHORT]}")


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
    trial = want_trial(
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
        )
    )
    text = f"{candidate.why}: measured against {base.sha[:_SHORT]}"
    add_check(finding, Check(Name.FIX, Outcome.PENDING, text, revision=revision.sha))
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
