"""Finding series by their mails."""

from django.db.models import Q, QuerySet

from server.sources.models import Message, Patch, Series


def series_of(message: Message) -> "QuerySet[Series]":
    """The series that hold this mail, oldest first."""
    of_patches = list(Patch.objects.filter(message=message).values_list("series", flat=True))
    return Series.objects.filter(Q(pk__in=of_patches) | Q(cover=message)).order_by("pk")
