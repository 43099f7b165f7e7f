"""The newest heads of a branch: what was decided about each, how far it came, and what it showed."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count

from server.detection.models import MeasuredHead, TimelinePoint, Verdict
from server.lab.models import Trial
from server.sources.models import Branch, HeadMove, Revision

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class HeadLine:
    """`word` tells how far it came: judged, being measured, not measured ...; `decision` why.

    The counts are of cells against the reference, each by this head alone.
    """

    sha: str
    subject: str
    author: str
    committed_at: datetime
    place: int | None
    word: str
    decision: str
    slower: int = 0
    faster: int = 0
    unchanged: int = 0
    inconclusive: int = 0

    @property
    def is_judged(self) -> bool:
        return bool(self.slower or self.faster or self.unchanged or self.inconclusive)


def head_lines(branch: Branch) -> tuple[HeadLine, ...]:
    """The newest first, with those that were not measured. Three queries."""
    moves = HeadMove.objects.filter(branch=branch, after__isnull=False).select_related("after").order_by("-id")
    heads = MeasuredHead.objects.filter(branch=branch).select_related("revision", "trial").order_by("-place")
    measured = list(heads[:_SHOWN])
    counts = _counts(measured)
    decisions: dict[int, str] = {}
    at: dict[int, datetime] = {}
    revisions: dict[int, Revision] = {}
    for move in moves[:_SHOWN]:
        if move.after is not None:
            decisions.setdefault(move.after.pk, move.decision)
            at.setdefault(move.after.pk, move.at)
            revisions[move.after.pk] = move.after
    known = {head.revision_id: head for head in measured}
    for head in measured:
        revisions[head.revision_id] = head.revision
        at.setdefault(head.revision_id, head.created_at)
    # Places are the order of history; what has none stands where it was seen.
    newest = sorted(revisions, key=lambda pk: (at[pk], known[pk].place if pk in known else 0), reverse=True)
    return tuple(_line(revisions[pk], known.get(pk), decisions.get(pk, ""), counts) for pk in newest[:_SHOWN])


def _counts(heads: Iterable[MeasuredHead]) -> Mapping[int, Counter[str]]:
    """How many cells of each head have each verdict."""
    rows = TimelinePoint.objects.filter(head__in=[head.pk for head in heads]).order_by()
    counts = defaultdict[int, Counter[str]](Counter)
    for head, verdict, count in rows.values_list("head", "comparison__verdict").annotate(Count("pk")):
        counts[head][verdict] = count
    return counts


def _line(revision: Revision, head: MeasuredHead | None, decision: str, counts: Mapping[int, Counter[str]]) -> HeadLine:
    own = counts[head.pk] if head is not None and head.pk in counts else Counter[str]()
    return HeadLine(
        sha=revision.sha,
        subject=revision.subject,
        author=revision.author,
        committed_at=revision.committed_at,
        place=head.place if head is not None else None,
        word=_word(head),
        decision=decision or (head.trial.reason if head is not None and not own else ""),
        slower=own[Verdict.REGRESSED],
        faster=own[Verdict.IMPROVED],
        unchanged=own[Verdict.UNCHANGED],
        inconclusive=own[Verdict.INCONCLUSIVE],
    )


def _word(head: MeasuredHead | None) -> str:
    if head is None:
        return "not measured"
    if head.observed_at is not None:
        return "judged" if head.fleet_id is not None else "measured, nothing to compare"
    return {
        Trial.State.WANTED: "waits",
        Trial.State.MEASURING: "being measured",
        Trial.State.DONE: "measured",
    }.get(Trial.State(head.trial.state), Trial.State(head.trial.state).label)
