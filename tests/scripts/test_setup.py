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


@pytest.mark.parametrize(("machine", "asked"), [("aarch64", True), ("x86_64", False)])
def test_host_that_compiles_across_gets_what_it_takes(tmp_path: Path, machine: str, *, asked: bool) -> None:
    done = bash(f"uname() {{ echo {machine}; }}; is_there() {{ false; }}; missing_packages", cwd=tmp_path)
    assert ({"gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"} <= set(done.stdout.split())) == asked


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
    assert "sudo scripts/setup.sh --packages" in line
    assert line.endswith("--no-install-recommends flex ccache")
    assert "postgresql and redis-server are optional" in done.stderr
    assert "it does not go without flex\n" in done.stderr
    assert done.returncode == 1


def test_what_is_replaceable_stops_nobody(tmp_path: Path) -> None:
    done = bash("tell_missing redis-server; echo on", cwd=tmp_path)
    assert done.stdout == "on\n"
    assert "apt-get" not in done.stderr


_LISTS = "Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)"


def test_another_apt_that_reads_the_lists_is_waited_for(tmp_path: Path) -> None:
    script = f"apt-get() {{ n=$(cat n); echo $((n + 1)) >n; [ $n -gt 1 ] || {{ echo 'E: {_LISTS}'; return 100; }}; }}"
    done = bash(f"echo 0 >n; sleep() {{ :; }}; {script}; apt_update", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.count("waiting for it") == 2


def test_other_troubles_of_the_lists_are_not_waited_for(tmp_path: Path) -> None:
    done = bash("apt-get() { echo 'E: no network'; return 100; }; apt_update || echo $?", cwd=tmp_path)
    assert done.stdout.split("\n")[:2] == ["E: no network", "1"]


def test_dpkg_of_somebody_else_is_waited_for(tmp_path: Path) -> None:
    assert "DPkg::Lock::Timeout=600" in bash('apt-get() { echo "$@"; }; apt_install x', cwd=tmp_path).stdout


def test_step_that_takes_long_says_how_far_it_is_and_leaves_nothing(tmp_path: Path) -> None:
    script = "mkdir -p .local/log; BEAT_SECONDS=0.2; work() { echo 'unpacking 3 of 7'; sleep 1; }; step packages - work"
    done = bash(script, cwd=tmp_path)
    beats = [line for line in done.stdout.splitlines() if "for 0 s now" in line or "for 1 s now" in line]
    assert beats
    assert all(line.endswith("unpacking 3 of 7") for line in beats)
    assert done.stdout.splitlines()[-1].startswith("setup: packages: ")


def test_packages_alone_are_for_root_and_leave_no_folder(tmp_path: Path) -> None:
    refused = bash("id() { echo 1000; }; install_only_packages", cwd=tmp_path)
    assert (refused.returncode, "sudo scripts/setup.sh --packages" in refused.stderr) == (1, True)
    done = bash("id() { echo 0; }; put_back() { :; }; missing_packages() { :; }; install_only_packages", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
