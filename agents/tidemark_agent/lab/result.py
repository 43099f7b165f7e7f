"""From the cases of one boot to the boot result of the protocol."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tidemark_agent.boot.driver import BootOutcome
from tidemark_agent.probe import CoreKind
from tidemark_agent.wire.assignment import PlannedCase

_NO_MEASUREMENT = "no case gave a measurement"
# The service takes a MiB; what stands around the samples needs some of it.
MOST_CONDITION_BYTES = 1024**2 - 16 * 1024
_LONGEST_NOTE = 500
# The service takes no result with more.
MOST_NOTES = 10_000


def boot_result(
    *,
    results: Sequence[Mapping[str, Any]],
    cases: Sequence[PlannedCase],
    cores: Sequence[CoreKind],
    settings: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any],
    began: float,
    proof: Mapping[str, str],
    console_tail: str,
    out_of_time: bool,
    noise: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The protocol's boot result. `proof` is boot_id and build_id; `results` are journaled CaseResults."""
    measured = [result for result in results if result["outcome"] == "measured"]
    notes = [_note(result) for result in results if result["outcome"] != "measured"]
    unreached = _unreached(results, cases, cores) if out_of_time else []
    notes += unreached
    outcome, reason = _outcome(measured, notes, out_of_time=bool(unreached))
    return {
        "outcome": outcome,
        "reason": reason,
        **proof,
        "started_at": moment(began),
        "ended_at": datetime.now(UTC).isoformat(),
        "facts": dict(facts),
        "console_tail": console_tail,
        "measurements": [values for result in measured for values in _measurements(result)],
        "notes": notes[:MOST_NOTES],
        "conditions": conditions_of(results, settings, noise),
    }


def conditions_of(
    results: Sequence[Mapping[str, Any]], settings: Sequence[Mapping[str, Any]], noise: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Under which conditions the cases ran; every other sample is left out until it is small enough to be stored."""
    samples = [{**_names(result), **sample} for result in results for sample in result["samples"]]
    conditions: dict[str, Any] = {
        "settings": [*settings, *({**_names(r), **setting} for r in results for setting in r["settings"])],
        "noise": list(noise),
        "samples": samples,
        "counters": [
            {**_names(result), "event": event, "value": value}
            for result in results
            for event, value in result["counters"].items()
        ],
        "programs": [
            {"benchmark": benchmark, "path": path, "sha256": sha256}
            for benchmark, path, sha256 in sorted(
                {(r["benchmark"], path, sha256) for r in results for path, sha256 in r["programs"].items()}
            )
        ],
    }
    while _size(conditions) > MOST_CONDITION_BYTES and conditions["samples"]:
        conditions["samples"] = conditions["samples"][1::2]
        conditions["samples_left_out"] = len(samples) - len(conditions["samples"])
    return conditions if _size(conditions) <= MOST_CONDITION_BYTES else {"left_out": "the conditions were too large"}


def _outcome(measured: Sequence[object], notes: Sequence[Mapping[str, Any]], *, out_of_time: bool) -> tuple[str, str]:
    if measured:
        return "measured", "the boot's time was over before its last case" if out_of_time else ""
    if out_of_time or (notes and all(note["outcome"] == "timeout" for note in notes)):
        return "timeout", _NO_MEASUREMENT
    first = next((note["reason"] for note in notes if note["outcome"] == "infrastructure"), "")
    return "infrastructure", f"{_NO_MEASUREMENT}: {first}" if first else _NO_MEASUREMENT


def _unreached(
    results: Sequence[Mapping[str, Any]], cases: Sequence[PlannedCase], cores: Sequence[CoreKind]
) -> list[dict[str, Any]]:
    done = {(r["benchmark"], r["case"], r["core_type"]) for r in results}
    reason = "the boot's time was over before it"
    return [
        {
            "benchmark": case.benchmark,
            "case": case.case,
            "core_type": core.name,
            "outcome": "timeout",
            "reason": reason,
        }
        for core in cores
        for case in cases
        if (case.benchmark, case.case, core.name) not in done
    ]


def _measurements(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            **_names(result),
            "version": result["version"],
            "metric": metric,
            "values": list(values),
            "warmup": result["warmup"],
        }
        for metric, values in result["values"].items()
    ]


def _note(result: Mapping[str, Any]) -> dict[str, Any]:
    note = {**_names(result), "outcome": result["outcome"], "reason": result["reason"][:_LONGEST_NOTE]}
    return {**note, "evidence": result["evidence"]} if result["evidence"] else note


def _names(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in ("benchmark", "case", "core_type")}


def _size(conditions: Mapping[str, Any]) -> int:
    return len(json.dumps(conditions))


def failed_body(
    outcome: str, reason: str, *, began: float, tail: str = "", boot_id: str = "", build_id: str = ""
) -> dict[str, Any]:
    """A boot result without measurements, as the protocol writes it. `began` is a wall clock's, for people."""
    return {
        "outcome": outcome,
        "reason": reason,
        "boot_id": boot_id,
        "build_id": build_id,
        "started_at": moment(began) if began else None,
        "ended_at": datetime.now(UTC).isoformat(),
        "console_tail": tail,
    }


def moment(seconds: float) -> str:
    """A journal's wall-clock time as the protocol writes it; now, where the clock had jumped out of all calendars."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return datetime.now(UTC).isoformat()


def boot_body(outcome: BootOutcome) -> dict[str, Any]:
    """The result of a boot that was made in one step, as the protocol writes it."""
    return {
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "boot_id": outcome.boot_id,
        "build_id": outcome.build_id,
        "started_at": outcome.started_at.isoformat(),
        "ended_at": outcome.ended_at.isoformat(),
        "facts": outcome.facts.as_json() if outcome.facts else {},
        "console_tail": outcome.console_tail,
        "measurements": [
            {
                "benchmark": measurement.benchmark,
                "version": measurement.version,
                "case": measurement.case,
                "metric": measurement.metric,
                "core_type": "all",
                "values": list(measurement.values),
                "warmup": measurement.warmup,
            }
            for measurement in outcome.measurements
        ],
        "notes": [
            {"benchmark": note.benchmark, "case": note.case, "outcome": note.outcome, "reason": note.reason}
            for note in outcome.notes
        ],
    }
