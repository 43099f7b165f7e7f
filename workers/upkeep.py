"""Housekeeping that no room owns."""

from celery import shared_task
from django.contrib.sessions.models import Session

from server.core import clock


@shared_task(name="upkeep.clean")
def clean() -> None:
    """Forget logins that have expired."""
    Session.objects.filter(expire_date__lt=clock.now()).delete()
