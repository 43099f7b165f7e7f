"""Housekeeping that no room owns."""

from celery import shared_task
from django.contrib.sessions.models import Session

from server.builds.storage import forget_interrupted_uploads
from server.core import clock
from server.lab.dispatch.local import forget_old_logs
from server.sources.upkeep import tend_all


# Repositories are given 20 minutes: nobody waits for this task.
@shared_task(name="upkeep.clean", soft_time_limit=1500, time_limit=1560)
def clean() -> None:
    """Forget expired logins, uploads that were cut off, logs of agents that ended long ago; tend the repositories."""
    Session.objects.filter(expire_date__lt=clock.now()).delete()
    forget_interrupted_uploads()
    forget_old_logs()
    tend_all()
