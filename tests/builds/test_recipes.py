import hashlib

import pytest

from server.builds.models import BuildState, ConfigFragment, Toolchain
from server.builds.wanted import cancel_edited, effective_text, recipe_of, want_build
from server.core.errors import DomainError
from tests.builders import build_build, build_config, build_revision, build_toolchain

pytestmark = pytest.mark.django_db


def fragment(name: str, lines: str, arch: str = "") -> ConfigFragment:
    return ConfigFragment.objects.create(name=name, lines=lines, arch=arch)


def test_fragments_are_merged_in_their_order_and_own_lines_last() -> None:
    fragment("one", "CONFIG_A=y\nCONFIG_B=y\n")
    fragment("two", "CONFIG_B=m\nCONFIG_C=y\n")
    config = build_config("full", fragments=["one", "two"], fragment="# CONFIG_C is not set\n")
    assert effective_text(config) == "CONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\n"


def test_recipe_of_a_plain_configuration_is_what_it_always_was() -> None:
    config, toolchain = build_config(), build_toolchain()
    before = hashlib.sha256(b"allnoconfig\0CONFIG_64BIT=y\n\0gcc").hexdigest()
    assert recipe_of(config, toolchain) == before


def test_whatever_decides_the_kernel_changes_the_recipe() -> None:
    shared = fragment("one", "CONFIG_A=y\n")
    config, toolchain = build_config("full", fragments=["one"], arch="arm64"), build_toolchain()
    seen = [recipe_of(config, toolchain)]
    for row, field, value in (
        (shared, "lines", "CONFIG_A=m\n"),
        (config, "perf", True),
        (config, "base", "defconfig"),
        (config, "fragment", "CONFIG_B=y\n"),
        (toolchain, "family", Toolchain.Family.CLANG),
        (toolchain, "cross", {"arm64": "aarch64-linux-gnu-"}),
        (toolchain, "compiler", "gcc-14"),
    ):
        setattr(row, field, value)
        row.save()
        seen.append(recipe_of(config, toolchain))
    assert len(set(seen)) == 8
    toolchain.cross["riscv"] = "riscv64-linux-gnu-"
    assert recipe_of(config, toolchain) == seen[-1], "another architecture's prefix is nothing to this one"


@pytest.mark.parametrize(
    ("arch", "lines", "names", "message"),
    [
        ("", "CONFIG_A=y", ["gone"], "full: there is no fragment gone"),
        ("arm64", "CONFIG_A=y", ["one"], "fragment one is for arm64, not for x86_64"),
        ("", "nonsense", ["one"], "line 1 is no CONFIG_ line"),
    ],
)
def test_configuration_that_makes_no_sense_is_refused(arch: str, lines: str, names: list[str], message: str) -> None:
    fragment("one", lines, arch)
    config = build_config("full", fragments=names)
    with pytest.raises(DomainError, match=message) as raised:
        want_build(revision=build_revision(), config=config, toolchain=build_toolchain(), trace="t")
    assert raised.value.code == "bad-config"


def test_waiting_build_of_an_edited_fragment_is_canceled_and_the_new_one_is_another() -> None:
    shared = fragment("one", "CONFIG_A=y\n")
    config, revision = build_config("full", fragments=["one"]), build_revision()
    waits = want_build(revision=revision, config=config, toolchain=build_toolchain(), trace="t")
    built = build_build(config=config)
    assert cancel_edited() == 0
    shared.lines = "CONFIG_A=m\n"
    shared.save()
    assert cancel_edited() == 1
    for build in (waits, built):
        build.refresh_from_db()
    assert (waits.state, built.state) == (BuildState.CANCELED, BuildState.BUILT)
    assert want_build(revision=revision, config=config, toolchain=build_toolchain(), trace="t") != waits
