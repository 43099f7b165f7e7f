"""Changed paths choose benchmarks."""

import tomllib
from io import StringIO

import pytest
from django.core.management import call_command

from server.results.benchmarks import expand
from server.results.measurements import unknown_benchmarks
from server.sources.measure_rules import RULES, benchmarks_for, load_default_rules, matches_path
from server.sources.models import MeasureRule
from tests.builders import build_case
from tests.house.sources import ROOT

pytestmark = pytest.mark.django_db
DEFAULT = {"mm-basic", "will-it-scale/page_fault1", "kernel-compile/tinyconfig-jall"}


@pytest.fixture(autouse=True)
def rules() -> None:
    load_default_rules()


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("mm/memory.c", {"mem-mmap", "will-it-scale/page_fault"}),
        ("mm/huge_memory.c", {"mem-mmap", "will-it-scale/page_fault"}),
        ("mm/util.c", {"folio-copy", "copy-page", "move-pages", "mem-copy"}),
        ("mm/migrate_device.c", {"folio-copy", "copy-page", "move-pages", "mem-copy"}),
        ("arch/x86/lib/copy_page_64.S", {"folio-copy", "copy-page", "move-pages", "mem-copy"}),
        ("arch/arm64/lib/memcpy.S", {"folio-copy", "copy-page", "move-pages", "mem-copy"}),
        ("arch/x86/lib/copy_user_64.S", {"folio-copy", "copy-page", "move-pages", "mem-copy"}),
        ("arch/arm64/lib/copy_from_user.S", {"folio-copy", "copy-page", "move-pages", "mem-copy"}),
        ("arch/x86/lib/clear_page_64.S", {"clear-page", "mem-mmap"}),
        ("mm/vmscan.c", {"vm-scalability", "mem-used"}),
        ("kernel/sched/fair.c", {"kernel-compile", "will-it-scale"}),
        ("drivers/net/loopback.c", set()),
        ("tools/testing/mm/memory.c", set()),
    ],
)
def test_path_asks_for_its_benchmarks_and_the_default_set(path: str, asked: set[str]) -> None:
    assert set(benchmarks_for([path])) == DEFAULT | asked


def test_answer_does_not_depend_on_the_order_of_paths() -> None:
    paths = ["mm/vmscan.c", "mm/memory.c", "lib/string.c"]
    asked = benchmarks_for(paths)
    assert asked == sorted(set(asked))
    assert benchmarks_for(reversed([*paths, *paths])) == asked


def test_default_set_needs_no_path() -> None:
    assert set(benchmarks_for([])) == DEFAULT


def test_disabled_rule_asks_for_nothing_and_edited_ones_are_kept() -> None:
    MeasureRule.objects.filter(pattern="**").update(enabled=False)
    MeasureRule.objects.filter(pattern="mm/memory.c").update(benchmarks=["mine"])
    MeasureRule.objects.filter(pattern="mm/vmscan.c").delete()
    out = StringIO()
    call_command("load_rules", stdout=out)
    assert out.getvalue() == "1 rules added\n"
    assert benchmarks_for(["mm/memory.c"]) == ["mine"]


def test_every_rule_asks_for_benchmarks_that_there_are() -> None:
    cases = set()
    for file in (ROOT / "agents" / "benchmarks").glob("*/benchmark.toml"):
        description = tomllib.loads(file.read_text(encoding="utf-8"))
        names = (case["name"] for entry in description["cases"] for case in expand(entry))
        cases |= {f"{description['name']}/{name}" for name in names}
    for rule in RULES:
        for asked in rule.benchmarks:
            beginning = asked if "/" in asked else f"{asked}/"
            assert any(case.startswith(beginning) for case in cases), (rule.pattern, asked)


def test_names_that_no_case_answers_to_are_known() -> None:
    build_case("fault-4k")
    build_case("copy", enabled=False)
    asked = ["mm-basic", "mm-basic/fault", "mm-basic/copy", "gone"]
    assert unknown_benchmarks(asked) == ["mm-basic/copy", "gone"]


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("mm/*.c", "mm/memory.c", True),
        ("mm/*.c", "mm/kasan/memory.c", False),
        ("mm/", "mm/kasan/memory.c", True),
        ("mm", "fs/mm/x.c", True),
        ("/mm", "fs/mm/x.c", False),
        ("Kconfig", "mm/Kconfig", True),
        ("arch/**/page.h", "arch/x86/include/asm/page.h", True),
        ("arch/**/page.h", "arch/page.h", True),
        ("mm/?map.c", "mm/mmap.c", True),
        ("mm/[a-z]*.c", "mm/mmap.c", False),
        ("**", "any/thing", True),
        ("", "any", False),
        ("/", "any", False),
    ],
)
def test_patterns_are_those_of_gitignore(pattern: str, path: str, fits: bool) -> None:
    assert matches_path(pattern, path) == fits
