"""What the mails of a series say, who sent them, and what the service made of that."""

from dataclasses import dataclass
from datetime import datetime

from server.dashboard.selectors.approval import Approval, approval_of
from server.dashboard.selectors.measured import Measured, measured_of
from server.dashboard.selectors.moves import Commit, commit
from server.dashboard.selectors.patches import MOST_TRAILERS, Patches, patches_of, shown_lines
from server.dashboard.selectors.unused import Unused, unused_mails
from server.dashboard.selectors.versions import OlderVersions, OtherVersion, newer_and_older
from server.sources.mail.needs import is_unknown
from server.sources.models import Series
from server.sources.trust.proved_senders import SenderRow, sender_rows

# What people write there are a few short words.
_MOST_MARKS = 10
_LONGEST_MARK = 60


@dataclass(frozen=True, slots=True)
class Base:
    """`certain` is False where nothing in the mails names the base, None for series of before that was noted."""

    commit: Commit
    how: str
    certain: bool | None


@dataclass(frozen=True, slots=True)
class Posting:
    received_at: datetime
    checked_at: datetime | None
    marks: tuple[str, ...]
    wanted_base: str
    change_id: str
    prerequisites: tuple[str, ...]
    unknown_needs: tuple[str, ...]
    base: Base | None
    head: Commit | None
    measured: Measured
    newer: OtherVersion | None
    older: OlderVersions
    patches: Patches
    trailers: tuple[str, ...]
    senders: tuple[SenderRow, ...]
    unused: Unused
    approval: Approval | None


def posting_of(series: Series) -> Posting:
    """`series` was read with its list, base, head and newer version."""
    approval = approval_of(series)
    newer, older = newer_and_older(series)
    base = commit(series.base)
    return Posting(
        received_at=series.received_at,
        checked_at=series.checked_at,
        marks=marks_of(series),
        wanted_base=series.base_commit,
        change_id=series.change_id,
        prerequisites=tuple(need for need in series.prerequisites if not is_unknown(need)),
        unknown_needs=tuple(need.partition(":")[2] for need in series.prerequisites if is_unknown(need)),
        base=Base(base, series.base_how, series.base_certain) if base else None,
        head=commit(series.head),
        measured=measured_of(series),
        newer=newer,
        older=older,
        patches=patches_of(series),
        trailers=shown_lines(series.trailers, MOST_TRAILERS),
        senders=sender_rows(series),
        unused=unused_mails(series),
        approval=approval,
    )


def marks_of(series: Series) -> tuple[str, ...]:
    """The words of the [PATCH ...] mark that are no number; those stored by older versions may be thousands."""
    words = (*(["RFC"] if series.rfc else []), *(["RESEND"] if series.resend else []), *series.tags)
    return tuple(word[:_LONGEST_MARK] for word in words[:_MOST_MARKS])
