"""The configuration of a build: nothing of the checkout or the host gets into the release, what is lost is named."""

from pathlib import Path

from tidemark_agent.build.modules import random_parts

from tests.agent.small_tree import MAKEFILE, small_build

DEFCONFIG = MAKEFILE.replace("@echo '# CONFIG_NET is not set' >", "@cat $(CURDIR)/arch/x86/configs/small_defconfig >")


def test_configuration_is_that_of_the_tree_whatever_was_built_before(tmp_path: Path) -> None:
    """No file of the tree is known to decide nothing: here, a defconfig."""
    for hertz in (250, 1000, 1000, 250):
        files = {"Makefile": DEFCONFIG, "arch/x86/configs/small_defconfig": f"CONFIG_HZ={hertz}\n"}
        outcome = small_build(tmp_path, files)
        assert f"CONFIG_HZ={hertz}\n" in outcome.files["config"].read_text()


def test_configuration_that_came_out_the_same_gives_make_nothing_to_do(tmp_path: Path) -> None:
    times = []
    for number, hertz in enumerate((250, 250, 1000)):
        decides = {"Makefile": DEFCONFIG, "arch/x86/configs/small_defconfig": f"CONFIG_HZ={hertz}\n"}
        assert small_build(tmp_path, {**decides, "README": f"{number}\n"}).outcome == "built"
        (config,) = tmp_path.glob("work/*/*/obj/.config")
        times.append(config.stat().st_mtime_ns)
    assert times[0] == times[1] < times[2]


def test_release_never_depends_on_the_checkout(tmp_path: Path) -> None:
    outcome = small_build(tmp_path, fragment="CONFIG_SMP=y\nCONFIG_LOCALVERSION_AUTO=y\n")
    assert outcome.outcome == "built"
    assert "# CONFIG_LOCALVERSION_AUTO is not set" in outcome.files["config"].read_text()
    assert "LOCALVERSION= " in outcome.files["log"].read_text()


def test_symbol_that_no_kconfig_file_has_is_told_from_one_that_was_dropped(tmp_path: Path) -> None:
    files = {"mm/Kconfig": "config DROPPED_BY_NEED\n\tbool\n\nmenuconfig   DROPPED_MENU\n\tbool\n"}
    fragment = "CONFIG_DROPPED_BY_NEED=y\nCONFIG_DROPPED_MENU=y\nCONFIG_DROPPED_LONG_AGO=y\n"
    outcome = small_build(tmp_path, files, fragment=fragment)
    assert outcome.outcome == "failed"
    assert outcome.reason == (
        "config symbols not kept: CONFIG_DROPPED_BY_NEED=y (has n), CONFIG_DROPPED_MENU=y (has n), "
        "CONFIG_DROPPED_LONG_AGO=y (has n), a symbol that this tree does not have"
    )
    assert outcome.first_error == outcome.reason


def test_what_makes_every_build_another_one_is_in_the_log(tmp_path: Path) -> None:
    config = 'CONFIG_MODULE_SIG_KEY="certs/signing_key.pem"\nCONFIG_RANDSTRUCT=y\n'
    assert random_parts(config) == ["CONFIG_RANDSTRUCT", "CONFIG_MODULE_SIG_KEY"]
    assert random_parts('CONFIG_MODULE_SIG_KEY="/keys/ours.pem"\n') == []
    outcome = small_build(tmp_path, fragment=config)
    assert "no two builds of this kernel are the same" in outcome.files["log"].read_text()
