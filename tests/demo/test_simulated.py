"""The simulated lab: its figures, what it says while it loads, where it may be loaded, and what its pages say."""

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from demo import __main__ as program
from demo.lab.figures import FOUNDING, NO_EFFECT, studies
from demo.lab.history.truth import UARCHS
from demo.lab.replay.machines import BY_UARCH
from demo.lab.show import PROGRAMS, SETTINGS, Teller, require_own_database
from demo.processes import DemoError
from demo.world import ROOT
from scripts.stack.control import _chosen
from scripts.stack.places import Program

MARK = "Simulated lab:"


def test_founding_case_loses_everywhere_on_zen3_and_wins_everywhere_on_zen5() -> None:
    founding = studies()[0]
    assert founding.name == FOUNDING
    assert len(founding.rows) == 50
    ratios = {uarch: [row.steps[0] for row in founding.rows if row.uarch == uarch] for uarch in founding.uarchs}
    assert set(ratios) == {"zen3", "zen5"}
    assert (min(ratios["zen3"]), max(ratios["zen3"])) == (0.59, 0.9)
    assert min(ratios["zen5"]) > 1
    assert max(ratios["zen5"]) == pytest.approx(2.19, abs=0.01)


def test_every_case_is_named_once_on_its_machine_and_tells_its_parameters() -> None:
    for study in studies():
        cells = [row.cell for row in study.rows]
        assert len(cells) == len(set(cells))
        assert all(row.parameters and all(value for _, value in row.parameters) for row in study.rows)
        assert set(study.uarchs) <= set(BY_UARCH)


def test_series_without_an_effect_has_none() -> None:
    (none,) = (study for study in studies() if study.name == NO_EFFECT)
    assert none.rows
    assert {row.steps for row in none.rows} == {(1.0,)}


def test_the_two_fleets_share_no_microarchitecture() -> None:
    assert not set(UARCHS) & {uarch for study in studies() for uarch in study.uarchs}


def test_while_nothing_new_is_said_it_says_what_goes_on() -> None:
    out = io.StringIO()
    teller = Teller(out, silence=0.02)
    teller.say("machines measure")
    with teller.going_on():
        deadline = time.monotonic() + 30
        while "still: machines measure" not in out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    said = out.getvalue()
    assert "  0:00    still: machines measure\n" in said
    time.sleep(0.1)
    assert out.getvalue() == said


@pytest.mark.parametrize("name", ["TIDEMARK_DATABASE_URL", "TIDEMARK_DATABASE_URL_FILE"])
def test_database_of_the_operator_s_own_is_not_loaded(name: str) -> None:
    with pytest.raises(DemoError, match=f"{name} names a database of yours"):
        require_own_database({name: "postgres://somewhere"})
    require_own_database({name: ""})


def test_lab_is_chosen_by_its_option() -> None:
    options, lab = program._options(["--lab", "--once"])
    assert (lab, options.once) == (True, True)
    assert program._options([])[1] is False


def test_only_the_web_server_of_the_service_runs() -> None:
    programs = [Program(name, ("true",)) for name in ("web", "worker", "beat")]
    assert [program.name for program in _chosen(programs, PROGRAMS)] == ["web"]
    assert _chosen(programs, ()) == programs


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path", ["/", "/series/", "/findings/", "/machines/", "/queue/", "/status/", "/nowhere/", "/admin/login/"]
)
def test_every_page_of_a_simulated_site_says_so(client: Client, settings: Settings, path: str) -> None:
    assert MARK not in client.get(path).content.decode()
    settings.SIMULATED = True
    assert MARK in client.get(path).content.decode()


def test_stack_of_the_lab_cannot_be_started_without_the_mark() -> None:
    assert SETTINGS["TIDEMARK_SIMULATED"] == "1"


@pytest.mark.real(minutes=3)
def test_lab_is_loaded_and_holds_the_founding_split_and_a_change_of_the_branch(tmp_path: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    command = [sys.executable, "-m", "demo", "--lab", "--once"]
    environment = {**inherited, "TIDEMARK_LOCAL": str(tmp_path / "local")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("  ok     ") == 4
    again = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "posted:" not in again.stdout
