"""systemctl as a program, swap as system calls."""

from pathlib import Path

import pytest
from tidemark_agent.prepare.files import KernelFiles, SettingError
from tidemark_agent.prepare.kinds import Service, Swap, SystemPrograms

# Keeps the state of one unit in a file, and what it was asked.
SYSTEMCTL = """\
#!/bin/sh
echo "$*" >> {state}/calls
case $1 in
show) cat {state}/unit ;;
stop) echo inactive > {state}/unit ;;
start) [ "$3" = masked.service ] && {{ echo "Unit is masked." >&2; exit 1; }}; echo active > {state}/unit ;;
esac
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL.format(state=tmp_path), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return tmp_path


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("active", "active"), ("activating", "active"), ("reloading", "active"), ("inactive", "inactive"),
        ("failed", "inactive"), ("deactivating", "inactive"), ("", "inactive"),
    ],
)  # fmt: skip
def test_unit_runs_or_does_not(state: Path, said: str, value: str) -> None:
    (state / "unit").write_text(f"{said}\n")
    assert Service(SystemPrograms(state)).read("cron.service") == value


def test_unit_is_stopped_and_started(state: Path) -> None:
    service = Service(SystemPrograms(state))
    service.write("cron.service", "inactive")
    assert service.read("cron.service") == "inactive"
    service.write("cron.service", "active")
    assert service.read("cron.service") == "active"
    assert (state / "calls").read_text().splitlines()[0] == "stop -- cron.service"


def test_unit_that_does_not_start_says_why(state: Path) -> None:
    with pytest.raises(SettingError, match="Unit is masked"):
        Service(SystemPrograms(state)).write("masked.service", "active")


def test_system_without_systemd_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingError, match="systemctl cannot be run"):
        Service(SystemPrograms(tmp_path)).read("cron.service")


@pytest.mark.parametrize("value", ["off", "auto", "5"])
def test_swap_that_is_not_there_says_so(tmp_path: Path, value: str) -> None:
    """The kernel's own answer; to those who are not root it only says that they are not."""
    swap = Swap(KernelFiles(tmp_path), SystemPrograms(tmp_path))
    with pytest.raises(SettingError, match=r"swapo(n|ff) .*/missing: .*\((ENOENT|EINVAL|EPERM)\)"):
        swap.write(str(tmp_path / "missing"), value)


@pytest.mark.parametrize("value", ["99999", "-1", "high"])
def test_priority_that_swap_cannot_have_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(SettingError, match="no priority of swap"):
        Swap(KernelFiles(tmp_path), SystemPrograms(tmp_path)).write("/dev/null", value)
