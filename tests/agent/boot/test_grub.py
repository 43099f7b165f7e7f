"""The grub driver on written directories, with the real grub-editenv."""

import subprocess
import threading
from pathlib import Path

import pytest
from tidemark_agent.boot.driver import KernelFiles, Reboots
from tidemark_agent.boot.loader import GrubDriver
from tidemark_agent.config import BootConfig
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.log import Log

CONFIGURATION = 'if [ "${next_entry}" ] ; then save_env next_entry ; fi\nsource $prefix/custom.cfg\n'


@pytest.fixture
def driver(tmp_path: Path) -> GrubDriver:
    folder = tmp_path / "grub"
    folder.mkdir()
    (folder / "grub.cfg").write_text(CONFIGURATION)
    subprocess.run(["grub-editenv", str(folder / "grubenv"), "create"], check=True)
    return GrubDriver(folder / "grubenv", Reboots(BootConfig(), tmp_path), tmp_path, Log(), threading.Event())


@pytest.fixture
def kernel(tmp_path: Path) -> KernelFiles:
    (tmp_path / "image").write_bytes(b"image")
    (tmp_path / "initrd").write_bytes(b"initrd")
    return KernelFiles(tmp_path / "image", "ab", "root=/dev/vda1 x=$y;z tidemark.boot=n", tmp_path / "initrd")


def environment(driver: GrubDriver) -> str:
    command = ["grub-editenv", str(driver.environment), "list"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_one_boot_is_chosen_and_taken_back(driver: GrubDriver, kernel: KernelFiles) -> None:
    folder = driver.environment.parent
    driver.arm(kernel)
    assert environment(driver) == "next_entry=tidemark\n"
    assert (folder / "tidemark/vmlinuz").read_bytes() == b"image"
    custom = (folder / "custom.cfg").read_text()
    assert "linux ${prefix}/tidemark/vmlinuz 'root=/dev/vda1' 'x=$y;z' 'tidemark.boot=n'\n" in custom
    assert "initrd ${prefix}/tidemark/initramfs\n" in custom
    driver.disarm()
    assert environment(driver) == ""
    assert "tidemark" not in (folder / "custom.cfg").read_text()
    assert not (folder / "tidemark").exists()


def test_entry_is_a_script_that_grub_understands(driver: GrubDriver, kernel: KernelFiles) -> None:
    driver.arm(kernel)
    subprocess.run(["grub-script-check", str(driver.environment.parent / "custom.cfg")], check=True)


def test_operators_own_entries_stay(driver: GrubDriver, kernel: KernelFiles) -> None:
    custom = driver.environment.parent / "custom.cfg"
    theirs = b"menuentry 'rescue \xe9' {\n  linux /rescue\n}\n"
    custom.write_bytes(theirs)
    driver.arm(kernel)
    driver.arm(kernel)
    assert custom.read_bytes().startswith(theirs)
    assert custom.read_text(errors="replace").count("BEGIN tidemark") == 1
    driver.disarm()
    assert custom.read_bytes() == theirs


def test_operators_own_one_shot_choice_is_not_taken_back(driver: GrubDriver) -> None:
    subprocess.run(["grub-editenv", str(driver.environment), "set", "next_entry=rescue"], check=True)
    driver.disarm()
    assert environment(driver) == "next_entry=rescue\n"


@pytest.mark.parametrize("word", ["next_entry", "custom.cfg"])
def test_configuration_that_would_not_obey_is_refused(driver: GrubDriver, kernel: KernelFiles, word: str) -> None:
    (driver.environment.parent / "grub.cfg").write_text(CONFIGURATION.replace(word, "other"))
    with pytest.raises(InfrastructureError, match=word):
        driver.arm(kernel)
    assert environment(driver) == ""


def test_broken_environment_is_refused(driver: GrubDriver) -> None:
    driver.environment.write_bytes(b"garbage")
    with pytest.raises(InfrastructureError, match="grub-editenv"):
        driver.check()


@pytest.mark.parametrize("word", ["a'b", 'a="b"', "a\\b"])
def test_words_that_grub_would_take_apart_are_refused(driver: GrubDriver, kernel: KernelFiles, word: str) -> None:
    hostile = KernelFiles(kernel.image, "ab", f"root=/dev/vda {word}")
    with pytest.raises(InfrastructureError, match="GRUB cannot pass"):
        driver.arm(hostile)
    assert environment(driver) == ""
