"""Housekeeping that no room owns."""

from celery import shared_task
from django.contrib.sessions.models import Session

from server.builds.storage import forget_interrupted_uploads
from server.core import clock
from server.lab.dispatch.local import forget_old_logs


@shared_task(name="upkeep.clean")
def clean() -> None:
    """Forget expired logins, uploads that were cut off, and logs of agents that ended long ago."""
    Session.objects.filter(expire_date__lt=clock.now()).delete()
    forget_interrupted_uploads()
    forget_old_logs()
