"""Series as rows of a list."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from server.dashboard.selectors.paging import Paged, paged
from server.dashboard.selectors.posting import marks_of
from server.dashboard.selectors.verdicts import FindingBrief, briefs_by_series
from server.dashboard.selectors.versions import label_of
from server.sources.models import MailingList, Series
from server.sources.series.as_json import holding


@dataclass(frozen=True, slots=True)
class SeriesRow:
    id: int
    subject: str
    mark: str
    total: int
    author: str
    mailing_list: str
    submitted_at: datetime
    state: str
    state_label: str
    state_since: datetime
    reason: str
    marks: tuple[str, ...]
    uncertain: bool
    finding: FindingBrief | None


@dataclass(frozen=True, slots=True)
class SeriesFilter:
    state: str = ""
    mailing_list: str = ""
    mail: str = ""

    @property
    def narrows(self) -> bool:
        return bool(self.state or self.mailing_list or self.mail)


def series_page(wanted: SeriesFilter, number: str) -> Paged[SeriesRow]:
    """One page of all series, newest first."""
    query = Series.objects.select_related("mailing_list").defer("trailers")
    if wanted.state:
        query = query.filter(state=wanted.state)
    if wanted.mailing_list:
        query = query.filter(mailing_list__name=wanted.mailing_list)
    if wanted.mail:
        query = query.filter(pk__in=holding(wanted.mail).values("pk"))
    return paged(query, number, series_rows)


def list_names() -> tuple[str, ...]:
    return tuple(MailingList.objects.values_list("name", flat=True))


def series_rows(found: Sequence[Series]) -> tuple[SeriesRow, ...]:
    """Rows for series read with their mailing list; two queries more, however many rows."""
    briefs = briefs_by_series([row.pk for row in found])
    return tuple(
        SeriesRow(
            id=row.pk,
            subject=row.subject,
            mark=row.mark,
            total=row.total,
            author=row.author_name or row.author_address,
            mailing_list=row.mailing_list.name,
            submitted_at=row.submitted_at,
            state=row.state,
            state_label=label_of(row),
            state_since=row.state_since,
            reason=row.reason,
            marks=marks_of(row),
            uncertain=row.base_certain is False,
            finding=briefs.get(row.pk),
        )
        for row in found
    )
