"""`make pins`: which images are named, and what becomes of an env file that is there."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.pins import ROOT, digest_of, pinned, wanted

DIGEST = "sha256:" + "a" * 64
# Answers as Docker does for an image of a registry and for one that was made here.
DOCKER = f"""#!/bin/sh
case "$1 $2" in
"image inspect") case "$5" in *own*) ;; *) echo "other@{DIGEST}"; echo "${{5%:*}}@{DIGEST}" ;; esac ;;
esac
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_every_image_of_the_compose_file_is_named_by_a_setting() -> None:
    names = wanted((ROOT / "docker-compose.yml").read_text(encoding="utf-8"), {"TIDEMARK_REDIS_IMAGE": "mine/redis:1"})
    assert set(names) == {
        f"TIDEMARK_{name}_IMAGE" for name in ("PYTHON", "NODE", "POSTGRES", "REDIS", "PROXY", "JENKINS")
    }
    assert names["TIDEMARK_REDIS_IMAGE"] == "mine/redis:1"


@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize("image", ["redis:7.2.10", "127.0.0.1:5000/a/redis:x"])
def test_digest_is_that_of_the_named_repository(image: str) -> None:
    assert digest_of(image) == f"{image.rpartition(':')[0]}@{DIGEST}"
    assert digest_of(f"redis@{DIGEST}") == f"redis@{DIGEST}"


@pytest.mark.usefixtures("docker")
def test_file_gets_the_pins_and_keeps_the_rest_and_no_failure_touches_it(tmp_path: Path) -> None:
    env = tmp_path / "env"
    env.write_text("TIDEMARK_PORT=8001\nTIDEMARK_REDIS_IMAGE=old\n")
    env.chmod(0o640)
    words = [sys.executable, "-m", "scripts.pins", "--out", str(env), "--only", "TIDEMARK_REDIS_IMAGE"]
    asked = {**os.environ, "TIDEMARK_REDIS_IMAGE": "redis:9"}
    done = subprocess.run(words, cwd=ROOT, env=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert env.read_text().splitlines() == ["TIDEMARK_PORT=8001", f"TIDEMARK_REDIS_IMAGE=redis@{DIGEST}"]
    assert stat.S_IMODE(env.stat().st_mode) == 0o640
    asked["TIDEMARK_REDIS_IMAGE"] = "own:1"
    done = subprocess.run(words, cwd=ROOT, env=asked, capture_output=True, text=True, check=False)
    assert (done.returncode, "came from no registry" in done.stderr) == (1, True)
    assert f"redis@{DIGEST}" in env.read_text()


def test_lines_of_other_settings_stay() -> None:
    assert pinned(["A=1", "B=2"], {"B": "3"}) == ["A=1", "B=3"]
