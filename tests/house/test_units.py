"""Systemd's own word about the units of the service, and that they and the guide name the same things."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from server.celery import QUEUES
from tests.house.test_containers import ROOT

UNITS = ROOT / "systemd"
NAMES = ["tidemark-web", "tidemark-beat", *(f"tidemark-worker@{queue}" for queue in QUEUES)]
# By `systemd-analyze security`, where 10 is a process with all rights. Two make sandboxes for what strangers send.
EXPOSED = {"tidemark-worker@sources": 4.5, "tidemark-worker@lab": 4.8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The units as they are installed, with this checkout's programs in them."""
    made = tmp_path_factory.mktemp("units")
    shutil.copytree(UNITS, made, dirs_exist_ok=True)
    for unit in made.glob("*.service"):
        unit.write_text(unit.read_text().replace("/srv/tidemark/.venv", str(ROOT / ".venv")))
    for queue in QUEUES:
        shutil.copy(made / "tidemark-worker@.service", made / f"tidemark-worker@{queue}.service")
    return made


def analyze(folder: Path, *words: str) -> str:
    done = subprocess.run(["systemd-analyze", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_units_are_read_without_a_complaint(folder: Path) -> None:
    assert analyze(folder, "verify", *(f"./{name}.service" for name in NAMES), "./tidemark.target") == ""


@pytest.mark.parametrize("name", NAMES)
def test_process_is_closed_in(folder: Path, name: str) -> None:
    said = analyze(folder, "security", "--offline=true", f"./{name}.service")
    level = re.search(r"Overall exposure level.*: ([\d.]+)", said)
    assert level is not None
    assert float(level[1]) <= EXPOSED.get(name, 1.6)


def test_target_wants_every_process() -> None:
    wanted = set(re.findall(r"(tidemark-\S+)\.service", (UNITS / "tidemark.target").read_text()))
    assert wanted == set(NAMES)


def test_units_that_are_named_are_there() -> None:
    """A word for systemctl that is no unit's stops nothing, as before a restore."""
    known = {*NAMES, "tidemark.target", "tidemark-worker@*"}
    texts = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "server/operations").rglob("*.py")]
    acts = re.compile(r"systemctl (?:start|stop|restart) ([^`\n;&)#:]+)")
    named = [
        word.strip("'\",.") for path in texts for words in acts.findall(path.read_text()) for word in words.split()
    ]
    ours = {word.removesuffix(".service") for word in named if word.startswith("tidemark")}
    agents = {word for word in ours if word.startswith("tidemark-agent")}
    assert "tidemark.target" in ours
    assert ours - agents <= known


def test_guide_and_units_speak_of_the_same_places() -> None:
    guide = (ROOT / "docs/operations/install-debian.md").read_text(encoding="utf-8")
    for unit in UNITS.glob("*.service"):
        text = unit.read_text()
        assert "EnvironmentFile=/etc/tidemark/env" in text
        assert "WorkingDirectory=/srv/tidemark" in text
    assert {"/etc/tidemark/env", "/srv/tidemark", "cp -r systemd/. /etc/systemd/system/"} <= set(
        re.findall(r"/etc/tidemark/env|/srv/tidemark|cp -r systemd/\. /etc/systemd/system/", guide)
    )
