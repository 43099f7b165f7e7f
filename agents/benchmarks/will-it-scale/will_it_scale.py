"""Reads what a will-it-scale program prints: seconds of warm-up, seconds of measurement, and their average."""

import re

_SECOND = r"min:\d{1,18} max:\d{1,18} total:\d{1,18}\n"
_OUTPUT = re.compile(
    rf"testcase:[^\n]*\nwarmup\n(?:{_SECOND})*measurement\n(?P<measured>(?:{_SECOND})+)average:(?P<average>\d{{1,18}})\n",
    re.ASCII,
)
_TOTAL = re.compile(r"total:(\d+)\n", re.ASCII)


def parse(text: str, case: str) -> list[tuple[str, float]]:
    """Operations per second of all tasks; raises ValueError unless the average is that of the seconds before it."""
    found = _OUTPUT.fullmatch(text)
    if found is None:
        raise ValueError(f"the output of {case} is not a warm-up, a measurement and an average, each on whole lines")
    totals = [int(total) for total in _TOTAL.findall(found["measured"])]
    average = int(found["average"])
    if average != sum(totals) // len(totals):
        raise ValueError(f"the average {average} is not that of {len(totals)} seconds")
    return [("operations", float(average))]
