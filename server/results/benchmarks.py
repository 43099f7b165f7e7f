"""Reading benchmark descriptions (agents/benchmarks/NAME/benchmark.toml) into the database."""

import hashlib
import math
import tomllib
from pathlib import Path
from typing import Any

from django.db import transaction

from server.core.errors import DomainError
from server.results.models import Benchmark, Case, Metric


def source_version(folder: Path) -> str:
    """SHA-256 in hex over `path NUL sha256hex NUL` of each file, in the order of the paths.

    The agent computes the same number, so that values of another program are never taken for this one's.
    """
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\0".encode())
    return digest.hexdigest()


def load_benchmark(folder: Path) -> Benchmark:
    """Create or update the benchmark described in `folder`. Cases that are gone are disabled, never deleted."""
    try:
        description: dict[str, Any] = tomllib.loads((folder / "benchmark.toml").read_text(encoding="utf-8"))
        return _store(description, source_version(folder))
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise DomainError("bad-benchmark", f"{folder / 'benchmark.toml'}: {error!r}") from error


@transaction.atomic
def _store(description: dict[str, Any], version: str) -> Benchmark:
    benchmark, _ = Benchmark.objects.update_or_create(
        name=description["name"], defaults={"title": description["title"], "version": version}
    )
    for metric in description["metrics"]:
        Metric.objects.update_or_create(
            benchmark=benchmark,
            name=metric["name"],
            defaults={
                "title": metric["title"],
                "unit": metric["unit"],
                "better": metric["better"],
                "resolution": _resolution(metric),
            },
        )
    for case in description["cases"]:
        Case.objects.update_or_create(
            benchmark=benchmark,
            name=case["name"],
            defaults={
                "title": case["title"],
                "runs": case["runs"],
                "warmup": case.get("warmup", 1),
                "timeout_seconds": case.get("timeout_seconds", 60),
                "enabled": True,
            },
        )
    names = [case["name"] for case in description["cases"]]
    benchmark.cases.exclude(name__in=names).update(enabled=False)
    return benchmark


def _resolution(metric: dict[str, Any]) -> float:
    """The smallest step of the metric's values in its unit; 0, the default, says that it is not known."""
    value = metric.get("resolution", 0.0)
    # A truth value would count as 0 or 1.
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not known or value < 0:
        raise ValueError(f"metric {metric['name']}: resolution: {value!r} is no number from 0")
    return float(value)
