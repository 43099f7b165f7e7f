"""Series as rows of a list."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.core.paginator import Page, Paginator

from server.dashboard.selectors.verdicts import FindingBrief, briefs_by_series
from server.sources.models import MailingList, Series

PER_PAGE = 50


@dataclass(frozen=True, slots=True)
class SeriesRow:
    id: int
    subject: str
    version: int
    total: int
    author: str
    mailing_list: str
    submitted_at: datetime
    state: str
    state_label: str
    state_since: datetime
    reason: str
    finding: FindingBrief | None


@dataclass(frozen=True, slots=True)
class SeriesFilter:
    state: str = ""
    mailing_list: str = ""


@dataclass(frozen=True, slots=True)
class SeriesPage:
    rows: tuple[SeriesRow, ...]
    number: int
    pages: int
    total: int
    previous: int | None
    next: int | None


def series_page(wanted: SeriesFilter, number: str) -> SeriesPage:
    """One page of all series, newest first; a page number that makes no sense gives the nearest page."""
    query = Series.objects.all()
    if wanted.state:
        query = query.filter(state=wanted.state)
    if wanted.mailing_list:
        query = query.filter(mailing_list__name=wanted.mailing_list)
    page: Page[Series] = Paginator(query.select_related("mailing_list"), PER_PAGE).get_page(number)
    return SeriesPage(
        rows=series_rows(list(page.object_list)),
        number=page.number,
        pages=page.paginator.num_pages,
        total=page.paginator.count,
        previous=page.previous_page_number() if page.has_previous() else None,
        next=page.next_page_number() if page.has_next() else None,
    )


def list_names() -> tuple[str, ...]:
    return tuple(MailingList.objects.values_list("name", flat=True))


def series_rows(found: Sequence[Series]) -> tuple[SeriesRow, ...]:
    """Rows for series read with their mailing list; two queries more, however many rows."""
    briefs = briefs_by_series([row.pk for row in found])
    return tuple(
        SeriesRow(
            id=row.pk,
            subject=row.subject,
            version=row.version,
            total=row.total,
            author=row.author_name or row.author_address,
            mailing_list=row.mailing_list.name,
            submitted_at=row.submitted_at,
            state=row.state,
            state_label=Series.State(row.state).label,
            state_since=row.state_since,
            reason=row.reason,
            finding=briefs.get(row.pk),
        )
        for row in found
    )
