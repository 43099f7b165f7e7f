"""The archive of modules: what is in it, what is left out, and that a stranger's build cannot misuse its making."""

import io
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tidemark_agent.benchmarks.bundle import benchmark_names, find_benchmark
from tidemark_agent.boot.install import unpack_modules
from tidemark_agent.build.kernel import BuildOutcome, KernelBuilder
from tidemark_agent.build.modules import has_modules, kbuild, module_file
from tidemark_agent.log import Log
from tidemark_agent.wire.assignment import BuildJob, read_assignment

from tests.agent import test_run

BENCHMARKS = [found for found in map(find_benchmark, benchmark_names()) if found.program.kind == "module"]
# What the builder asks of a kernel that has modules. With M= the benchmark in that folder is made: here it becomes its
# own make file, so that the test sees what was asked for.
MODULES = """\
modules:
\t@if [ -n "$(M)" ]; then $(MAKE) -s -f $(CURDIR)/Makefile benchmark M=$(M); else true; fi
benchmark:
\t@name=$$(sed -n 's/obj-m := \\(.*\\).o/\\1/p' $(M)/Kbuild); test -f $(M)/$$name.c && cp $(M)/Kbuild $(M)/$$name.ko
modules_install:
\t@mkdir -p $(INSTALL_MOD_PATH)/lib/modules/1.0/kernel
\t@echo driver > $(INSTALL_MOD_PATH)/lib/modules/1.0/kernel/a.ko
\t@ln -s $(O) $(INSTALL_MOD_PATH)/lib/modules/1.0/build
"""
SYMBOLS = "\t@printf '0x0\\tfolio_copy\\tvmlinux\\tEXPORT_SYMBOL\\t\\n' > $(O)/Module.symvers\n"


