"""Who asks for a session: its tree, and in it its series, or its trial where that is of no series."""

from django.db.models import F, IntegerField, Value
from django.db.models.functions import Coalesce


def tree_of(prefix: str = "") -> Coalesce:
    """The tree whose share a session uses up, 0 for none: a machine's own check. `prefix` leads to the session."""
    return Coalesce(f"{prefix}series__base__tree", f"{prefix}trial__base__tree", Value(0), output_field=IntegerField())


def asker_of(prefix: str = "") -> Coalesce:
    """The series that a session is of, whatever its trial asks about it.

    A trial of no series stands for itself, as a negative number; 0 for a machine's own check.
    """
    own = F(f"{prefix}trial") * Value(-1)
    return Coalesce(f"{prefix}series", f"{prefix}trial__series", own, Value(0), output_field=IntegerField())
