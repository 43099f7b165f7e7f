"""Documents of published cases, as the service gives them (tests/api/test_published_case.py holds that form)."""

from typing import Any

from tidemark_agent.benchmarks.bundle import find_benchmark


def build_document(**changes: Any) -> dict[str, Any]:
    """A case of mm-basic that one machine measured; `changes` replace whole parts."""
    kernel = {"id": 1, "build_id": "ab" * 20, "arch": "x86_64", "config": "lean-x86-64", "toolchain": "gcc"}
    machine = {
        "name": "box-zen5",
        "uarch": "zen5",
        "virtual": False,
        "evidence": True,
        "clock": "wall",
        "session": 7,
        "base": kernel,
        "patched": {**kernel, "build_id": "cd" * 20},
        "model_name": "A CPU",
        "kernel_release": "7.3.4",
        "cmdline": "quiet",
        "flags": ["erms", "fsrm"],
    }
    document = {
        "format": "tidemark-case",
        "version": 1,
        "series": 3,
        "subject": "mm: copy folios at once",
        "message_id": "1@example.org",
        "base": None,
        "patched": None,
        "case": {
            "benchmark": "mm-basic",
            "version": find_benchmark("mm-basic").version,
            "name": "copy",
            "title": "Copy memory",
            "runs": 6,
            "warmup": 1,
            "timeout_seconds": 60,
        },
        "metrics": [{"name": "time", "title": "Time", "unit": "ns", "better": "lower", "resolution": 0.04}],
        "machines": [machine],
        "cells": [build_cell()],
    }
    return {**document, **changes}


def build_cell(**changes: Any) -> dict[str, Any]:
    cell = {
        "comparison_id": 1,
        "machine": "box-zen5",
        "uarch": "zen5",
        "core_type": "all",
        "metric": "time",
        "verdict": "improved",
        "reason": "",
        "base_boots": 4,
        "patched_boots": 4,
        "base_mean": 412.0,
        "patched_mean": 206.0,
        "ratio": 0.5,
        "ratio_low": 0.49,
        "ratio_high": 0.51,
        "mde": 0.012,
    }
    return {**cell, **changes}
