"""Nights of A/A trials played one after the other, each answered at its own time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from unittest import mock

from server.detection.on_trial_over import answer_noise
from server.lab.models import Machine, Trial
from tests.builders import EPOCH
from tests.detection.noise.shown import NIGHT, shown_trial


class Nights:
    """What one machine shows, night by night; `night` counts on through all calls."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.night = 0

    def show(self, shows: Sequence[Mapping[str, float]], *, answered: bool = True) -> Trial:
        """One A/A trial a night, each judged and answered then; returns the last."""
        for logs in shows:
            self.night += 1
            with self.now(hours=0.5):
                trial = shown_trial(self.machine, logs, night=self.night)
            with self.now(hours=1):
                if answered:
                    answer_noise(trial)
        self.machine.refresh_from_db()
        return trial

    @contextmanager
    def now(self, hours: float = 2) -> Iterator[datetime]:
        """So many hours after the last trial was judged."""
        at = EPOCH + self.night * NIGHT + hours * NIGHT / 24
        with mock.patch("django.utils.timezone.now", return_value=at):
            yield at
