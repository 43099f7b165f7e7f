"""The kexec driver against a program that writes down how it was called."""

import threading
from pathlib import Path

import pytest
from tidemark_agent.boot.driver import KernelFiles, Reboots
from tidemark_agent.boot.evidence import LEAVING
from tidemark_agent.boot.loader import KexecDriver
from tidemark_agent.config import BootConfig
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.log import Log

FAKE = """\
#!/bin/sh
echo "$@" >> {calls}
case " $* " in *" {broken} "*) echo "cannot do that" >&2; exit 1 ;; esac
case " $* " in
*" -l "*) echo 1 > {loaded} ;;
*" -u "*) echo 0 > {loaded} ;;
esac
"""


class Machine:
    """A tree with what the driver looks at, and the fake program first in PATH."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, broken: str = "never") -> None:
        self.root = root
        self.calls = root / "calls"
        self.loaded = root / "sys/kernel/kexec_loaded"
        self.loaded.parent.mkdir(parents=True)
        self.loaded.write_text("0\n")
        programs = root / "bin"
        programs.mkdir()
        (programs / "kexec").write_text(FAKE.format(calls=self.calls, loaded=self.loaded, broken=broken))
        (programs / "kexec").chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        reboots = Reboots(BootConfig(), root)
        self.driver = KexecDriver(reboots, root, Log(), threading.Event(), root)

    def write(self, name: str, content: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


KERNEL = KernelFiles(Path("/k/image"), "ab", "root=/dev/vda tidemark.boot=n", Path("/k/initrd"))
WORDS = "-l /k/image --command-line=root=/dev/vda tidemark.boot=n --initrd=/k/initrd"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_kernel_is_loaded_with_its_command_line_and_initramfs(machine: Machine) -> None:
    machine.driver.arm(KERNEL)
    assert machine.called() == [f"-s {WORDS}"]
    machine.driver.disarm()
    machine.driver.disarm()
    assert machine.called()[1:] == ["-u"]


def test_older_call_is_used_where_the_kernel_lacks_the_newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch, broken="-s")
    machine.driver.arm(KERNEL)
    assert machine.called() == [f"-s {WORDS}", f"-c {WORDS}"]


def test_kernel_that_no_call_loads_is_refused_with_what_both_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, monkeypatch, broken="-l")
    with pytest.raises(InfrastructureError, match=r"cannot do that.*with -s.*cannot do that"):
        machine.driver.arm(KERNEL)


def test_program_that_claims_success_is_not_believed(machine: Machine) -> None:
    machine.write("bin/kexec", "#!/bin/sh\nexit 0\n")
    with pytest.raises(InfrastructureError, match="none is loaded"):
        machine.driver.arm(KERNEL)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("proc/sys/kernel/kexec_load_disabled", "1\n", "switched off"),
        ("sys/kernel/security/lockdown", "none [integrity] confidentiality\n", "locked down"),
        ("sys/kernel/security/lockdown", "none integrity [confidentiality]\n", "locked down"),
    ],
)
def test_kernel_that_forbids_kexec_is_named(machine: Machine, name: str, content: str, reason: str) -> None:
    machine.write(name, content)
    with pytest.raises(InfrastructureError, match=reason):
        machine.driver.arm(KERNEL)
    assert machine.called() == []


def test_kernel_without_kexec_is_named(machine: Machine) -> None:
    machine.loaded.unlink()
    with pytest.raises(InfrastructureError, match="no kexec"):
        machine.driver.check()


def test_open_lockdown_is_no_hindrance(machine: Machine) -> None:
    machine.write("sys/kernel/security/lockdown", "[none] integrity confidentiality\n")
    machine.driver.check()


def test_reboot_without_systemd_remounts_and_starts_the_loaded_kernel(machine: Machine) -> None:
    machine.write("proc/sysrq-trigger", "")
    machine.write("proc/self/mounts", "/dev/vda1 / ext4 ro,relatime 0 0\ntmpfs /tmp tmpfs rw 0 0\n")
    machine.driver.reboot()
    assert machine.called() == ["-e"]
    assert (machine.root / "proc/sysrq-trigger").read_text() == "u"


def test_reboot_that_fails_after_the_remount_presses_the_reset_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, monkeypatch, broken="-e")
    machine.write("proc/sysrq-trigger", "")
    with pytest.raises(InfrastructureError):
        machine.driver.reboot()
    assert (machine.root / "proc/sysrq-trigger").read_text() == "b"


def test_systemd_is_asked_where_it_runs(machine: Machine) -> None:
    (machine.root / "run/systemd/system").mkdir(parents=True)
    machine.write("bin/systemctl", f'#!/bin/sh\necho systemctl "$@" >> {machine.calls}\n')
    (machine.root / "bin/systemctl").chmod(0o755)
    machine.driver.reboot()
    machine.driver.leave()
    assert machine.called() == ["systemctl kexec", "systemctl reboot"]


def test_reboot_without_memory_to_write_to_presses_the_reset_key(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write("proc/sysrq-trigger", "")

    def read_only(**_options: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tidemark_agent.boot.driver.tempfile.TemporaryDirectory", read_only)
    with pytest.raises(OSError, match="Read-only"):
        machine.driver.reboot()
    assert (machine.root / "proc/sysrq-trigger").read_text() == "b"


def test_kernels_log_tells_that_it_was_left(machine: Machine) -> None:
    machine.driver.reboot()
    assert not (machine.root / "dev/kmsg").exists()
    machine.write("dev/kmsg", "")
    machine.driver.reboot()
    assert (machine.root / "dev/kmsg").read_text() == f"<3>{LEAVING}\n"
