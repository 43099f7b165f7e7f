"""Versions of one posting that replaced each other."""

from dataclasses import dataclass

from server.sources.models import Series

# Whoever posts again and again makes as many as there are mails.
_MOST_OLDER = 20


@dataclass(frozen=True, slots=True)
class OtherVersion:
    id: int
    mark: str
    subject: str
    state: str
    state_label: str


@dataclass(frozen=True, slots=True)
class OlderVersions:
    """The newest of those that a version replaced; `unlisted` counts the others."""

    rows: tuple[OtherVersion, ...]
    unlisted: int


def version_of(series: Series) -> OtherVersion:
    return OtherVersion(series.pk, series.mark, series.subject, series.state, label_of(series))


def label_of(series: Series) -> str:
    """The state for people; a held series waits for nobody before its senders were checked."""
    if series.state == Series.State.HELD and series.checked_at is None:
        return "senders not checked yet"
    return Series.State(series.state).label


def newer_and_older(series: Series) -> tuple[OtherVersion | None, OlderVersions]:
    """What replaced `series`, and what it replaced; two queries, with `superseded_by` read already."""
    newer = series.superseded_by
    older = Series.objects.filter(superseded_by=series).order_by("-version", "-minor", "-id")
    rows = tuple(version_of(row) for row in older.defer("trailers", "prerequisites")[:_MOST_OLDER])
    unlisted = older.count() - len(rows) if len(rows) == _MOST_OLDER else 0
    return version_of(newer) if newer else None, OlderVersions(rows, unlisted)
