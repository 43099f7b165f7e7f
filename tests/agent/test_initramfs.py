"""The small system that measured kernels start."""

import gzip
import shutil
import struct
import subprocess
import threading
from pathlib import Path

import pytest
from tidemark_agent.benchmarks.bundle import static_program
from tidemark_agent.boot.qemu import (
    INIT_SOURCE,
    Entry,
    build_initramfs,
    character_device,
    directory,
    program,
    write_archive,
)
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.wire.assignment import PlannedCase

_INTERPRETER = 3
CASES = [PlannedCase("mm-basic", "v", "copy", runs=6, warmup=1, timeout_seconds=60, metrics=("time",))]


def members(archive: bytes) -> list[tuple[str, int, bytes]]:
    """Name, mode and content of each member of a newc archive, read independently of the writer."""
    found: list[tuple[str, int, bytes]] = []
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701"
        numbers = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        name_at, size = at + 110, numbers[6]
        name = archive[name_at : name_at + numbers[11] - 1].decode()
        content_at = (name_at + numbers[11] + 3) & ~3
        if name == "TRAILER!!!":
            return found
        found.append((name, numbers[1], archive[content_at : content_at + size]))
        at = (content_at + size + 3) & ~3


def test_archive_holds_what_was_put_in() -> None:
    archive = write_archive([directory("bin"), program("bin/a", b"12345"), character_device("dev", 5, 1)])
    assert members(archive) == [
        ("bin", 0o40755, b""),
        ("bin/a", 0o100755, b"12345"),
        ("dev", 0o20600, b""),
    ]
    assert len(archive) % 512 == 0


@pytest.mark.skipif(shutil.which("cpio") is None, reason="the cpio program is the judge here")
def test_cpio_program_reads_the_archive(tmp_path: Path) -> None:
    archive = write_archive([directory("d"), program("d/odd", b"x" * 7), Entry("d/plain", 0o100644, b"text\n")])
    (tmp_path / "out").mkdir()
    subprocess.run(["cpio", "-i", "--quiet"], input=archive, cwd=tmp_path / "out", check=True)
    assert (tmp_path / "out/d/odd").read_bytes() == b"x" * 7
    assert (tmp_path / "out/d/plain").read_text() == "text\n"


def test_same_input_makes_the_same_bytes() -> None:
    programs = {"mm-basic": b"\x7fELF"}
    assert build_initramfs(CASES, programs, init=b"i") == build_initramfs(CASES, programs, init=b"i")


def test_init_is_told_every_case_with_its_limits() -> None:
    archive = build_initramfs(CASES, {"mm-basic": b"p"}, init=b"the first program")
    found = {name: content for name, _, content in members(gzip.decompress(archive))}
    assert found["cases"] == b"60 /benchmarks/mm-basic copy 6\n"
    assert found["benchmarks/mm-basic"] == b"p"
    assert found["init"] == b"the first program"


@pytest.mark.parametrize(("arch", "machine"), [("x86_64", 62), ("arm64", 183)])
def test_init_needs_no_library_whatever_the_architecture(tmp_path: Path, arch: str, machine: int) -> None:
    program = static_program(INIT_SOURCE, arch=arch, cache=tmp_path, stop=threading.Event())
    assert struct.unpack_from("<H", program, 18)[0] == machine
    at, size, count = (
        struct.unpack_from(code, program, place)[0] for code, place in (("<Q", 32), ("<H", 54), ("<H", 56))
    )
    kinds = [struct.unpack_from("<I", program, at + number * size)[0] for number in range(count)]
    assert _INTERPRETER not in kinds
    assert static_program(INIT_SOURCE, arch=arch, cache=tmp_path, stop=threading.Event()) == program
    assert len(list(tmp_path.iterdir())) == 1


def test_program_for_an_unknown_architecture_is_our_trouble(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="does not compile for riscv64"):
        static_program(INIT_SOURCE, arch="riscv64", cache=tmp_path, stop=threading.Event())
