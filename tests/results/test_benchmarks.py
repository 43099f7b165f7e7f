from pathlib import Path

import pytest

from server.core.errors import DomainError
from server.results.benchmarks import load_benchmark, source_version
from server.results.models import Case
from server.results.selectors import case_orders
from tests.builders import build_machine

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
    (tmp_path / "benchmark.toml").write_text(TOML)
    (tmp_path / "program.c").write_text("int main(void) { return 0; }\n")
    return tmp_path


@pytest.mark.django_db
def test_benchmark_is_loaded_as_the_agent_will_be_told(folder: Path) -> None:
    load_benchmark(folder)
    orders = {order.case: order for order in case_orders()}
    assert set(orders) == {"fault-4k", "copy"}
    assert (orders["copy"].runs, orders["copy"].warmup, orders["copy"].metrics) == (4, 2, ("time",))
    assert orders["copy"].version == source_version(folder)


@pytest.mark.django_db
def test_machine_measures_only_the_cases_it_is_fit_for(folder: Path) -> None:
    load_benchmark(folder)
    assert [o.case for o in case_orders(build_machine("vm-noisy", cases=["mm-basic/fault-4k"]))] == ["fault-4k"]
    assert len(case_orders(build_machine("vm-quiet"))) == 2


@pytest.mark.django_db
def test_case_that_is_gone_is_disabled_and_kept(folder: Path) -> None:
    load_benchmark(folder)
    (folder / "benchmark.toml").write_text(TOML.replace('name = "copy"', 'name = "copy-2"'))
    load_benchmark(folder)
    assert set(Case.objects.filter(enabled=True).values_list("name", flat=True)) == {"fault-4k", "copy-2"}
    assert Case.objects.count() == 3


def test_version_changes_with_any_file_and_with_nothing_else(folder: Path) -> None:
    before = source_version(folder)
    assert source_version(folder) == before
    (folder / "program.c").write_text("int main(void) { return 1; }\n")
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
