"""Whether a person may let a series run, and who."""

from dataclasses import dataclass

from server.dashboard.selectors.people import people_with
from server.sources.models import Series
from server.sources.series.services import may_be_approved, posting_mark
from server.sources.series.superseding import replaced_of_others
from server.sources.trust.proved_senders import unproved_mails

PERMISSION = "sources.change_series"
_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Approval:
    """`people` counts those who may; `again` tells that the series was refused and would be tried once more.

    `replaced` tells that a version stands in its place which nobody proved. `unproved` names mails that anybody may
    have written in their sender's name, the first of them; `more` counts the others. `ends` are series of other authors
    that this one would replace, `seen` is what an approval is of.
    """

    people: int
    again: bool
    replaced: bool
    unproved: tuple[str, ...]
    more: int
    ends: tuple[Series, ...]
    seen: str


def approval_of(series: Series) -> Approval | None:
    """None where there is nothing to approve. Pages ask before they read the mails, so that they show all it is of."""
    if not may_be_approved(series) or series.patches.count() < series.total:
        return None
    seen = posting_mark(series)
    state = Series.State(series.state)
    unproved = unproved_mails(series, _MOST_NAMED)
    return Approval(
        people=people_with(PERMISSION),
        again=state == Series.State.REFUSED,
        replaced=state == Series.State.SUPERSEDED,
        unproved=unproved.shown,
        more=unproved.more,
        ends=tuple(replaced_of_others(series)),
        seen=seen,
    )
