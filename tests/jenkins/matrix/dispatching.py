"""The dispatching process: rounds and sweeps in a loop, as the workers do them; to be killed at any moment.

Arguments: a file that says when it works, and how: `alone` below the service's lock, `beside` without it. Two of them
at once have to do no harm.
"""

import os
import sys
import time
from pathlib import Path

import django

_PAUSE_SECONDS = 0.2
_SWEEP_EVERY = 4


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")
    django.setup()
    from tests.jenkins.matrix.quick import quicken

    quicken()
    from server.core.database import advisory_lock
    from server.lab.rounds import run_round
    from server.lab.sweep import cancel_superseded, sweep

    beside = sys.argv[2] == "beside"
    number = 0
    Path(sys.argv[1]).touch()
    while True:
        number += 1
        with advisory_lock("lab.dispatch") as free:
            if free or beside:
                run_round()
                if number % _SWEEP_EVERY == 0:
                    cancel_superseded()
                    sweep()
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main()
