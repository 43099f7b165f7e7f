"""Whether a person may let a series run, and who."""

from dataclasses import dataclass

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db.models import Q

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
    return Approval(people=_people(), again=series.state == Series.State.REFUSED)


def _people() -> int:
    """Those who may log in at the admin site and change series."""
    room, codename = PERMISSION.split(".")
    right = Permission.objects.filter(content_type__app_label=room, codename=codename)
    allowed = Q(is_superuser=True) | Q(user_permissions__in=right) | Q(groups__permissions__in=right)
    return get_user_model().objects.filter(allowed, is_active=True, is_staff=True).distinct().count()
