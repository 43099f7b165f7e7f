"""Builds whose files a person wants to keep, however old they get."""

from django.db import transaction

from server.builds.models import Build
from server.core.models import Transition


def pin_build(build: Build, *, pinned: bool, actor: str) -> bool:
    """Pin or unpin; returns whether that changed anything. Who did it becomes a line of the build's history."""
    with transaction.atomic():
        if Build.objects.filter(pk=build.pk, pinned=not pinned).update(pinned=pinned) != 1:
            return False
        Transition.objects.create(
            trace=build.trace,
            subject="build",
            subject_id=build.pk,
            before=build.state,
            after=build.state,
            reason="pinned: its files stay" if pinned else "unpinned: its files go when they are old",
            actor=actor,
        )
    return True
