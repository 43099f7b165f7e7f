"""Compilers of both families, for this architecture and for another; words that are none are refused."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.build.maker import Toolchain, toolchain_of
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.wire.assignment import BuildJob, read_assignment

from tests.agent.small_tree import MAKEFILE, small_build
from tests.agent.test_run import build_assignment

CROSS = "aarch64-linux-gnu-"
_AARCH64 = 183
_X86_64 = 62


def job_with(**fields: Any) -> BuildJob:
    job = read_assignment(build_assignment("build-1-1", Path("/tree"), "1" * 40, **fields)).job
    assert isinstance(job, BuildJob)
    return job


def words(toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("tidemark_agent.build.maker.shutil.which", lambda _: None)
    return toolchain.make_words()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"compiler": "gcc"}, ["ARCH=x86_64", "CC=gcc"]),
        ({"compiler": "gcc-12"}, ["ARCH=x86_64", "CC=gcc-12"]),
        (
            {"compiler": "gcc", "arch": "arm64", "cross_compile": CROSS},
            ["ARCH=arm64", f"CC={CROSS}gcc", f"CROSS_COMPILE={CROSS}"],
        ),
        (
            {"compiler": f"{CROSS}gcc-12", "arch": "arm64", "cross_compile": CROSS},
            ["ARCH=arm64", f"CC={CROSS}gcc-12", f"CROSS_COMPILE={CROSS}"],
        ),
        ({"compiler": "clang", "family": "clang"}, ["ARCH=x86_64", "CC=clang", "LLVM=1"]),
        ({"compiler": "clang-16", "family": "clang"}, ["ARCH=x86_64", "CC=clang-16", "LLVM=-16"]),
        (
            {"compiler": "clang", "family": "clang", "arch": "arm64", "cross_compile": CROSS},
            ["ARCH=arm64", "CC=clang", "LLVM=1", f"CROSS_COMPILE={CROSS}"],
        ),
    ],
)
def test_make_is_told_the_whole_toolchain(
    fields: dict[str, Any], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert words(toolchain_of(job_with(**fields)), monkeypatch) == expected


def test_linker_of_the_same_version_is_looked_for_too() -> None:
    assert toolchain_of(job_with(compiler="clang-16", family="clang")).programs == ("clang-16", "ld.lld-16")
    cross = toolchain_of(job_with(compiler="gcc", arch="arm64", cross_compile=CROSS))
    assert cross.programs == (f"{CROSS}gcc", f"{CROSS}ld")


@pytest.mark.parametrize("compiler", ["gcc", "clang-16-wrapper", "clang-", "my-clang"])
def test_compiler_that_is_no_clang_is_not_called_one(compiler: str) -> None:
    with pytest.raises(InfrastructureError, match="no clang"):
        toolchain_of(job_with(compiler=compiler, family="clang"))


@pytest.mark.parametrize(
    "fields",
    [
        {"family": "tcc"},
        {"compiler": "gcc -wrapper,sh"},
        {"compiler": "../gcc"},
        {"compiler": "/usr/bin/gcc"},
        {"cross_compile": "aarch64-linux-gnu"},
        {"cross_compile": "$(shell id)-"},
        {"cross_compile": "../x-"},
        {"cross_compile": "a- b-"},
        {"arch": "arm64 CC=sh"},
        {"limits": {"memory_mb": 0}},
        {"limits": {"log_mb": "much"}},
    ],
)
def test_hostile_words_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InfrastructureError, match="cannot be understood"):
        job_with(**fields)


def test_limits_that_are_named_hold_and_others_keep_their_defaults() -> None:
    limits = job_with(limits={"memory_mb": 512, "log_mb": None, "of_tomorrow": 7}).limits
    assert (limits.memory_mb, limits.log_mb) == (512, 64)


def machine_of(image: Path) -> int:
    return int.from_bytes(image.read_bytes()[18:20], "little")


@pytest.mark.parametrize(
    ("fields", "machine", "program"),
    [
        ({"compiler": "gcc"}, _X86_64, "gcc"),
        ({"compiler": "gcc", "arch": "arm64", "cross_compile": CROSS}, _AARCH64, f"{CROSS}gcc"),
        ({"compiler": "clang", "family": "clang"}, _X86_64, "clang"),
    ],
)
def test_version_is_that_of_the_program_that_compiled(
    tmp_path: Path, fields: dict[str, Any], machine: int, program: str
) -> None:
    outcome = small_build(tmp_path, **fields)
    assert (outcome.outcome, outcome.reason) == ("built", "")
    assert machine_of(outcome.files["image"]) == machine
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert outcome.compiler_version == said.splitlines()[0]
    assert (len(outcome.build_id), len(outcome.text_hash), len(outcome.kernel_hash)) == (40, 64, 64)


def test_tree_that_takes_another_compiler_is_found_out(tmp_path: Path) -> None:
    hostile = MAKEFILE.replace("$$($(CC) --version | head -n 1)", "othercc 1.0")
    outcome = small_build(tmp_path, {"Makefile": hostile})
    assert outcome.outcome == "failed"
    assert outcome.reason.startswith("the tree compiles with othercc 1.0, not with gcc")


def test_compiler_that_a_builder_does_not_have_is_its_own_trouble(tmp_path: Path) -> None:
    outcome = small_build(tmp_path, compiler="gcc", arch="arm64", cross_compile="alpha-linux-gnu-")
    assert outcome.outcome == "infrastructure"
    assert "alpha-linux-gnu-gcc" in outcome.reason
