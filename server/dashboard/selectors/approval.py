"""Whether a person may let a series run, and who."""

from dataclasses import dataclass

from server.dashboard.selectors.people import people_with
from server.sources.models import Series

PERMISSION = "sources.change_series"


@dataclass(frozen=True, slots=True)
class Approval:
    """`people` counts those who may; `again` tells that the series was refused and would be tried once more."""

    people: int
    again: bool


def approval_of(series: Series, patches: int) -> Approval | None:
    """None where there is nothing to approve. `patches` is how many the series has."""
    if series.state not in {Series.State.HELD, Series.State.REFUSED} or patches != series.total:
        return None
    return Approval(people=people_with(PERMISSION), again=series.state == Series.State.REFUSED)
