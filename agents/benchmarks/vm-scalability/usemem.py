"""Reads what the tasks of a vm-scalability case print: `N bytes / N usecs = N KB/s` from each, in any order."""

import re

_TASKS = re.compile(r"tasks: (\d{1,6})\n", re.ASCII)
_RATE = re.compile(r"(\d{1,18}) bytes / (\d{1,18}) usecs = (\d{1,18}) KB/s\n", re.ASCII)
_OTHER = re.compile(
    r"\d{1,18} usecs to free memory\n|the initialization time is \d{1,18} secs \d{1,18} usecs\n", re.ASCII
)


def parse(text: str, case: str) -> list[tuple[str, float]]:
    """KiB per second of all tasks together; raises ValueError unless each task has printed one whole line."""
    lines = text.splitlines(keepends=True)
    tasks = _TASKS.fullmatch(lines[0]) if lines else None
    if tasks is None:
        raise ValueError(f"the output of {case} does not begin with the number of its tasks")
    rates = []
    for line in lines[1:]:
        rate = _RATE.fullmatch(line)
        if rate:
            rates.append(_checked(*(int(number) for number in rate.groups())))
        elif not _OTHER.fullmatch(line):
            raise ValueError(f"a line that no task prints: {line.strip()[:100]!r}")
    if len(rates) != int(tasks[1]):
        raise ValueError(f"{len(rates)} tasks have printed a rate, {tasks[1]} were started")
    return [("rate", float(sum(rates)))]


def _checked(size: int, microseconds: int, rate: int) -> int:
    """`rate` if it is what the other two numbers make, as usemem counts: whole bytes per second, then whole KiB."""
    if microseconds == 0 or abs(size * 1_000_000 // microseconds // 1024 - rate) > 1:
        raise ValueError(f"{size} bytes in {microseconds} us are not {rate} KiB/s")
    return rate
