"""Counters come from runs of their own, and spoil nothing where they cannot be had."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tidemark_agent.cases.runs import EVENTS, below_perf, read_counters

from tests.agent.cases.support import Bench, prints
from tests.agent.cases.test_external import tool

PERF = """# started on Fri Nov 20 12:07:00 2026

1020,,cpu-migrations,11927640000,100.00,85.516,/sec
<not supported>,,cycles:u,0,100.00,,
<not counted>,,instructions,0,0.00,,
602282,,page-faults,11927640000,100.00,50.495,K/sec
12.5,msec,task-clock,1,100.00,,
"""


def test_counted_events_are_read_and_the_others_named() -> None:
    counted, missing = read_counters(PERF)
    assert counted == {"cpu-migrations": 1020.0, "page-faults": 602282.0}
    assert missing == ("cycles:u", "instructions")


@given(st.text(max_size=200))
def test_garbage_counts_nothing(text: str) -> None:
    counted, _ = read_counters(text)
    assert all(value >= 0 for value in counted.values())
    assert {event.partition(":")[0] for event in counted} <= set(EVENTS)


def test_perf_is_told_the_events_and_where_to_write() -> None:
    words = below_perf(Path("/opt/perf"), ["prog", "case"], Path("/scratch/out"))
    assert words[:6] == ["/opt/perf", "stat", "-x,", "-o", "/scratch/out", "-e"]
    assert words[-3:] == ["--", "prog", "case"]


def test_counters_are_taken_in_one_more_run_that_is_not_measured(bench: Bench) -> None:
    log = bench.root / "runs"
    source = f"open({str(log)!r}, 'a').write('run\\n')\n" + prints(1, 2, 3)
    find_output = 'while [ "$1" != -- ]; do [ "$1" = -o ] && out=$2; shift; done; shift'
    fake = f'{find_output}; echo "7,,cycles,1,100.00,," > "$out"; exec "$@"'
    bench.programs = {"perf": tool(bench.root / "perf", fake)}
    bench.with_counters = True
    bench.write_script(source)
    result = bench.run()
    assert (result.values, result.counters) == ({"time": (1.0, 2.0, 3.0)}, {"cycles": 7.0})
    assert log.read_text() == "run\n" * 2


def test_perf_that_fails_leaves_the_measurement_as_it_is(bench: Bench) -> None:
    bench.programs = {"perf": tool(bench.root / "perf", "echo no permission; exit 1")}
    bench.with_counters = True
    bench.write_script(prints(1, 2, 3))
    result = bench.run()
    assert (result.outcome, result.counters) == ("measured", {})


def test_nobody_counts_unless_asked(bench: Bench) -> None:
    bench.programs = {"perf": tool(bench.root / "perf", f"touch {bench.root}/asked")}
    bench.write_script(prints(1, 2, 3))
    assert bench.run().counters == {}
    assert not (bench.root / "asked").exists()
