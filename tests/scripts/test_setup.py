"""Functions of setup.sh, each in a bash that has sourced it; nothing is installed."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
ADDRESSES = {"TIDEMARK_DATABASE_URL": "postgres:///x", "TIDEMARK_REDIS_URL": "redis://x"}


def bash(script: str, *, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    words = ["bash", "-c", f"source {ROOT}/scripts/setup.sh; cd '{cwd}'; {script}"]
    return subprocess.run(words, env={**plain, **(env or {})}, capture_output=True, text=True, check=False)


def put_back(folder: Path) -> None:
    done = bash("POLICY=policy; CLUSTER_CONF=conf; put_back", cwd=folder)
    assert done.returncode == 0, done.stderr


def leave(folder: Path) -> None:
    """What a setup leaves that is killed while it installs."""
    done = bash("POLICY=policy; CLUSTER_CONF=conf; forbid_starts; forbid_cluster; kill -9 $$", cwd=folder)
    assert done.returncode == -9, done.stderr


def test_killed_setup_s_policy_is_gone_after_the_next(tmp_path: Path) -> None:
    leave(tmp_path)
    assert "exit 101" in (tmp_path / "policy").read_text()
    put_back(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_killed_setup_s_policy_makes_room_for_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "policy").write_text("the site's own")
    leave(tmp_path)
    put_back(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    assert (tmp_path / "policy").read_text() == "the site's own"


def test_policy_of_somebody_else_stays(tmp_path: Path) -> None:
    (tmp_path / "policy").write_text("#!/bin/sh\nexit 101\n")
    (tmp_path / "policy.tidemark").write_text("older")
    put_back(tmp_path)
    assert (tmp_path / "policy").read_text() == "#!/bin/sh\nexit 101\n"


def test_setup_as_root_puts_back_before_it_looks_for_packages(tmp_path: Path) -> None:
    script = "id() { echo 0; }; flock() { :; }; put_back() { echo back; }; ensure_packages() { echo packages; exit; }"
    assert bash(f"{script}; main", cwd=tmp_path).stdout.split() == ["back", "packages"]


@pytest.mark.parametrize("suffix", ["", "_FILE"])
def test_servers_that_the_operator_brings_are_not_installed(tmp_path: Path, suffix: str) -> None:
    script = "has_postgres() { false; }; command() { false; }; missing_packages"
    without = bash(script, cwd=tmp_path).stdout.split()
    assert {"postgresql", "redis-server"} <= set(without)
    brought = bash(script, cwd=tmp_path, env={name + suffix: value for name, value in ADDRESSES.items()}).stdout.split()
    assert set(without) - set(brought) == {"postgresql", "redis-server"}


def test_servers_that_would_start_are_not_in_the_line_for_root(tmp_path: Path) -> None:
    done = bash("tell_missing flex redis-server ccache postgresql", cwd=tmp_path)
    line = done.stderr.splitlines()[0]
    assert line.endswith("--no-install-recommends flex ccache")
    assert "postgresql and redis-server are optional" in done.stderr
    assert "it does not go without flex\n" in done.stderr
    assert done.returncode == 1


def test_what_is_replaceable_stops_nobody(tmp_path: Path) -> None:
    done = bash("tell_missing redis-server; echo on", cwd=tmp_path)
    assert done.stdout == "on\n"
    assert "apt-get" not in done.stderr
