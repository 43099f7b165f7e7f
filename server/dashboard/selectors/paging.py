"""One page of a long table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.core.paginator import Page, Paginator
from django.db.models import Model, QuerySet

Row = TypeVar("Row")
Source = TypeVar("Source", bound=Model)
PER_PAGE = 50


@dataclass(frozen=True, slots=True)
class Paged(Generic[Row]):
    """`total` counts the rows of all pages; `previous` and `next` are page numbers."""

    rows: tuple[Row, ...]
    number: int
    pages: int
    total: int
    previous: int | None
    next: int | None


def paged(
    query: "QuerySet[Source]", number: str, rows: Callable[[Sequence[Source]], Sequence[Row]], per_page: int = PER_PAGE
) -> Paged[Row]:
    """Two queries and those of `rows`; a page number that makes no sense gives the nearest page."""
    page: Page[Source] = Paginator(query, per_page).get_page(number)
    return Paged(
        rows=tuple(rows(list(page.object_list))),
        number=page.number,
        pages=page.paginator.num_pages,
        total=page.paginator.count,
        previous=page.previous_page_number() if page.has_previous() else None,
        next=page.next_page_number() if page.has_next() else None,
    )
