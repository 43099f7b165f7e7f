"""Who may do what at this site."""

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db.models import Q


def people_with(permission: str) -> int:
    """How many may log in at the admin site and have this right, written as `room.codename`."""
    room, codename = permission.split(".")
    right = Permission.objects.filter(content_type__app_label=room, codename=codename)
    allowed = Q(is_superuser=True) | Q(user_permissions__in=right) | Q(groups__permissions__in=right)
    return get_user_model().objects.filter(allowed, is_active=True, is_staff=True).distinct().count()
