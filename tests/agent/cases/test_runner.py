"""A case from plan to result, when all goes well and when the plan itself is wrong."""

import hashlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.errors import StoppedError
from tidemark_agent.prepare import CannotMeasureError, Setting
from tidemark_agent.probe import CoreKind

from tests.agent.cases.support import CASE, CORE, HEAD, METRIC, Bench, prints


def test_values_of_all_runs_are_kept_in_their_order_warm_up_first(bench: Bench) -> None:
    bench.write_script(prints(3.5, 2, 2.25))
    result = bench.run()
    assert (result.outcome, result.reason, result.warmup) == ("measured", "", 1)
    assert result.values == {"time": (3.5, 2.0, 2.25)}
    assert (result.benchmark, result.case, result.core_type) == ("made-up", "one", "all")
    assert '"value": 2.25' in result.evidence


def test_nothing_of_a_case_is_left_on_the_disk(bench: Bench) -> None:
    bench.write_script("open('left', 'w').write('x')\n" + prints(1, 2, 3))
    assert bench.run().outcome == "measured"
    assert list((bench.state / "cases").glob("scratch-*")) == []


def test_what_a_power_cut_left_of_a_case_goes_with_the_next_one(bench: Bench) -> None:
    """Twenty cuts while a kernel is compiled would leave many gigabytes. A case of this boot may still be running."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    for name in ("scratch-ffffffff-abc", f"scratch-{boot}-abc"):
        (bench.state / "cases" / name / "work").mkdir(parents=True)
    bench.write_script(prints(1, 2, 3))
    assert bench.run().outcome == "measured"
    assert [path.name for path in (bench.state / "cases").glob("scratch-*")] == [f"scratch-{boot}-abc"]


def test_case_runs_on_the_cpus_of_its_core_type_with_a_clean_environment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    source = """
import os, sys
wanted = {"LC_ALL": "C", "TERM": "dumb", "NO_COLOR": "1"}
good = os.sched_getaffinity(0) == {0} and os.getcwd() == os.environ["HOME"] and sys.stdin.read() == ""
good = good and "https_proxy" not in os.environ and wanted.items() <= os.environ.items()
value = 1 if good else 0
"""
    bench.write_script(source + prints(1, 2, 3).replace('"value": 1}', '"value": value}'))
    assert bench.run(core=CoreKind("all", "0")).outcome == "measured"


def test_another_version_is_ours_and_both_versions_are_named(bench: Bench) -> None:
    bench.write_script(prints(1, 2, 3))
    planned = bench.planned(version="f" * 64)
    result = bench.run(planned)
    assert result.outcome == "infrastructure"
    assert "ffffffffffff" in result.reason
    assert bench.planned().version[:12] in result.reason


@pytest.mark.parametrize(("benchmark", "case"), [("unknown", "one"), ("made-up", "unknown")])
def test_unknown_names_are_ours(bench: Bench, benchmark: str, case: str) -> None:
    bench.write_script(prints(1, 2, 3))
    result = bench.run(replace(bench.planned(), benchmark=benchmark, case=case))
    assert result.outcome == "infrastructure"
    assert "unknown" in result.reason


def test_description_that_cannot_be_understood_is_ours(bench: Bench) -> None:
    bench.write_script(prints(1, 2, 3))
    planned = bench.planned()
    bench.write('name = "made-up"\n[program]\nkind = "magic"\n')
    result = bench.run(planned)
    assert result.outcome == "infrastructure"
    assert "magic" in result.reason


def test_disk_that_fails_the_agent_is_ours(bench: Bench) -> None:
    bench.write_script(prints(1, 2, 3))
    bench.state.write_text("a file where a directory should be")
    assert bench.run().outcome == "infrastructure"


def test_need_that_is_not_met_skips_the_case_with_the_reason(bench: Bench) -> None:
    bench.write_script(prints(1, 2, 3), CASE + "needs = { nodes = 99 }\n")
    result = bench.run()
    assert (result.outcome, result.values) == ("skipped", {})
    assert result.reason.startswith("needs 99 NUMA nodes with memory")


def test_stop_ends_a_case_that_is_under_way(bench: Bench) -> None:
    bench.write_script("import time\ntime.sleep(60)\n")
    threading.Timer(0.5, bench.stop.set).start()
    with pytest.raises(StoppedError):
        bench.run()


def test_samples_are_taken_around_each_process(bench: Bench) -> None:
    numbers = iter(range(100))
    bench.sample = lambda: {"heat": next(numbers)}
    per_run = CASE + 'command = ["{program}", "{case}"]\n'
    bench.write_script(prints(5), per_run)
    result = bench.run()
    assert result.values == {"time": (5.0, 5.0, 5.0)}
    assert [sample["run"] for sample in result.samples] == [0, 1, 2]
    assert result.samples[1] == {"run": 1, "before": {"heat": 2}, "after": {"heat": 3}}


def test_sample_that_cannot_be_read_spoils_no_measurement(bench: Bench) -> None:
    def broken() -> dict[str, float]:
        raise OSError("no sensor")

    bench.sample = broken
    bench.write_script(prints(1, 2, 3))
    assert bench.run().outcome == "measured"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metrics": ()}, "the plan wants no value of made-up/one"),
        ({"runs": 0, "warmup": 0}, "the plan wants no value of made-up/one"),
        ({"runs": 2, "warmup": 2}, "the plan wants no value of made-up/one"),
        ({"warmup": -1}, "the plan wants no value of made-up/one"),
        ({"metrics": ("time", "speed")}, "benchmark made-up has no metric speed"),
    ],
)
def test_plan_that_asks_for_nothing_or_for_what_there_is_not_is_ours(
    bench: Bench, changes: dict[str, Any], reason: str
) -> None:
    bench.write_script(prints(1, 2, 3), CASE + 'command = ["{program}", "{case}"]\n')
    result = bench.run(bench.planned(**changes))
    assert (result.outcome, result.reason) == ("infrastructure", reason)


def test_places_in_a_command_are_filled_in(bench: Bench, tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    bench.programs = {"tool": tool}
    command = (
        'command = ["{program}", "{case}", "{runs}", "{cpus}", "{cpus:half}", "{cpus:1}", "{cpulist}", "{path:tool}", '
        '"{kept}", "{scratch}"]\nneeds = { programs = ["tool"] }\n'
    )
    last = (os.cpu_count() or 1) - 1
    wanted = ("one", "3", str(last + 1), str(max(1, (last + 1) // 2)), "1", f"0-{last}", str(tool))
    source = f"""
