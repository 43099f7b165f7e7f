from pathlib import Path

import pytest

from server.builds.models import Artifact
from server.core.errors import DomainError
from server.results.benchmarks import load_benchmark, source_version
from server.results.measurements import case_orders
from server.results.models import Case, Metric
from tests.builders import build_build, build_machine, build_measurement, build_session
from tests.house.sources import ROOT

TOML = """
name = "mm-basic"
title = "Page faults"
[[cases]]
name = "fault-4k"
title = "Touch fresh pages"
runs = 6
[[cases]]
name = "copy"
title = "Copy memory"
runs = 4
warmup = 2
[[metrics]]
name = "time"
title = "time per page"
unit = "ns"
better = "lower"
resolution = 0.25
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "mm-basic"
    path.mkdir()
    (path / "benchmark.toml").write_text(TOML)
    (path / "program.c").write_text("int main(void) { return 0; }\n")
    return path


@pytest.mark.django_db
def test_benchmark_is_loaded_as_the_agent_will_be_told(folder: Path) -> None:
    load_benchmark(folder)
    orders = {order.case: order for order in case_orders()}
    assert set(orders) == {"fault-4k", "copy"}
    assert (orders["copy"].runs, orders["copy"].warmup, orders["copy"].metrics) == (4, 2, ("time",))
    assert orders["copy"].version == source_version(folder)


@pytest.mark.django_db
@pytest.mark.parametrize(("line", "exact"), [("", False), ("exact = true\n", True), ("exact = false\n", False)])
def test_metric_says_whether_it_repeats_to_the_last_digit(folder: Path, line: str, *, exact: bool) -> None:
    (folder / "benchmark.toml").write_text(TOML + line)
    assert load_benchmark(folder).metrics.get().exact == exact


@pytest.mark.django_db
def test_metric_without_a_better_direction_explains_and_is_measured(folder: Path) -> None:
    (folder / "benchmark.toml").write_text(TOML.replace('better = "lower"', 'better = "none"'))
    assert load_benchmark(folder).metrics.get().better == Metric.Better.NONE
    assert {order.metrics for order in case_orders()} == {("time",)}


@pytest.mark.django_db
def test_metric_with_a_direction_that_is_none_is_refused(folder: Path) -> None:
    (folder / "benchmark.toml").write_text(TOML.replace('better = "lower"', 'better = "larger"'))
    with pytest.raises(DomainError, match="metric time: better: 'larger' is none of lower, higher, none"):
        load_benchmark(folder)


@pytest.mark.django_db
def test_machine_measures_only_the_cases_it_is_fit_for(folder: Path) -> None:
    load_benchmark(folder)
    assert [o.case for o in case_orders(build_machine("vm-noisy", cases=["mm-basic/fault-4k"]))] == ["fault-4k"]
    assert len(case_orders(build_machine("vm-quiet"))) == 2


@pytest.mark.django_db
@pytest.mark.parametrize(("wanted", "found"), [("mm-basic/*", 2), ("*/copy", 1), ("other/*", 0), ("mm-basic", 0)])
def test_machine_s_list_may_hold_patterns(folder: Path, wanted: str, found: int) -> None:
    load_benchmark(folder)
    assert len(case_orders(build_machine("vm-basic", cases=[wanted]))) == found


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ([], {"fault-4k", "copy"}),
        (["mm-basic"], {"fault-4k", "copy"}),
        (["mm-basic/fault"], {"fault-4k"}),
        (["mm-basic/copy", "other"], {"copy"}),
        (["other", "mm"], {"fault-4k", "copy"}),
    ],
)
def test_session_measures_what_it_was_asked_and_never_nothing(folder: Path, asked: list[str], found: set[str]) -> None:
    load_benchmark(folder)
    assert {order.case for order in case_orders(build_machine(), asked)} == found


@pytest.mark.django_db
def test_what_is_asked_stays_within_what_the_machine_is_fit_for(folder: Path) -> None:
    load_benchmark(folder)
    machine = build_machine("vm-noisy", cases=["mm-basic/fault-4k"])
    assert [order.case for order in case_orders(machine, ["mm-basic"])] == ["fault-4k"]
    assert [order.case for order in case_orders(machine, ["mm-basic/copy"])] == ["fault-4k"]


MATRIX = """[[cases]]
name = "copy-{size}-{from}"
title = "Copy {size} from node {from}"
matrix = { size = ["4k", "2m"], from = ["0", "1"] }
runs = 6
"""


@pytest.mark.django_db
def test_matrix_becomes_its_cases(folder: Path) -> None:
    head, case, rest = TOML.partition("[[cases]]")
    (folder / "benchmark.toml").write_text(head + MATRIX + case + rest)
    load_benchmark(folder)
    titles = dict(Case.objects.values_list("name", "title"))
    assert titles["copy-2m-0"] == "Copy 2m from node 0"
    assert set(titles) == {"fault-4k", "copy", "copy-4k-0", "copy-4k-1", "copy-2m-0", "copy-2m-1"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "wrong", [MATRIX.replace('"4k"', "4"), MATRIX.replace('"4k"', '"4 k"'), MATRIX.replace('"4k"', f'"{"k" * 60}"')]
)
def test_matrix_that_makes_no_names_is_refused(folder: Path, wrong: str) -> None:
    (folder / "benchmark.toml").write_text(TOML.replace("[[metrics]]", f"{wrong}\n[[metrics]]"))
    with pytest.raises(DomainError, match=r"benchmark\.toml"):
        load_benchmark(folder)
    assert not Case.objects.exists()


@pytest.mark.django_db
def test_shared_file_is_part_of_the_version(folder: Path) -> None:
    (folder.parent / "other").mkdir()
    (folder.parent / "other" / "helper.h").write_text("one")
    (folder / "benchmark.toml").write_text('shared = ["other/helper.h"]\n' + TOML)
    before = load_benchmark(folder).version
    (folder.parent / "other" / "helper.h").write_text("two")
    assert load_benchmark(folder).version != before


@pytest.mark.django_db
def test_every_benchmark_of_the_repository_can_be_loaded() -> None:
    for path in sorted((ROOT / "agents" / "benchmarks").glob("*/benchmark.toml")):
        assert load_benchmark(path.parent).cases.filter(enabled=True).exists()


@pytest.mark.django_db
def test_case_that_is_gone_is_disabled_and_kept(folder: Path) -> None:
    load_benchmark(folder)
    (folder / "benchmark.toml").write_text(TOML.replace('name = "copy"', 'name = "copy-2"'))
    load_benchmark(folder)
    assert set(Case.objects.filter(enabled=True).values_list("name", flat=True)) == {"fault-4k", "copy-2"}
    assert Case.objects.count() == 3


@pytest.mark.django_db
def test_metric_that_is_gone_is_asked_of_no_agent(folder: Path) -> None:
    load_benchmark(folder)
    (folder / "benchmark.toml").write_text(TOML.replace('name = "time"', 'name = "duration"'))
    load_benchmark(folder)
    assert {order.metrics for order in case_orders()} == {("duration",)}


@pytest.mark.django_db
def test_metric_that_was_measured_cannot_go(folder: Path) -> None:
    load_benchmark(folder)
    build_measurement(build_session().boots.get(position=0), [1.0] * 6)
    (folder / "benchmark.toml").write_text(TOML.replace('name = "time"', 'name = "duration"'))
    with pytest.raises(DomainError, match="metric time is gone but was measured: give the benchmark a new name"):
        load_benchmark(folder)
    assert {order.metrics for order in case_orders()} == {("time",)}


def test_version_changes_with_any_file_and_with_nothing_else(folder: Path) -> None:
    before = source_version(folder)
    assert source_version(folder) == before
    (folder / "program.c").write_text("int main(void) { return 1; }\n")
    assert source_version(folder) != before


def test_words_for_people_are_no_part_of_the_version(folder: Path) -> None:
    before = source_version(folder)
    reworded = TOML.replace('title = "', 'title = "Better said: ').replace("runs = 6", "runs  =  6  # six")
    assert reworded != TOML
    (folder / "benchmark.toml").write_text('follows = "a paper"\nwords = { cold = "once" }\n' + reworded)
    assert source_version(folder) == before
    (folder / "benchmark.toml").write_text(TOML.replace("runs = 6", "runs = 7"))
    assert source_version(folder) != before


@pytest.mark.django_db
def test_broken_description_names_the_file(folder: Path) -> None:
    (folder / "benchmark.toml").write_text(TOML.replace('unit = "ns"', ""))
    with pytest.raises(DomainError, match=r"benchmark\.toml"):
        load_benchmark(folder)


@pytest.mark.django_db
@pytest.mark.parametrize("wrong", ["-0.25", "nan", "inf", '"fine"', "true", "1" + "0" * 400])
def test_resolution_that_is_no_number_from_zero_is_refused(folder: Path, wrong: str) -> None:
    (folder / "benchmark.toml").write_text(TOML.replace("resolution = 0.25", f"resolution = {wrong}"))
    with pytest.raises(DomainError, match=r"benchmark\.toml.*resolution|benchmark\.toml.*too large"):
        load_benchmark(folder)
    assert not Case.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(("kind", "retired"), [("module", True), ("compiled", False)])
def test_kernels_with_modules_of_an_older_version_are_built_again(folder: Path, kind: str, *, retired: bool) -> None:
    (folder / "benchmark.toml").write_text(TOML + f'[program]\nkind = "{kind}"\n')
    load_benchmark(folder)
    build = build_build()
    Artifact.objects.create(build=build, kind=Artifact.Kind.MODULES, sha256="5" * 64, size=1)
    load_benchmark(folder)
    build.refresh_from_db()
    assert not build.recipe.startswith("retired"), "nothing has changed yet"
    (folder / "program.c").write_text("int main(void) { return 1; }\n")
    load_benchmark(folder)
    build.refresh_from_db()
    assert build.recipe.startswith("retired") == retired


@pytest.mark.django_db
def test_kernels_whose_modules_lack_a_new_benchmark_are_built_again(folder: Path) -> None:
    build = build_build()
    Artifact.objects.create(build=build, kind=Artifact.Kind.MODULES, sha256="5" * 64, size=1)
    (folder / "benchmark.toml").write_text(TOML + '[program]\nkind = "module"\n')
    load_benchmark(folder)
    build.refresh_from_db()
    assert build.recipe.startswith("retired")


@pytest.mark.django_db
def test_words_of_cases_are_kept_with_their_meanings(folder: Path) -> None:
    (folder / "benchmark.toml").write_text('words = { cold = "each piece once" }\n' + TOML)
    assert load_benchmark(folder).words == {"cold": "each piece once"}
    for wrong in ('""', "3", f'"{"x" * 81}"'):
        (folder / "benchmark.toml").write_text(f"words = {{ cold = {wrong} }}\n{TOML}")
        with pytest.raises(DomainError, match="cold"):
            load_benchmark(folder)
