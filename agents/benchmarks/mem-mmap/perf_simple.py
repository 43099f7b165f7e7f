"""Reads what `perf bench --format=simple mem ...` prints for one function: its name, then bytes per second."""

import re

_MIB = 1024**2
_OUTPUT = re.compile(r"# function '(?P<function>[\w-]+)' \([^\n]*\)\n(?P<rate>\d{1,18}\.\d{6})\n", re.ASCII)


def parse(text: str, case: str) -> list[tuple[str, float]]:
    """The rate in MiB/s; raises ValueError unless the output is exactly these two lines, for the case's function."""
    found = _OUTPUT.fullmatch(text)
    if found is None:
        raise ValueError("not a function's name and its rate, each on a whole line")
    function = found["function"]
    if f"-{function}-" not in f"-{case}-":
        raise ValueError(f"the function {function} is not that of {case}")
    return [("rate", float(found["rate"]) / _MIB)]
