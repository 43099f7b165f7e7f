"""What lists of findings are narrowed by, on pages and in answers alike."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from server.detection.findings.vector import SPLIT
from server.detection.models import Comparison, Finding, FindingState, FindingVerdict, Verdict
from server.sources.models import Revision, Series
from server.sources.series.requests import holding, touching

_ENDS = ("culprit", "before", "after", "fix")
# Of these somebody may still have to decide something.
CLAIMS = (Finding.Kind.REGRESSED, Finding.Kind.SPLIT, Finding.Kind.IMPROVED)
OPEN = (FindingState.CANDIDATE, FindingState.CONFIRMED, FindingState.BISECTING, FindingState.REPORTED)


def is_open() -> Q:
    """What claims nothing waits for nobody, however it was judged."""
    return Q(state__in=OPEN, kind__in=CLAIMS)


def assignees() -> list[str]:
    """Login names of those who look after any finding."""
    own = Exists(Finding.objects.filter(assignee=OuterRef("pk")).order_by())
    return list(get_user_model().objects.filter(own).order_by("username").values_list("username", flat=True))


def of_tree(findings: QuerySet[Finding], trees: Collection[int]) -> QuerySet[Finding]:
    """Of a branch of the tree, or of a series that was applied to it."""
    return findings.filter(Q(branch__tree__in=trees) | Q(series__base__tree__in=trees))


def of_author(findings: QuerySet[Finding], address: str) -> QuerySet[Finding]:
    """Of a series of that sender. The series are looked for first: so an index finds them."""
    return findings.filter(series__in=Series.objects.filter(author_address__iexact=address).order_by().values("pk"))


def of_path(findings: QuerySet[Finding], beginning: str) -> QuerySet[Finding]:
    """Of a series that changes a file whose path begins so."""
    return findings.filter(series__in=touching(beginning).order_by().values("series"))


def of_mail(findings: QuerySet[Finding], message_id: str) -> QuerySet[Finding]:
    return findings.filter(series__in=holding(message_id).order_by().values("pk"))


def of_commit(findings: QuerySet[Finding], sha: str) -> QuerySet[Finding]:
    """That name a commit which begins so: what made it, what mended it, or what was measured."""
    found = list(Revision.objects.filter(sha__startswith=sha).order_by().values_list("pk", flat=True))
    ends = [Q(**{f"{end}__in": found}) for end in _ENDS]
    return findings.filter(reduce(or_, ends)) if found else findings.none()


def claiming_anywhere(findings: QuerySet[Finding], claim: Verdict) -> QuerySet[Finding]:
    """That claim it somewhere: what regressed on one microarchitecture and improved on another does both."""
    return findings.filter(kind__in=(claim, Finding.Kind.SPLIT))


@dataclass(frozen=True, slots=True)
class ClaimFilter:
    """A change that is claimed. What is asked of a cell has to hold of one cell in which it is claimed.

    `of_cell` are conditions on comparisons, `few` whether only few ones fulfil them: then those are looked for first.
    `effect` is how far from 1 the ratio is, at least.
    """

    regressed_on: Sequence[int] = ()
    improved_on: Sequence[int] = ()
    of_cell: Sequence[Q] = ()
    effect: float | None = None
    few: bool = False

    def of(self, findings: QuerySet[Finding]) -> QuerySet[Finding]:
        wanted = [
            *((Verdict.REGRESSED, uarch) for uarch in self.regressed_on),
            *((Verdict.IMPROVED, uarch) for uarch in self.improved_on),
        ]
        for claim, uarch in wanted:
            findings = findings.filter(self._claimed(claim, uarch=uarch))
        if not wanted and (self.of_cell or self.effect is not None):
            claimed = (self._claimed(claim) for claim in (Verdict.REGRESSED, Verdict.IMPROVED))
            findings = findings.filter(reduce(or_, claimed))
        return findings

    def _claimed(self, claim: Verdict, **where: Any) -> Exists | Coalesce:
        """That some microarchitecture's verdict says so, by a cell as it is asked for."""
        told = FindingVerdict.objects.filter(finding=OuterRef("pk"), verdict__in=(claim, SPLIT), **where)
        if not self.of_cell and self.effect is None:
            return Exists(told)
        cells = Comparison.objects.filter(*self.of_cell, _moved(self.effect, "ratio"), verdict=claim)
        cells = cells.filter(session__trial=OuterRef("finding__trial"), session__machine__uarch=OuterRef("uarch"))
        if self.of_cell:
            return Exists(told.filter(Exists(cells.order_by()))) if self.few else _of_each(told.filter(_of_each(cells)))
        # The cell that moved most there tells it as well, and is at hand: by its id, of some verdicts. Joined, all that
        # ever moved so far would be looked for first. Of a split it may have moved the other way.
        ratio = Comparison.objects.filter(pk=OuterRef("comparison")).order_by().values("ratio")
        most = Q(_moved(self.effect, "most"), verdict=claim)
        told = told.annotate(most=Subquery(ratio))
        return Exists(told.filter(most | Q(Exists(cells.order_by()), verdict=SPLIT)))


def _of_each(rows: "QuerySet[Any]") -> Coalesce:
    """Whether there is any, asked of one row after the other, the newest first, until a page is full.

    Of Exists PostgreSQL looks for all rows that have any before the first is told, and reads every session for it.
    """
    return Coalesce(Subquery(rows.order_by().annotate(there=Value(True)).values("there")[:1]), False)


def _moved(effect: float | None, ratio: str) -> Q:
    """By so large a fraction at least."""
    if effect is None:
        return Q()
    return Q(**{f"{ratio}__gte": 1 + effect}) | Q(**{f"{ratio}__lte": 1 - effect})
