"""The package as users get it: a wheel, installed where nothing else is, asking the running service."""

import subprocess
import sys
from pathlib import Path

import pytest
from pytest_django.live_server_helper import LiveServer

from tests.builders import build_finding, build_series

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")

    def uv(*words: str | Path) -> None:
        subprocess.run([UV, *words, "--quiet"], check=True, cwd=folder)

    uv("build", "--wheel", "--out-dir", folder / "dist", ROOT / "client")
    uv("venv", "--python", sys.executable, folder / "venv")
    (wheel,) = (folder / "dist").glob("tidemark-*.whl")
    uv("pip", "install", "--python", folder / "venv", wheel)
    return folder / "venv" / "bin" / "tidemark"


@pytest.mark.real
@pytest.mark.django_db(transaction=True)
def test_installed_command_asks_the_service_and_gates_a_script(command: Path, live_server: LiveServer) -> None:
    finding = build_finding(build_series(), headline="mm: slower")
    words: list[str | Path] = [command, "findings", "--fail-on", "regressed", "--format", "csv", "--columns"]
    done = subprocess.run(
        [*words, "id,headline"],
        env={"TIDEMARK_SERVER": live_server.url},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == f"id,headline\n{finding.pk},mm: slower\n", done.stderr
    assert done.returncode == 2
