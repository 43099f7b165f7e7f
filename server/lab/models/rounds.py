"""When the dispatcher's last round was."""

from django.db import models


class RoundMark(models.Model):
    """One row for each dispatcher: when it last made a round, so that an outage of the service is known afterwards."""

    adapter = models.CharField(max_length=20, unique=True)
    last_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.adapter}: {self.last_at}"
