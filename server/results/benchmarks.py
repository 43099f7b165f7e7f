"""Reading benchmark descriptions (agents/benchmarks/NAME/benchmark.toml) into the database."""

import hashlib
import itertools
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from django.core.validators import slug_re
from django.db import transaction
from django.db.models import ProtectedError

from server.builds.records import retire_module_builds
from server.core.errors import DomainError
from server.results.models import Benchmark, BenchmarkVersion, Case, Metric

# One `[[cases]]` entry of a benchmark.toml may stand for many: its `matrix` is multiplied out here.
#
# The agent does the same (agents/tidemark_agent/benchmarks/description.py), of which it knows nothing; a test keeps
# the two alike.

_SETTING = re.compile(r"([a-z][a-z0-9_]*)=([^{}]+)")
_PLACE = re.compile(r"\{([a-z][a-z0-9_]*)\}")


def expand(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The entry without its matrix, once for each combination, with `{key}` filled in in its name and title.

    `parameters` has what tells these cases apart.

    Raises ValueError for a matrix that is no table of lists of texts.
    """
    matrix = entry.get("matrix", {})
    if not isinstance(matrix, dict) or not all(_is_list_of_texts(values) for values in matrix.values()):
        raise ValueError("a matrix is a table of lists of texts")
    fixed = _fixed(entry)
    for chosen in itertools.product(*matrix.values()):
        words = dict(zip(matrix, chosen, strict=True))
        texts = {key: _fill(str(entry[key]), words) for key in ("name", "title")}
        plain = {key: value for key, value in entry.items() if key != "matrix"}
        yield {**plain, **texts, "parameters": {**fixed, **words}}


def _fixed(entry: Mapping[str, Any]) -> dict[str, str]:
    """What its command says as `key=value` alike for all of them."""
    found = (_SETTING.fullmatch(word) for word in entry.get("command", ()) if isinstance(word, str))
    return {pair[1]: pair[2] for pair in found if pair}


def _fill(text: str, words: Mapping[str, str]) -> str:
    """`text` with the known `{key}` replaced; unknown ones stay as they are."""
    return _PLACE.sub(lambda found: words.get(found[1], found[0]), text)


def _is_list_of_texts(values: object) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, str) for value in values)


_LONGEST_NAME = 60
_LONGEST_MEANING = 80


def source_version(folder: Path, shared: Sequence[str] = ()) -> str:
    """SHA-256 in hex over `path NUL sha256hex NUL` of each file, in the byte order of the paths.

    `shared` are files of neighbouring folders, which count as if they lay in this one. Of benchmark.toml its meaning
    counts, without what is only said to people. The agent computes the same number, so that values of another program
    are never taken for this one's. Raises ValueError for a benchmark.toml that is none.
    """
    own = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    files = {path.relative_to(folder).as_posix(): path for path in own}
    files |= {place.rpartition("/")[2]: folder.parent / place for place in shared}
    digest = hashlib.sha256()
    for name in sorted(files, key=str.encode):
        content = files[name].read_bytes()
        content = _measured_by(content) if name == "benchmark.toml" else content
        digest.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\0".encode())
    return digest.hexdigest()


def _measured_by(description: bytes) -> bytes:
    """What a benchmark.toml says, but for titles and sources, as sorted JSON."""
    said = tomllib.loads(description.decode())
    for part in (said, *said.get("cases", []), *said.get("metrics", [])):
        part.pop("title", None)
    for words in ("follows", "words"):
        said.pop(words, None)
    return json.dumps(said, sort_keys=True, separators=(",", ":"), default=str).encode()


def load_benchmark(folder: Path) -> Benchmark:
    """Create or update the benchmark described in `folder`. Cases that are gone are disabled, never deleted."""
    try:
        description: dict[str, Any] = tomllib.loads((folder / "benchmark.toml").read_text(encoding="utf-8"))
        return _store(description, source_version(folder, description.get("shared", ())))
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise DomainError("bad-benchmark", f"{folder / 'benchmark.toml'}: {error!r}") from error


@transaction.atomic
def _store(description: dict[str, Any], version: str) -> Benchmark:
    # Read before it is overwritten.
    is_known = Benchmark.objects.filter(name=description["name"], version=version).exists()
    benchmark, _ = Benchmark.objects.update_or_create(
        name=description["name"],
        defaults={"title": description["title"], "version": version, "words": _words(description)},
    )
    # Now, so that results that name benchmarks in any order find what they refer to.
    BenchmarkVersion.objects.get_or_create(benchmark=benchmark, hash=version)
    if not is_known and description.get("program", {}).get("kind") == "module":
        retire_module_builds(f"benchmark {benchmark.name} is new, or has another version")
    _forget_metrics(benchmark, {metric["name"] for metric in description["metrics"]})
    for metric in description["metrics"]:
        Metric.objects.update_or_create(
            benchmark=benchmark,
            name=metric["name"],
            defaults={
                "title": metric["title"],
                "unit": metric["unit"],
                "better": _better(metric),
                "resolution": _resolution(metric),
                "exact": metric.get("exact", False) is True,
            },
        )
    cases = [case for entry in description["cases"] for case in expand(entry)]
    for case in cases:
        Case.objects.update_or_create(
            benchmark=benchmark,
            name=_slug(case["name"]),
            defaults={
                "title": case["title"],
                "parameters": case["parameters"],
                "runs": case["runs"],
                "warmup": case.get("warmup", 1),
                "timeout_seconds": case.get("timeout_seconds", 60),
                "enabled": True,
            },
        )
    names = [case["name"] for case in cases]
    benchmark.cases.exclude(name__in=names).update(enabled=False)
    return benchmark


def _words(description: Mapping[str, Any]) -> dict[str, str]:
    """What is said of words that stand in names of cases, each in so few words that a mail has room for it."""
    words = dict(description.get("words", {}))
    for word, meaning in words.items():
        if not isinstance(meaning, str) or not 0 < len(meaning) <= _LONGEST_MEANING:
            raise ValueError(f"words: {word!r} is told in 1 to {_LONGEST_MEANING} letters")
    return words


def _forget_metrics(benchmark: Benchmark, names: set[str]) -> None:
    """Delete metrics that are gone: agents would be asked for them, and each case would lack their values."""
    for metric in benchmark.metrics.exclude(name__in=names):
        try:
            metric.delete()
        except ProtectedError as error:
            raise ValueError(f"metric {metric.name} is gone but was measured: give the benchmark a new name") from error


def _slug(name: str) -> str:
    if len(name) > _LONGEST_NAME or not slug_re.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a case: letters, digits, - and _, at most {_LONGEST_NAME}")
    return name


def _better(metric: dict[str, Any]) -> str:
    if metric["better"] not in Metric.Better.values:
        raise ValueError(f"metric {metric['name']}: better: {metric['better']!r} is none of lower, higher, none")
    return str(metric["better"])


def _resolution(metric: dict[str, Any]) -> float:
    """The smallest step of the metric's values in its unit; 0, the default, says that it is not known."""
    value = metric.get("resolution", 0.0)
    # A truth value would count as 0 or 1.
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not known or value < 0:
        raise ValueError(f"metric {metric['name']}: resolution: {value!r} is no number from 0")
    return float(value)
