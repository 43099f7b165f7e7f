"""A person asks whether a revision mends a finding, whatever was tried before."""

import re

from django.db import transaction

from server.core.errors import DomainError
from server.detection.lifecycle.checks import Name, Outcome, checks_named
from server.detection.lifecycle.fixing import Candidate, culprits_of, fix_key, measure
from server.detection.lifecycle.ledger import write_line
from server.detection.lifecycle.locking import held
from server.detection.models import Finding, FindingState
from server.lab.models import Trial
from server.sources.mirror import mirror, record_revisions
from server.sources.models import Revision

# A commit's id, or as much of it as people write; names of branches move while they are measured.
_ID = re.compile(r"[0-9a-f]{7,40}")
_SHORT = 12


def ask_for_fix(finding: Finding, sha: str, *, actor: str) -> Trial:
    """Have the revision measured against what was there before the change; it counts as one of the finding's tries.

    DomainError `nobody`, `commit-unknown`, `not-after-culprit`, `not-in-branch`, `under-way`, `nothing-to-mend`, or
    `conflict` for a finding that cannot be mended; GitError, temporary, where the mirror cannot be read.
    """
    person = actor.strip()
    if not person:
        raise DomainError("nobody", f"finding {finding.pk}: who asks is not said")
    with transaction.atomic():
        row = held(finding.pk)
        _refuse_state(row)
        revision = _revision(row, sha.strip().lower())
        asked = Trial.objects.filter(key__startswith=fix_key(row, revision))
        pending = [told for told in checks_named(row, Name.FIX) if told.get("outcome") == Outcome.PENDING]
        if asked.exclude(state__in=Trial.FINAL).exists() or revision.sha in {told["revision"] for told in pending}:
            raise DomainError("under-way", f"finding {row.pk}: {revision.sha[:_SHORT]} is being measured already")
        trial = measure(row, Candidate(revision, f"{person} asks"), number=asked.count() + 1)
        if trial is None:
            raise DomainError("nothing-to-mend", f"finding {row.pk}: nothing of it regressed")
        write_line(row, f"whether {revision} mends it is measured", person)
    return trial


def _refuse_state(row: Finding) -> None:
    if row.branch is None:
        raise DomainError("conflict", f"finding {row.pk} is of a series: its next version is compared with it")
    if FindingState.FIXED not in Finding.NEXT.get(row.state, frozenset()):
        raise DomainError("conflict", f"finding {row.pk} is {FindingState(row.state).label}: nothing to mend")


def _revision(row: Finding, told: str) -> Revision:
    """The commit that is named, which lies after what made the change, in the finding's branch."""
    assert row.branch is not None
    assert row.after is not None
    sha = mirror().resolve(told) if _ID.fullmatch(told) else None
    if sha is None:
        raise DomainError("commit-unknown", f"the mirror has no commit {told!r}; give its id, 7 digits at least")
    for start in sorted(culprits_of(row) or {row.after.sha}):
        if sha == start or not mirror().is_ancestor(start, sha):
            text = f"{sha[:_SHORT]} does not come after {start[:_SHORT]}, which has the change of finding {row.pk}"
            raise DomainError("not-after-culprit", text)
    head = row.branch.head
    if head is None or not mirror().is_ancestor(sha, head.sha):
        raise DomainError("not-in-branch", f"{sha[:_SHORT]} is not in {row.branch}, of which finding {row.pk} is")
    return record_revisions(tree=row.branch.tree, shas=[sha])[0]
