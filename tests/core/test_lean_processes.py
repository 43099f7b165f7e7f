"""What idle processes carry: web names the statistics and computes nothing, beat sends names."""

import subprocess
import sys

import pytest

from tests.house.sources import ROOT

WEB = "import server.asgi; from django.urls import get_resolver; get_resolver().url_patterns"
BEAT = "import workers; workers.app.loader.init_worker(); workers.app.finalize()"


@pytest.mark.parametrize(
    ("entry", "not_there"),
    [
        (WEB, {"scipy", "pyarrow"}),
        (BEAT, {"scipy", "numpy", "server.sources.models", "django.contrib.auth.models", "workers.lab"}),
    ],
    ids=["web", "beat"],
)
def test_a_process_loads_only_what_it_uses(entry: str, not_there: set[str]) -> None:
    script = f"{entry}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not_there.isdisjoint(done.stdout.split())
    assert "server.settings" in done.stdout.split()


def test_a_worker_knows_every_task_that_beat_sends() -> None:
    script = (
        "import workers; from celery.signals import celeryd_init as begun; begun.send(sender=None)\n"
        "workers.app.finalize()\n"
        "print(*workers.app.tasks, *[c.__name__ for c in type(workers.app.tasks['lab.sweep']).__mro__])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    known = done.stdout.split()
    assert {"upkeep.clean", "reports.digests", "lab.sweep", "detection.look"} <= set(known)
    assert "CountedTask" in known
