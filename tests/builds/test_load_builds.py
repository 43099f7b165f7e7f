from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from server.builds.entries import SHIPPED, load_builds
from server.builds.models import ConfigFragment, KernelConfig, Toolchain, read_lines
from server.builds.wanted import contradictions, effective_text, recipe_of
from server.core.errors import DomainError

pytestmark = pytest.mark.django_db

SITE = """
[[fragment]]
name = "lab"
lines = "CONFIG_A=y"

[[config]]
name = "full"
arch = "x86_64"
base = "defconfig"
fragments = ["lab"]
fragment = "CONFIG_B=y"
perf = true

[[toolchain]]
name = "gcc"
compiler = "gcc"
cross = { arm64 = "aarch64-linux-gnu-" }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "builds.toml"
    path.write_text(SITE)
    return path


def test_shipped_configurations_load_and_make_sense() -> None:
    loaded = load_builds()
    assert len(loaded.created) == 10
    assert loaded.remarks == [], "no shipped fragment contradicts another"
    for config in KernelConfig.objects.all():
        lines = read_lines(effective_text(config))
        assert lines["CONFIG_LOCALVERSION_AUTO"] == "n"
        assert lines["CONFIG_IKCONFIG"] == lines["CONFIG_KEXEC_FILE"] == lines["CONFIG_PSTORE_RAM"] == "y"
        assert contradictions(config) == []
    assert set(Toolchain.objects.values_list("name", "family")) == {("gcc", "gcc"), ("clang", "clang")}


def test_layout_variant_differs_in_nothing_but_the_layout() -> None:
    load_builds()
    variants = KernelConfig.objects.exclude(layout_of=None)
    assert {row.arch for row in variants} == {"x86_64", "arm64"}
    for row in variants:
        assert row.layout_of is not None
        own, plain = (set(read_lines(effective_text(config)).items()) for config in (row, row.layout_of))
        assert own - plain == {("CONFIG_DEBUG_FORCE_FUNCTION_ALIGN_64B", "y")}
        assert plain - own == set()


def test_loading_again_keeps_what_an_operator_changed_unless_told_to_replace() -> None:
    load_builds()
    ConfigFragment.objects.filter(name="lab").update(lines="CONFIG_MINE=y\n")
    again = load_builds()
    assert (again.created, again.updated, len(again.kept)) == ([], [], 10)
    assert ConfigFragment.objects.get(name="lab").lines == "CONFIG_MINE=y\n"
    assert load_builds(replace=True).updated == ["fragment lab"]
    assert "CONFIG_MINE" not in ConfigFragment.objects.get(name="lab").lines


def test_site_s_own_entries_are_loaded(file: Path) -> None:
    assert load_builds(file).created == ["fragment lab", "config full", "toolchain gcc"]
    config, toolchain = KernelConfig.objects.get(), Toolchain.objects.get()
    assert (effective_text(config), config.perf) == ("CONFIG_A=y\nCONFIG_B=y\n", True)
    assert toolchain.cross == {"arm64": "aarch64-linux-gnu-"}
    assert len(recipe_of(config, toolchain)) == 64


def test_symbol_that_two_parts_set_differently_is_told(file: Path) -> None:
    file.write_text(SITE.replace('fragment = "CONFIG_B=y"', 'fragment = "# CONFIG_A is not set"'))
    told = "config full: CONFIG_A: fragment lab sets it to y, configuration full sets it to n, which counts"
    assert load_builds(file).remarks == [told]
    out = StringIO()
    call_command("load_builds", str(file), "--replace", stdout=out)
    assert "kept as it is: fragment lab, config full, toolchain gcc" in out.getvalue()


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ('fragments = ["labb"]', 'fragments = ["lab"]', r"\[\[config\]\] number 1 \(full\): .*no fragment labb"),
        ('fragments = ["lab", "lab"]', 'fragments = ["lab"]', "fragments: names a fragment twice"),
        ('fragments = "lab"', 'fragments = ["lab"]', "fragments: 'lab' is not a list"),
        ('lines = "CONFIG_A=y"\narch = "arm64"', 'lines = "CONFIG_A=y"', "fragment lab is for arm64, not for x86_64"),
        ('lines = "A=y"', 'lines = "CONFIG_A=y"', r"\[\[fragment\]\] number 1 \(lab\): lines: line 1 is no CONFIG_"),
        ("", 'lines = "CONFIG_A=y"', "lines: is missing"),
        ('lines_file = "gone.config"', 'lines = "CONFIG_A=y"', "lines_file: .*gone.config"),
        ('arch = "sparc"', 'arch = "x86_64"', "arch: 'sparc' is not one of x86_64, arm64"),
        ('base = "defconfig O=/tmp"', 'base = "defconfig"', "base: .* is no name of a program or make target"),
        ('compiler = "gcc; rm"', 'compiler = "gcc"', "compiler: .* is no name"),
        ('compiler = "gcc"\nfamily = "icc"', 'compiler = "gcc"', "family: 'icc' is not one of gcc, clang"),
        ('cross = { arm64 = "sh -c " }', 'cross = { arm64 = "aarch64-linux-gnu-" }', "cross: 'sh -c ' is no prefix"),
        ('layout_of = "none"\nperf = true', "perf = true", "layout_of: there is no configuration none"),
        ('perf = "yes"', "perf = true", "perf: 'yes' is not true or false"),
        ("fragmnets = []\nperf = true", "perf = true", "unknown key fragmnets"),
        ("[[fragmant]]", "[[fragment]]", "unknown section fragmant"),
        ('name = "a b"\nlines', 'name = "lab"\nlines', "name: "),
        ("[[fragment", "[[fragment]]", "builds.toml"),
    ],
)
def test_mistake_is_named_with_file_and_entry_and_nothing_is_changed(
    file: Path, wrong: str, right: str, message: str
) -> None:
    assert right in SITE
    file.write_text(SITE.replace(right, wrong, 1))
    with pytest.raises(DomainError, match=message) as raised:
        load_builds(file)
    assert str(file) in raised.value.message
    assert not ConfigFragment.objects.exists()
    assert not KernelConfig.objects.exists()


def test_command_without_a_file_loads_what_is_shipped() -> None:
    out = StringIO()
    call_command("load_builds", stdout=out)
    assert out.getvalue().startswith("created: fragment lab, fragment lab-x86-64")
    with pytest.raises(CommandError, match="no-such"):
        call_command("load_builds", str(SHIPPED.parent / "no-such.toml"))
