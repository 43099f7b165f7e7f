"""Whether a person may let a series run, and who."""

from dataclasses import dataclass

from server.dashboard.selectors.people import people_with
from server.sources.models import Series
from server.sources.series.services import may_be_approved

PERMISSION = "sources.change_series"


@dataclass(frozen=True, slots=True)
class Approval:
    """`people` counts those who may; `again` tells that the series was refused and would be tried once more.

    `replaced` tells that a version stands in its place which nobody proved.
    """

    people: int
    again: bool
    replaced: bool


def approval_of(series: Series, patches: int) -> Approval | None:
    """None where there is nothing to approve. `patches` is how many the series has."""
    if not may_be_approved(series) or patches != series.total:
        return None
    state = Series.State(series.state)
    return Approval(
        people=people_with(PERMISSION),
        again=state == Series.State.REFUSED,
        replaced=state == Series.State.SUPERSEDED,
    )
