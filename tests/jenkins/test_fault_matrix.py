"""Whatever dies or is cut off while work is on its way: it ends in the right state, with one set of results."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random, SystemRandom

import pytest
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from tests.jenkins.matrix.cells import BUILD_STATES, FEW_BUILD_STATES
from tests.jenkins.matrix.faults import FAULTS, Fault
from tests.jenkins.matrix.lab import Lab
from tests.jenkins.matrix.quick import quicken
from tests.jenkins.matrix.run import Outcome, run_column, table

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.real(minutes=2)]


# bench.dispatch.faults names a seed: then each fault strikes at another moment after all are where they should be, and
# builds are brought to all of their states, too.
_LATEST_SECONDS = 1.5


# Each column takes some twenty seconds; `make bench-faults` plays all of them.
_AT_ONCE = 5


def faults() -> Sequence[Fault]:
    """Those that TIDEMARK_FAULTS names, or all where there is a seed, or some: others each time."""
    named = [name for name in os.environ.get("TIDEMARK_FAULTS", "").split(",") if name]
    if named:
        return [fault for fault in FAULTS if fault.name in named]
    return FAULTS if os.environ.get("TIDEMARK_FAULT_SEED") else SystemRandom().sample(FAULTS, _AT_ONCE)


def test_every_state_survives_every_fault(
    live_server: LiveServer,
    tmp_path: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    quicken(monkeypatch.setattr)
    seed = os.environ.get("TIDEMARK_FAULT_SEED", "")
    moments = Random(seed)  # noqa: S311 (no secret)
    builds = BUILD_STATES if seed else FEW_BUILD_STATES
    outcomes: list[Outcome] = []
    try:
        with Lab(tmp_path, live_server.url, settings) as lab:
            lab.start_dispatcher()
            for number, fault in enumerate(faults()):
                wait = moments.uniform(0, _LATEST_SECONDS) if seed else 0
                outcomes += run_column(lab, number, fault, builds=builds, wait=wait)
    finally:
        with capsys.disabled():
            sys.stdout.write(f"\n{table(outcomes)}\n")
    wrong = [f"{each.fault}: {each.story}: {each.ended}" for each in outcomes if not each.right]
    assert not wrong, "\n".join(wrong)
