"""The patches of a series as rows of a table, with what each changes."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, F, Sum

from server.dashboard.selectors.links import archive_link
from server.sources.models import Message, Patch, Series

# Longer series are counted and summed up; the API has all of them.
MOST_PATCHES = 200
_MOST_PATHS = 40
MOST_TRAILERS = 60
# Of a path or a trailer; both may be as long as the mail.
_LONGEST_LINE = 240


@dataclass(frozen=True, slots=True)
class PatchRow:
    """`message` is the number of its mail's row, `unlisted` counts the paths beyond those in `paths`.

    `proved` tells whether the mail is from its sender; None: not checked.
    """

    index: int
    subject: str
    message: int
    message_id: str
    link: str
    deleted: bool
    proved: bool | None
    sha: str
    author: str
    files: int
    insertions: int
    deletions: int
    paths: tuple[str, ...]
    unlisted: int
    trailers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Patches:
    """The first patches of a series; `count` and the sums are over all of them."""

    rows: tuple[PatchRow, ...]
    count: int
    insertions: int
    deletions: int

    @property
    def hidden(self) -> int:
        return self.count - len(self.rows)


def patches_of(series: Series) -> Patches:
    """Two queries, however many patches; `series` was read with its list."""
    sums = {"count": Count("id"), "insertions": Sum("insertions", default=0), "deletions": Sum("deletions", default=0)}
    whole = Patch.objects.filter(series=series).order_by().aggregate(**sums)
    query = Patch.objects.filter(series=series).select_related("message", "revision").order_by("index")
    # A patch may change as many files as fit into its mail; the database cuts the list of them.
    first = {"first_paths": F(f"paths__0_{_MOST_PATHS}"), "count_of_paths": F("paths__len")}
    unread = ("paths", "message__raw", "message__references", "message__trailers")
    rows = list(query.defer(*unread).annotate(**first)[:MOST_PATCHES])
    return Patches(tuple(_row(patch, series.mailing_list.url) for patch in rows), **whole)


def _row(patch: Patch, inbox: str) -> PatchRow:
    return PatchRow(
        index=patch.index,
        subject=patch.subject,
        message=patch.message_id,
        message_id=patch.message.message_id,
        link=archive_link(inbox, patch.message.message_id),
        deleted=patch.message.kind == Message.Kind.DELETED,
        proved=patch.message.authentic,
        sha=patch.revision.sha if patch.revision else "",
        author=patch.author_name or patch.author_address,
        files=patch.files,
        insertions=patch.insertions,
        deletions=patch.deletions,
        paths=shown_lines(vars(patch)["first_paths"] or (), _MOST_PATHS),
        unlisted=max((vars(patch)["count_of_paths"] or 0) - _MOST_PATHS, 0),
        trailers=shown_lines(patch.trailers, MOST_TRAILERS),
    )


def shown_lines(lines: Sequence[str], most: int) -> tuple[str, ...]:
    """The first lines, each cut where it is longer than anybody reads."""
    return tuple(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …" for line in lines[:most])
