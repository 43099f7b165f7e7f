"""From results of cases to the boot result of the protocol."""

import json
from dataclasses import asdict
from typing import Any

from tidemark_agent.cases.programs import CaseResult
from tidemark_agent.lab.result import MOST_CONDITION_BYTES, MOST_NOTES, boot_result, conditions_of, moment
from tidemark_agent.probe import CoreKind
from tidemark_agent.wire.assignment import PlannedCase

CORES = (CoreKind("cortex-a76", "4-7"), CoreKind("cortex-a55", "0-3"))
CASES = tuple(PlannedCase("b", "v", name, 2, 1, 60, ("time",)) for name in ("c0", "c1"))


def result(case: str = "c0", outcome: str = "measured", **fields: Any) -> dict[str, Any]:
    values = {"time": (1.0, 2.0)} if outcome == "measured" else {}
    named = {"benchmark": "b", "version": "v", "case": case, "core_type": "cortex-a76", "warmup": 1, "values": values}
    return asdict(CaseResult(outcome=outcome, **{**named, **fields}))


def body(*results: dict[str, Any], out_of_time: bool = False) -> dict[str, Any]:
    return boot_result(
        results=results,
        cases=CASES,
        cores=CORES,
        settings=[{"name": "aslr"}],
        facts={"uarch": "x"},
        began=1.0,
        proof={"boot_id": "i", "build_id": "b"},
        console_tail="tail",
        out_of_time=out_of_time,
    )


def test_measured_case_becomes_measurements_of_its_core_type() -> None:
    made = body(result())
    assert (made["outcome"], made["reason"], made["boot_id"], made["console_tail"]) == ("measured", "", "i", "tail")
    assert made["measurements"] == [
        {
            "benchmark": "b",
            "version": "v",
            "case": "c0",
            "metric": "time",
            "core_type": "cortex-a76",
            "values": [1.0, 2.0],
            "warmup": 1,
        }
    ]


def test_case_that_gave_nothing_becomes_a_note_with_its_evidence() -> None:
    made = body(result(), result("c1", "oom", reason="killed", evidence="Out of memory"))
    assert made["outcome"] == "measured"
    assert [(note["case"], note["outcome"], note["evidence"]) for note in made["notes"]] == [
        ("c1", "oom", "Out of memory")
    ]


def test_boot_in_which_no_case_measured_is_ours_with_the_first_reason() -> None:
    made = body(result("c0", "failed", reason="exit 1"), result("c1", "infrastructure", reason="no compiler"))
    assert (made["outcome"], made["reason"]) == ("infrastructure", "no case gave a measurement: no compiler")


def test_boot_in_which_all_cases_ran_too_long_is_a_timeout() -> None:
    assert body(result("c0", "timeout"), result("c1", "timeout"))["outcome"] == "timeout"


def test_boot_out_of_time_keeps_what_it_has_and_names_the_rest() -> None:
    made = body(result(), out_of_time=True)
    assert made["outcome"] == "measured"
    assert [(note["case"], note["outcome"]) for note in made["notes"]] == [
        ("c1", "timeout"),
        ("c0", "timeout"),
        ("c1", "timeout"),
    ]
    assert {note["core_type"] for note in made["notes"]} == {core.name for core in CORES}
    assert body(out_of_time=True)["outcome"] == "timeout"


def test_conditions_tell_settings_noise_samples_counters_and_programs() -> None:
    sample = {"run": 0, "before": {"load": 0.1}, "after": {"load": 0.2}}
    made = conditions_of(
        [
            result(
                samples=(sample,),
                counters={"cycles": 5.0},
                settings=({"name": "thp"},),
                programs={"/opt/perf": "ab"},
            )
        ],
        [{"name": "aslr"}],
        [{"cpu": 2, "max_gap_us": 7.5}],
    )
    names = {"benchmark": "b", "case": "c0", "core_type": "cortex-a76"}
    assert made == {
        "settings": [{"name": "aslr"}, {**names, "name": "thp"}],
        "noise": [{"cpu": 2, "max_gap_us": 7.5}],
        "samples": [{**names, **sample}],
        "counters": [{**names, "event": "cycles", "value": 5.0}],
        "programs": [{"benchmark": "b", "path": "/opt/perf", "sha256": "ab"}],
    }


def test_too_many_samples_are_thinned_and_counted() -> None:
    samples = tuple({"run": number, "before": {"text": "x" * 500}, "after": {}} for number in range(5000))
    made = conditions_of([result(samples=samples)], [])
    assert len(json.dumps(made)) <= MOST_CONDITION_BYTES
    assert len(made["samples"]) + made["samples_left_out"] == 5000
    assert made["samples"][-1]["run"] == 4999


def test_conditions_that_cannot_be_thinned_are_left_out() -> None:
    assert conditions_of([], [{"name": "x" * 2**21}]) == {"left_out": "the conditions were too large"}


def test_clock_outside_of_all_calendars_does_not_break_the_result() -> None:
    assert moment(0.0).startswith("1970-01-01T00:00:00")
    assert len(moment(1e30)) > 10
    assert len(moment(float("nan"))) > 10


def test_result_has_no_more_notes_than_the_service_takes() -> None:
    made = body(*(result(f"c{number}", "skipped") for number in range(MOST_NOTES + 9)))
    assert (made["outcome"], len(made["notes"])) == ("infrastructure", MOST_NOTES)
