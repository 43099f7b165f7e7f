"""Kernels on the machine's disk."""

import hashlib
import os
import threading
from pathlib import Path

import pytest
from tidemark_agent.config import BootConfig
from tidemark_agent.errors import InfrastructureError, UnreachableError
from tidemark_agent.lab.machine import KernelStore, release_of_image
from tidemark_agent.wire.assignment import KernelImage

from tests.agent.boot.test_install import GOOD, RELEASE, archive


class Artifacts:
    """A server that counts what is asked of it."""

    def __init__(self, *contents: bytes) -> None:
        self.held = {hashlib.sha256(content).hexdigest(): content for content in contents}
        self.asked: list[str] = []

    def fetch_artifact(self, sha256: str, target: Path, *, patience: float) -> None:
        self.asked.append(sha256)
        if sha256 not in self.held:
            raise UnreachableError(f"nothing within {patience} s")
        target.write_bytes(self.held[sha256])


def store(folder: Path, artifacts: Artifacts, *initramfs: str) -> KernelStore:
    config = BootConfig(initramfs=initramfs)
    return KernelStore(folder / "state", config, artifacts, threading.Event(), folder / "root")


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def bz_image(release: bytes) -> bytes:
    header = bytearray(0x1000)
    header[0x202:0x206] = b"HdrS"
    header[0x20E:0x210] = (0x300).to_bytes(2, "little")
    header[0x500 : 0x500 + len(release)] = release
    return bytes(header)


def test_kernel_is_fetched_once_and_hashed_each_time(tmp_path: Path) -> None:
    artifacts = Artifacts(b"image")
    kernels = store(tmp_path, artifacts)
    kernel = KernelImage(sha(b"image"), "ab")
    kernels.fetch([kernel])
    path = kernels.image(kernel)
    assert (path.read_bytes(), artifacts.asked) == (b"image", [kernel.image])
    path.write_bytes(b"torn by a power cut")
    assert kernels.image(kernel).read_bytes() == b"image"


def test_kernel_that_the_server_does_not_give_is_infrastructure(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="does not give"):
        store(tmp_path, Artifacts()).image(KernelImage("0" * 64, "ab"))


def test_modules_are_where_the_kernel_and_the_cases_look(tmp_path: Path) -> None:
    modules = archive(tmp_path / "a", GOOD).read_bytes()
    kernels = store(tmp_path, Artifacts(b"image", modules))
    kernel = KernelImage(sha(b"image"), "ab", sha(modules))
    assert kernels.prepare(kernel) is None
    assert (tmp_path / "root/lib/modules" / RELEASE / "kernel/fs/ext4.ko").is_file()
    place = kernels.benchmark_modules(kernel)
    assert place is not None
    assert [file.name for file in place.iterdir()] == ["folio-copy-0123.ko"]
    kernels.tidy()
    assert list((tmp_path / "root/lib/modules").iterdir()) == []


def test_kernel_without_modules_has_none_for_the_cases(tmp_path: Path) -> None:
    assert store(tmp_path, Artifacts()).benchmark_modules(KernelImage("0" * 64, "ab")) is None


def test_initramfs_is_made_for_the_release_once(tmp_path: Path) -> None:
    image = bz_image(b"7.3.4-x (builder) #1")
    command = ("sh", "-c", "echo made >> $2; echo $1 > $0", "{initramfs}", "{release}", str(tmp_path / "calls"))
    kernels = store(tmp_path, Artifacts(image), *command)
    (tmp_path / "state").mkdir()
    kernel = KernelImage(sha(image), "ab")
    made = kernels.prepare(kernel)
    assert made is not None
    assert made.read_text() == "7.3.4-x\n"
    assert kernels.prepare(kernel) == made
    assert (tmp_path / "calls").read_text() == "made\n"


def test_command_that_makes_no_initramfs_is_infrastructure(tmp_path: Path) -> None:
    image = bz_image(b"7.3.4-x ")
    kernels = store(tmp_path, Artifacts(image), "true")
    (tmp_path / "state").mkdir()
    with pytest.raises(InfrastructureError, match="made no"):
        kernels.prepare(KernelImage(sha(image), "ab"))


@pytest.mark.parametrize("content", [b"", b"MZ arm64 image", bz_image(b"\0\0"), bz_image(b"/../x")])
def test_image_that_does_not_tell_its_release_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "image").write_bytes(content)
    with pytest.raises(InfrastructureError, match="release is not known"):
        release_of_image(tmp_path / "image")


def test_clock_that_was_set_back_does_not_throw_out_what_was_just_fetched(tmp_path: Path) -> None:
    for number in range(12):
        store(tmp_path, Artifacts(b"%d" % number)).fetch([KernelImage(sha(b"%d" % number), "ab")])
    place = tmp_path / "state/lab/kernels"
    assert len(list(place.iterdir())) == 8
    for path in place.iterdir():
        os.utime(path, (4e9, 4e9))
    base, patched = KernelImage(sha(b"base"), "ab"), KernelImage(sha(b"patched"), "cd")
    kernels = store(tmp_path, Artifacts(b"base", b"patched"))
    kernels.fetch([base, patched])
    assert [(place / kernel.image).is_file() for kernel in (base, patched)] == [True, True]