@contextmanager
def built(tmp_path: Path, rules: str = MODULES, *, fragment: str = "CONFIG_MODULES=y\n") -> Iterator[BuildOutcome]:
    """The outcome of building a small tree whose Makefile has `rules` as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_run, "MAKEFILE", test_run.MAKEFILE + SYMBOLS + rules)
        commit = test_run.make_tree(tmp_path / "tree")
    job = read_assignment(test_run.build_assignment("build-1-1", tmp_path / "tree", commit, fragment=fragment)).job
    assert isinstance(job, BuildJob)
    builder = KernelBuilder(
        job=job,
        work=tmp_path / "work",
        ccache=tmp_path / "ccache",
        log=Log(io.StringIO()),
        stop=threading.Event(),
        progress=lambda _: None,
    )
    with builder.built() as outcome:
        yield outcome


def test_archive_holds_the_kernels_modules_and_those_of_all_benchmarks(tmp_path: Path) -> None:
    with built(tmp_path) as outcome:
        assert (outcome.outcome, outcome.reason) == ("built", "")
        with tarfile.open(outcome.files["modules"]) as tar:
            names = tar.getnames()
            assert unpack_modules(outcome.files["modules"], tmp_path / "unpacked") == "1.0"
            assert all((member.mtime, member.uid, member.gid, member.isfile()) == (0, 0, 0, True) for member in tar)
    assert names == ["lib/modules/1.0/kernel/a.ko", *sorted(f"tidemark/{module_file(one)}" for one in BENCHMARKS)]
    assert {benchmark.name for benchmark in BENCHMARKS} == {"folio-copy", "clear-page", "copy-page"}


def test_same_kernel_gives_the_same_archive(tmp_path: Path) -> None:
    archives = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        with built(folder) as outcome:
            archives.append(outcome.files["modules"].read_bytes())
    assert archives[0] == archives[1]


def test_kernel_without_modules_is_not_asked_for_them(tmp_path: Path) -> None:
    refusing = "modules modules_install:\n\t@echo 'nothing of that kind'; exit 1\n"
    with built(tmp_path, refusing, fragment="CONFIG_SMP=y\n") as outcome:
        assert outcome.outcome == "built"
        assert "modules" not in outcome.files


def test_benchmark_that_does_not_compile_is_named_and_left_out(tmp_path: Path) -> None:
    picky = MODULES.replace(
        "benchmark:\n", "benchmark:\n\t@case $(M) in *clear-page) echo 'x.c:1:2: error: no'; exit 1;; esac\n"
    )
    with built(tmp_path, picky) as outcome:
        assert outcome.outcome == "built"
        with tarfile.open(outcome.files["modules"]) as tar:
            assert not [name for name in tar.getnames() if "clear_page" in name]
        assert "benchmark clear-page is left out, it does not compile: x.c:1:2: error: no" in outcome.log_tail


def test_kernel_whose_own_modules_do_not_compile_does_not_build(tmp_path: Path) -> None:
    broken = MODULES.replace("else true;", "else echo 'net/a.c:3:1: error: broken'; exit 1;")
    with built(tmp_path, broken) as outcome:
        assert (outcome.outcome, outcome.reason) == ("failed", "net/a.c:3:1: error: broken")


def test_links_that_a_build_leaves_lead_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "token").write_text("secret")
    hostile = MODULES + f"\t@ln -s {secret}/token $(INSTALL_MOD_PATH)/lib/modules/1.0/kernel/token.ko\n"
    hostile += f"\t@ln -s {secret} $(INSTALL_MOD_PATH)/lib/modules/1.0/kernel/folder\n"
    hostile += f"\t@ln -s {secret} $(O)/tidemark-benchmarks\n"
    with built(tmp_path, hostile) as outcome:
        assert outcome.outcome == "built"
        with tarfile.open(outcome.files["modules"]) as tar:
            assert not [name for name in tar.getnames() if "token" in name or "folder" in name]
    assert [path.name for path in secret.iterdir()] == ["token"]


def test_link_in_place_of_all_that_is_installed_leads_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside" / "lib" / "modules"
    outside.mkdir(parents=True)
    (outside / "name-of-the-host").write_text("")
    hostile = MODULES + f"\t@rm -r $(INSTALL_MOD_PATH); ln -s {tmp_path}/outside $(INSTALL_MOD_PATH)\n"
    with built(tmp_path, hostile) as outcome:
        assert outcome.outcome == "failed"
        assert outcome.reason == "the build left a link in place of tidemark-installed"


def test_link_in_place_of_a_benchmarks_module_fails_the_build(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("secret")
    hostile = MODULES.replace("cp $(M)/Kbuild", f"ln -sf {secret}")
    with built(tmp_path, hostile) as outcome:
        assert outcome.outcome == "failed"
        assert "no plain file as tidemark-benchmarks/clear-page" in outcome.reason


def test_pipe_that_a_build_puts_in_the_way_is_not_waited_for(tmp_path: Path) -> None:
    hostile = MODULES.replace("modules_install:\n", "modules_install:\n\t@mkfifo $(O)/tidemark-benchmarks\n")
    with built(tmp_path, hostile) as outcome:
        assert (outcome.outcome, outcome.reason) == ("built", "")


def test_folder_that_cannot_be_removed_is_the_builds_own_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root can remove everything, as the agent of a builder cannot.
    monkeypatch.setattr("tidemark_agent.build.modules.remove_tree", lambda *_: None)
    hostile = MODULES.replace("modules_install:\n", "modules_install:\n\t@mkdir $(O)/tidemark-benchmarks\n")
    with built(tmp_path, hostile) as outcome:
        assert outcome.outcome == "failed"
        assert outcome.reason == "the build left tidemark-benchmarks, which cannot be removed"


def test_endless_list_of_symbols_fails_the_build_and_is_not_read(tmp_path: Path) -> None:
    hostile = MODULES.replace("modules_install:\n", "modules_install:\n\t@truncate -s 65M $(O)/Module.symvers\n")
    with built(tmp_path, hostile) as outcome:
        assert (outcome.outcome, outcome.reason) == ("failed", "Module.symvers takes more than 64 MiB")


def test_endless_configuration_fails_the_build_and_is_not_read(tmp_path: Path) -> None:
    with built(tmp_path, MODULES + "olddefconfig:\n\t@truncate -s 17M $(O)/.config\n") as outcome:
        assert (outcome.outcome, outcome.reason) == ("failed", ".config takes more than 2 MiB")


def test_sources_are_told_only_of_functions_that_the_kernel_has() -> None:
    folio_copy = next(benchmark for benchmark in BENCHMARKS if benchmark.name == "folio-copy")
    both = kbuild(folio_copy, frozenset({"folio_copy", "folio_mc_copy", "other"}))
    assert (
        both == "obj-m := tidemark_folio_copy.o\nccflags-y := -DTIDEMARK_HAS_FOLIO_COPY -DTIDEMARK_HAS_FOLIO_MC_COPY\n"
    )
    assert kbuild(folio_copy, frozenset()) == "obj-m := tidemark_folio_copy.o\nccflags-y := \n"


def test_only_a_loadable_kernel_has_modules() -> None:
    assert has_modules("CONFIG_A=y\nCONFIG_MODULES=y\n")
    assert not has_modules("# CONFIG_MODULES is not set\n")
    assert not has_modules("CONFIG_MODULES_TREE_LOOKUP=y\n")