import os, sys
*words, kept, scratch = sys.argv[1:]
assert tuple(words) == {wanted!r}
assert scratch == os.getcwd() and os.path.isdir(kept)
"""
    bench.write_script(source + prints(1, 2, 3), CASE + command)
    result = bench.run(core=CoreKind("all", f"0-{last}"))
    assert (result.outcome, result.reason) == ("measured", "")
    assert result.programs == {"tool": hashlib.sha256(tool.read_bytes()).hexdigest()}


def test_what_is_kept_lasts_from_case_to_case_and_not_from_boot_to_boot(bench: Bench) -> None:
    kept = CASE + 'command = ["{program}", "{case}", "{runs}", "{kept}"]\n'
    source = "import os, sys\nfile = sys.argv[3] + '/seen'\nseen = os.path.exists(file)\nopen(file, 'w').close()\n"
    bench.write_script(source + prints(1, 2, 3).replace('"value": 1}', '"value": 2 if seen else 1}'), kept)
    other_boot = bench.state / "cases" / "kept" / "made-up-ffffffff"
    other_boot.mkdir(parents=True)
    assert [bench.run().values["time"][0], bench.run().values["time"][0]] == [1.0, 2.0]
    assert not other_boot.exists()


@contextmanager
def settled(log: list[object], settings: Mapping[str, Any]) -> Iterator[tuple[Setting, ...]]:
    log.append(dict(settings))
    yield (Setting(name="thp", wanted="never", before="always", after="never", outcome="set"),)
    log.append("put back")


def test_settings_are_made_around_the_runs_and_stand_in_the_result(bench: Bench) -> None:
    log: list[object] = []
    bench.write_script(prints(1, 2, 3), CASE + 'settings = { thp = "never" }\n')
    result = bench.runner().run(bench.planned(), CORE, partial(settled, log))
    assert log == [{"thp": "never"}, "put back"]
    assert [(setting["name"], setting["after"]) for setting in result.settings] == [("thp", "never")]


def test_case_that_cannot_run_here_changes_no_setting(bench: Bench) -> None:
    log: list[object] = []
    bench.write_script(prints(1, 2, 3), CASE + "needs = { nodes = 99 }\n")
    assert bench.runner().run(bench.planned(), CORE, partial(settled, log)).outcome == "skipped"
    assert log == []


def test_setting_that_cannot_be_had_is_ours_and_nothing_runs(bench: Bench) -> None:
    def refused(_settings: Mapping[str, Any]) -> AbstractContextManager[tuple[Setting, ...]]:
        raise CannotMeasureError("huge-pages: 3 of 64 could be had")

    bench.write_script(f"open({str(bench.root / 'ran')!r}, 'w')\n" + prints(1, 2, 3))
    result = bench.runner().run(bench.planned(), CORE, refused)
    assert (result.outcome, result.reason) == ("infrastructure", "huge-pages: 3 of 64 could be had")
    assert not (bench.root / "ran").exists()


COMPILED = '[program]\nkind = "compiled"\ncommand = ["{compiler}", "program.py", "made"]\nfile = "made"\n'


def test_compiled_program_is_made_once_and_run(bench: Bench) -> None:
    source = f"#!{sys.executable}\n" + prints(1, 2, 3)
    bench.write(HEAD + COMPILED.replace("{compiler}", "cp") + CASE + METRIC, program_py=source)
    assert bench.run().values == {"time": (1.0, 2.0, 3.0)}
    [made] = (bench.state / "benchmarks").iterdir()
    assert made.name == f"made-up-{bench.planned().version}"


def test_machine_without_a_compiler_skips_what_nobody_has_compiled_for_it(bench: Bench) -> None:
    source = f"#!{sys.executable}\n" + prints(1, 2, 3)
    bench.write(HEAD + COMPILED.replace("{compiler}", "no-such-cc") + CASE + METRIC, program_py=source)
    result = bench.run()
    assert (result.outcome, result.reason) == ("skipped", "needs the compiler no-such-cc")
    made = bench.state / "benchmarks" / f"made-up-{bench.planned().version}"
    made.parent.mkdir()
    made.write_text(source)
    made.chmod(0o755)
    assert bench.run().outcome == "measured"
