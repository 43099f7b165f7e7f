"""Versions of one posting that replaced each other."""

from dataclasses import dataclass

from server.sources.models import Series


@dataclass(frozen=True, slots=True)
class OtherVersion:
    id: int
    mark: str
    subject: str
    state: str
    state_label: str


def version_of(series: Series) -> OtherVersion:
    return OtherVersion(series.pk, series.mark, series.subject, series.state, label_of(series))


def label_of(series: Series) -> str:
    """The state for people; a held series waits for nobody before its senders were checked."""
    if series.state == Series.State.HELD and series.checked_at is None:
        return "senders not checked yet"
    return Series.State(series.state).label


def newer_and_older(series: Series) -> tuple[OtherVersion | None, tuple[OtherVersion, ...]]:
    """What replaced `series`, and what it replaced; one query, with `superseded_by` read already."""
    newer = series.superseded_by
    older = Series.objects.filter(superseded_by=series).order_by("-version", "-minor", "-id")
    return version_of(newer) if newer else None, tuple(version_of(row) for row in older)
