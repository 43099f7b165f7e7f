"""Lines of kernel configuration: which symbols a text sets, and what several texts say together. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_SET = re.compile(r"(CONFIG_[A-Za-z0-9_]+)=(\S.*)")
_UNSET = re.compile(r"# (CONFIG_[A-Za-z0-9_]+) is not set")
# Texts of this size hold every symbol that a kernel has; more is a slip or mischief.
MOST_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class Part:
    """One text of a configuration, with the name under which people know it."""

    name: str
    text: str


@dataclass(frozen=True)
class Overruled:
    """A symbol that two parts set to different values; the later part counts."""

    symbol: str
    earlier: str
    earlier_value: str
    later: str
    later_value: str

    def __str__(self) -> str:
        ends = f"{self.later} sets it to {self.later_value}, which counts"
        return f"{self.symbol}: {self.earlier} sets it to {self.earlier_value}, {ends}"


def read_lines(text: str) -> Mapping[str, str]:
    """Symbol to value, "n" for one that is not set; the later line counts. Comments and empty lines are skipped.

    Raises ValueError with the number of a line that is neither.
    """
    return dict(_assignments(text))


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"has {len(text)} characters, {MOST_CHARACTERS} are allowed")
    for number, line in enumerate(text.splitlines(), start=1):
        assignment = _SET.fullmatch(line.strip()) or _UNSET.fullmatch(line.strip())
        if assignment is not None:
            yield assignment[1], assignment[2].strip() if assignment.re is _SET else "n"
        elif line.strip() and not line.lstrip().startswith("#"):
            raise ValueError(f"line {number} is no CONFIG_ line: {line.strip()[:80]}")


def merged(parts: Iterable[Part]) -> str:
    """The parts as one text in their order, the later lines of a symbol going before the earlier.

    A single part is given as it is. Of several, a line that a later part overrules is left out, so that the text can be
    demanded of a finished .config line by line.
    """
    parts = list(parts)
    if len(parts) == 1:
        return parts[0].text
    values: dict[str, str] = {}
    for part in parts:
        for symbol, value in read_lines(part.text).items():
            # The place of a symbol is where it is said last.
            values.pop(symbol, None)
            values[symbol] = value
    return "".join(f"{as_line(symbol, value)}\n" for symbol, value in values.items())


def as_line(symbol: str, value: str) -> str:
    return f"# {symbol} is not set" if value == "n" else f"{symbol}={value}"


def overruled(parts: Iterable[Part]) -> list[Overruled]:
    """Symbols that a later part, or a later line of one, sets to another value, in the order in which that is read."""
    said: dict[str, tuple[str, str]] = {}
    found = []
    for part in parts:
        for symbol, value in _assignments(part.text):
            earlier, earlier_value = said.get(symbol, (part.name, value))
            if earlier_value != value:
                found.append(Overruled(symbol, earlier, earlier_value, part.name, value))
            said[symbol] = (part.name, value)
    return found
