"""Reading benchmark.toml: what is wrong in it is found when it is read, not in the middle of a session."""

import tomllib

import pytest
from tidemark_agent.benchmarks.bundle import benchmark_names, find_benchmark
from tidemark_agent.benchmarks.description import Description, read_description
from tidemark_agent.errors import InfrastructureError

from scripts.build_agent import AGENTS
from server.results.benchmarks import source_version
from tests.agent.cases.support import CASE, HEAD, METRIC, SCRIPT, Bench, prints

EXTERNAL = '[program]\nkind = "external"\nname = "perf"\nparser = "p.py"\n'


def read(toml: str) -> Description:
    return read_description(tomllib.loads(toml))


def test_settings_and_needs_of_all_cases_are_joined_by_those_of_one() -> None:
    general = '[settings]\nthp = "never"\nnuma_balancing = "off"\n[needs]\nmemory_mb = 64\n'
    own = CASE + 'settings = { thp = "always", huge_pages = { "2048" = 64 } }\nneeds = { nodes = 2 }\n'
    case = read(HEAD + SCRIPT + general + own + METRIC).cases["one"]
    assert case.settings == {"thp": "always", "numa_balancing": "off", "huge_pages": {"2048": 64}}
    assert case.needs == {"memory_mb": 64, "nodes": 2}


def test_case_without_command_is_one_process_for_all_runs() -> None:
    case = read(HEAD + SCRIPT + CASE + METRIC).cases["one"]
    assert case.command == ("{program}", "{case}", "{runs}")
    assert case.is_one_process
    assert not read(HEAD + SCRIPT + CASE + 'command = ["{program}"]\n' + METRIC).cases["one"].is_one_process


def test_metric_may_explain_without_a_better_direction() -> None:
    assert read(HEAD + SCRIPT + CASE + METRIC.replace("lower", "none")).metrics["time"].better == "none"


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        (HEAD + SCRIPT.replace("script", "magic") + CASE + METRIC, "magic"),
        (HEAD + '[program]\nkind = "compiled"\nfile = "x"\n' + CASE + METRIC, "needs command"),
        (HEAD + '[program]\nkind = "module"\n' + CASE + METRIC, "needs name"),
        (HEAD + EXTERNAL + CASE + METRIC, "needs a command"),
        (HEAD + SCRIPT + CASE + CASE + METRIC, "two of one name"),
        (HEAD + SCRIPT + CASE.replace('"one"', '"one two"') + METRIC, "not allowed"),
        (HEAD + SCRIPT + CASE.replace('"one"', f'"{"x" * 61}"') + METRIC, "not allowed"),
        (HEAD + SCRIPT + CASE.replace("warmup = 1", "warmup = 3") + METRIC, "3 runs of which 3"),
        (HEAD + SCRIPT + CASE + 'command = "{program}"\n' + METRIC, "no list of texts"),
        (HEAD + SCRIPT + CASE + METRIC.replace("lower", "smaller"), "lower, higher or none"),
        (HEAD + SCRIPT + CASE + METRIC + "resolution = nan\n", "resolution"),
        (HEAD + SCRIPT + CASE + METRIC + "resolution = -1.0\n", "resolution"),
        (HEAD.replace("made-up", "../up") + SCRIPT + CASE + METRIC, "not allowed"),
    ],
)
def test_wrong_description_is_refused_with_the_reason(toml: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(toml)


@pytest.mark.parametrize("toml", ["name = ", HEAD, HEAD + SCRIPT + METRIC, HEAD + "cases = 3\n" + SCRIPT])
def test_broken_file_names_the_benchmark(bench: Bench, toml: str) -> None:
    bench.write(toml, program_py="")
    with pytest.raises(InfrastructureError, match="benchmark made-up cannot be understood"):
        find_benchmark("made-up", bench.root / "benchmarks")


def test_parser_or_script_that_is_not_there_is_found_at_once(bench: Bench) -> None:
    bench.write(HEAD + SCRIPT + CASE + METRIC)
    with pytest.raises(InfrastructureError, match=r"program\.py is neither in the folder nor shared"):
        find_benchmark("made-up", bench.root / "benchmarks")


def test_shared_file_counts_as_the_benchmark_s_own(bench: Bench) -> None:
    other = bench.root / "benchmarks" / "other"
    other.mkdir(parents=True)
    (other / "helper.py").write_text("VALUE = 7\n")
    source = "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\nfrom helper import VALUE\n"
    toml = HEAD + 'shared = ["other/helper.py"]\n' + SCRIPT + CASE + METRIC
    bench.write(toml, program_py=source + prints(1, 2, 3).replace('"value": 3}', '"value": VALUE}'))
    first = bench.run()
    assert first.values == {"time": (1.0, 2.0, 7.0)}
    (other / "helper.py").write_text("VALUE = 8\n")
    second = bench.run()
    assert second.values == {"time": (1.0, 2.0, 8.0)}
    assert first.version != second.version


@pytest.mark.parametrize("name", benchmark_names())
def test_every_benchmark_here_can_be_read_and_says_what_it_follows(name: str) -> None:
    benchmark = find_benchmark(name)
    assert benchmark.name == name
    assert benchmark.cases
    assert benchmark.description.follows
    assert benchmark.needs_of("no such case") == {}


def test_same_files_give_the_service_the_same_version() -> None:
    for name in benchmark_names():
        folder = AGENTS / "benchmarks" / name
        shared = tomllib.loads((folder / "benchmark.toml").read_text()).get("shared", ())
        assert source_version(folder, shared) == find_benchmark(name).version
