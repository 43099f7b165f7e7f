"""The machine as a session sees it."""

import hashlib
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.boot.driver import CurrentDriver
from tidemark_agent.boot.loader import GrubDriver, KexecDriver
from tidemark_agent.config import AgentConfig, BootConfig
from tidemark_agent.errors import InfrastructureError, StoppedError
from tidemark_agent.lab import machine as module
from tidemark_agent.lab.journal import Journal, Progress
from tidemark_agent.lab.machine import KernelStore, LabMachine
from tidemark_agent.log import Log
from tidemark_agent.prepare import Preparation, PrepareConfig
from tidemark_agent.wire.assignment import Assignment, PlannedBoot, SessionJob, read_assignment

from tests.agent.lab.test_kernels import Artifacts
from tests.agent.lab.world import Silent, session_document

IMAGE = b"image"


def lab_machine(folder: Path, stop: threading.Event | None = None, **boot: Any) -> LabMachine:
    root, stop, log = folder / "root", stop or threading.Event(), Log(Silent())
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("b\n")
    (root / "proc/cmdline").write_text("BOOT_IMAGE=/vmlinuz root=/dev/vda1 tidemark.boot=old\n")
    config = AgentConfig("http://127.0.0.1:9", folder / "token", folder / "state", boot=BootConfig(**boot))
    return LabMachine(
        config=config,
        journal=Journal(folder / "lab"),
        preparation=Preparation(PrepareConfig(), journal=folder / "settings", log=log, stop=stop, root=root),
        kernels=KernelStore(config.state_dir, config.boot, Artifacts(IMAGE), stop, root),
        log=log,
        stop=stop,
        tell=lambda _text: None,
        root=root,
    )


def job(driver: str = "kexec", perf: str | None = None, **options: Any) -> SessionJob:
    document = session_document(boots=1, driver=driver)
    document["session"]["options"] = options
    document["session"]["perf"] = perf
    for kernel in document["session"]["kernels"].values():
        kernel["image"] = hashlib.sha256(IMAGE).hexdigest()
    read = read_assignment(document).job
    assert isinstance(read, SessionJob)
    return read


def test_each_driver_is_found_by_its_name(tmp_path: Path) -> None:
    machine = lab_machine(tmp_path)
    for name, kind in (("kexec", KexecDriver), ("grub", GrubDriver), ("current", CurrentDriver)):
        assert isinstance(machine.driver(job(name)), kind)
    with pytest.raises(InfrastructureError, match="qemu does not work inside"):
        machine.driver(job("qemu"))


def test_kernel_gets_the_running_command_line_and_the_machines_words(tmp_path: Path) -> None:
    files = lab_machine(tmp_path).kernel_files(job(command_line="hugepages=8"), PlannedBoot(0, "base"), "new")
    assert files.command_line == "root=/dev/vda1 panic=10 oops=panic hugepages=8 tidemark.boot=new"
    assert (files.image.read_bytes(), files.build_id, files.initramfs) == (IMAGE, "ba5e", None)


def test_operators_command_line_takes_the_place_of_the_running_one(tmp_path: Path) -> None:
    machine = lab_machine(tmp_path, command_line="root=/dev/sda2 ro", words="panic=5")
    files = machine.kernel_files(job(), PlannedBoot(0, "base"), "new")
    assert files.command_line == "root=/dev/sda2 ro panic=5 tidemark.boot=new"


@pytest.mark.parametrize("option", [["a"], 3, "a\nb"])
def test_option_that_is_no_command_line_is_refused(tmp_path: Path, option: object) -> None:
    with pytest.raises(InfrastructureError, match="command"):
        lab_machine(tmp_path).kernel_files(job(command_line=option), PlannedBoot(0, "base"), "new")


def test_reboot_is_waited_for_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REBOOT_SECONDS", 0.01)
    stop = threading.Event()
    machine = lab_machine(tmp_path, stop)
    machine.wait_for_end()
    stop.set()
    with pytest.raises(StoppedError):
        machine.wait_for_end()


def test_kernel_started_from_a_test_kernel_gets_no_word_twice(tmp_path: Path) -> None:
    machine = lab_machine(tmp_path, words="panic=10 mitigations=off")
    machine.journal.append(
        "begun", key="k", agent="a", build_id="5afe", boot_id="b", command_line="root=/dev/vda1 quiet"
    )
    (tmp_path / "root/proc/cmdline").write_text(
        "root=/dev/vda1 quiet panic=10 mitigations=off hugepages=8 tidemark.boot=old\n"
    )
    files = machine.kernel_files(job(command_line="hugepages=8"), PlannedBoot(0, "base"), "new")
    assert files.command_line == "root=/dev/vda1 quiet panic=10 mitigations=off hugepages=8 tidemark.boot=new"


def test_perf_of_the_base_kernel_serves_where_the_operator_named_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[dict[str, Path]] = []

    class Measure:
        def __init__(self, *, config: AgentConfig, **_others: Any) -> None:
            taken.append(dict(config.programs))

        def measure(self, *_arguments: Any) -> dict[str, Any]:
            return {}

    monkeypatch.setattr(module, "Measuring", Measure)
    wanted = job(perf=hashlib.sha256(IMAGE).hexdigest())
    progress = Progress(assignment=Assignment("session-1-1", "t", 60.0, wanted))
    machine = lab_machine(tmp_path)
    configured = replace(machine, config=replace(machine.config, programs={"perf": Path("/opt/perf")}))
    boot = PlannedBoot(0, "base")
    for one in (machine, configured):
        one.kernel_files(wanted, boot, "nonce")
        one.measure(progress, boot, machine.running())
    path = taken[0]["perf"]
    assert (path.name, path.read_bytes(), os.access(path, os.X_OK)) == ("perf", IMAGE, True)
    assert taken[1] == {"perf": Path("/opt/perf")}
    path.write_bytes(b"torn by a power cut")
    machine.measure(progress, boot, machine.running())
    assert taken[2] == {}
    machine.tidy()
    assert not path.exists()
