"""From the output of a program to values: our own JSON lines, or the parser that lies in the benchmark's folder."""

import contextlib
import functools
import io
from collections.abc import Callable, Mapping, Sequence

from tidemark_agent.benchmarks import Benchmark
from tidemark_agent.cases.ended import CaseEndedError
from tidemark_agent.cases.output import json_values, sane

Parse = Callable[[str, str], Sequence[tuple[str, float]]]


def values_in(benchmark: Benchmark, text: str, case: str, metrics: Sequence[str]) -> Mapping[str, list[float]]:
    """The values that one process printed, by metric; raises CaseEndedError if there is anything else but them."""
    require_presence(benchmark, text)
    line = _line_with(text, benchmark.program.failures)
    if line:
        raise CaseEndedError("failed", line, text)
    zero = {metric.name for metric in benchmark.metrics.values() if metric.zero}
    parse = _parser_of(benchmark)
    if parse is None:
        return json_values(text.split("\n"), case, metrics, zero)
    try:
        pairs = parse(text, case)
    except ValueError as error:
        raise CaseEndedError("garbled", f"garbled output: {error}", text) from error
    return _checked(pairs, metrics, zero, text)


def require_presence(benchmark: Benchmark, text: str) -> None:
    """Raise CaseEndedError `skipped` where the program says that it does not have the case."""
    line = _line_with(text, benchmark.program.absences)
    if line:
        raise CaseEndedError("skipped", line, text)


def _checked(
    pairs: Sequence[tuple[str, float]], metrics: Sequence[str], zero: set[str], text: str
) -> Mapping[str, list[float]]:
    found: dict[str, list[float]] = {metric: [] for metric in metrics}
    for metric, value in pairs:
        number = sane(value, may_be_zero=metric in zero)
        if number is None:
            raise CaseEndedError("garbled", f"garbled output: {metric} is {value}", text)
        if metric in found:
            found[metric].append(number)
    return found


def parser_from(source: str) -> Parse:
    """The function `parse` of a parser's source."""
    room: dict[str, object] = {"__name__": "parser_of_a_benchmark"}
    # A parser that prints would disturb the agent's own log.
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, "parser", "exec"), room)  # noqa: S102 (the agent's own file)
    parse = room["parse"]
    assert callable(parse)
    return parse


def _parser_of(benchmark: Benchmark) -> Parse | None:
    name = benchmark.program.parser
    return _compiled(dict(benchmark.files)[name].decode("utf-8")) if name else None


_compiled = functools.lru_cache(parser_from)


def _line_with(text: str, words: Sequence[str]) -> str:
    """The first line that holds one of `words`, whatever their case."""
    for line in text.split("\n"):
        if any(word.lower() in line.lower() for word in words):
            return line.strip(" #\t")[:300]
    return ""
