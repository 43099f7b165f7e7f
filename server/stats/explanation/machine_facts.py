"""Facts of machines made comparable, as yes-or-no statements with the machines of which each is true."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard, TypeVar

Facts = Mapping[str, object]

# Facts that tell which model a machine is: they separate any model from any other and explain nothing, but machines
# that differ in them are not the same.
MODEL = frozenset({"core_types", "cpu_kinds", "family", "midr", "model", "model_name", "stepping", "uarch"})
# Facts of the single machine, or those that may differ between the kernels of one comparison.
INDIVIDUAL = frozenset(
    {
        *("clock", "cmdline", "hostname", "hypervisor", "machine", "virtual", "virtualization", "doubts"),
        *("kernel_build_id", "kernel_release", "kernel_version"),
        *("fingerprint", "fingerprint_parts", "board"),
        # These in full differ between any two models: what may explain something is told once more as a number or word.
        *("alternatives", "caches", "frequency", "huge_pages"),
    }
)
NAMES = MODEL | INDIVIDUAL
# Facts come from agents: more memory is somebody's mistake.
_MOST_MEMORY = 1e18
# What is told of the hypervisor by machines that have none.
_NO_GUEST = frozenset({"", "0", "false", "no", "none"})
_KIB_OF_GIB = 1 << 20


def tidy(told: object) -> dict[str, object]:
    """The facts by name, empty when they are none. Flags in one text become a set, memory a whole number of GiB.

    Facts with names inside become facts of their own: mitigations.retbleed. Of a list of nodes their number counts.

    The kernel's count of its memory in kB differs between machines with equal memory, and from boot to boot.
    """
    if not isinstance(told, Mapping):
        return {}
    named = {name: value for name, value in told.items() if isinstance(name, str) and value is not None}
    facts = {name: _comparable(value) for name, value in _flat(named).items()}
    if isinstance(facts.get("flags"), str):
        facts["flags"] = frozenset(str(facts["flags"]).split())
    if isinstance(facts.get("nodes"), frozenset) and facts.pop("nodes"):
        facts["nodes"] = len(told["nodes"])
    memory = facts.pop("memory_kb", None)
    if isinstance(memory, int | float) and not isinstance(memory, bool) and 0 < memory < _MOST_MEMORY:
        facts["memory_gib"] = round(memory / _KIB_OF_GIB)
    return facts


def is_guest(facts: Facts) -> bool:
    """Whether these tidied facts are those of a virtual machine."""
    flags = facts.get("flags")
    flagged = isinstance(flags, Collection) and not isinstance(flags, str) and "hypervisor" in flags
    return flagged or any(_says_guest(facts.get(name)) for name in ("virtual", "hypervisor"))


def are_alike(one: Facts, other: Facts) -> bool:
    """Whether two machines are of one known model, and equal in every fact that is told of either of them."""
    names = (one.keys() | other.keys()) - INDIVIDUAL
    return bool(one.get("uarch")) and all(name in one and name in other and one[name] == other[name] for name in names)


def _flat(named: Mapping[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in named.items():
        if isinstance(value, Mapping) and name not in NAMES:
            inside = {f"{name}.{part}": one for part, one in value.items() if isinstance(part, str)}
            flat.update({part: one for part, one in inside.items() if one is not None})
        else:
            flat[name] = value
    return flat


def _says_guest(told: object) -> bool:
    if isinstance(told, str):
        return told.strip().lower() not in _NO_GUEST
    return told == 1


def _comparable(value: object) -> object:
    return frozenset(map(str, value)) if isinstance(value, set | frozenset | list | tuple) else value


_Ordered = TypeVar("_Ordered", int, float, tuple[int, ...])

# The CPU flags by which the kernel chooses its copy and clear routines, named first among facts that separate alike.
SUSPECTS = ("fsrm", "erms", "fzrm", "fsrs", "rep_good")
# Facts come from agents: larger numbers and longer words are somebody's mistake, or worse.
_LARGEST = 1e18
_LONGEST_WORD = 60
# Long options often differ at their end only.
_END_OF_LONG_WORD = 20
_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_VERSION = re.compile(r"v?\d{1,9}(\.\d{1,9})+")


@dataclass(frozen=True)
class Statement:
    """`subject` is the flag or fact it is about; `text` reads "no fsrm", "llc_bytes >= 32 MiB", "preempt is full".

    `suspected`: known to be what such changes come from.
    """

    subject: str
    text: str
    suspected: bool = False


@dataclass(frozen=True)
class Statements:
    """By the machines of which they are true (bit i for machine i), all statements, the suspected ones first.

    `unknown` are the facts that were not used because a machine does not tell them, or tells them in another shape.
    """

    by_machines: dict[int, tuple[Statement, ...]]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class _Told:
    """One property with the machines that have it, and the words for having it and not."""

    subject: str
    holders: Sequence[bool]
    yes: str
    no: str


def statements(machines: Sequence[Facts], *, ignored: Collection[str], suspects: Sequence[str]) -> Statements:
    """Every statement that is true of some of the machines and false of the others."""
    everyone = (1 << len(machines)) - 1
    found: dict[int, list[Statement]] = defaultdict(list)
    unknown = []
    for name in sorted({name for facts in machines for name in facts} - set(ignored)):
        told = _told(name, [facts.get(name) for facts in machines])
        if told is None:
            unknown.append(name)
        for one in told or ():
            holders = sum(1 << place for place, holds in enumerate(one.holders) if holds)
            if 0 < holders < everyone:
                found[holders].append(Statement(one.subject, one.yes, one.subject in suspects))
                found[everyone ^ holders].append(Statement(one.subject, one.no, one.subject in suspects))
    return Statements(_best_first(found, suspects), tuple(unknown))


def _best_first(found: Mapping[int, list[Statement]], suspects: Sequence[str]) -> dict[int, tuple[Statement, ...]]:
    place = {subject: number for number, subject in enumerate(suspects)}

    def order(one: Statement) -> tuple[int, str, str]:
        return place.get(one.subject, len(place)), one.subject, one.text

    ordered = {mask: tuple(sorted(said, key=order)) for mask, said in found.items()}
    return dict(sorted(ordered.items(), key=lambda item: order(item[1][0])))


def _told(name: str, values: Sequence[object]) -> list[_Told] | None:
    """What one fact says of all machines; None when it is not known, or not of one kind, on all of them."""
    if all(isinstance(value, bool) for value in values):
        return [_Told(name, [value is True for value in values], f"{name} is true", f"{name} is false")]
    numbers = [value for value in values if _is_number(value)]
    if len(numbers) == len(values):
        return _steps(name, numbers, [_sized(name, number) for number in numbers])
    words = [value for value in values if isinstance(value, str) and value]
    if len(words) == len(values):
        return _texts(name, words)
    sets = [frozenset(map(str, value)) for value in values if isinstance(value, frozenset | set | list | tuple)]
    return _members(name, sets) if len(sets) == len(values) else None


def _steps(name: str, values: Sequence[_Ordered], texts: Sequence[str]) -> list[_Told]:
    """One threshold between each two neighbouring values, written as the upper of them."""
    text = dict(zip(values, texts, strict=True))
    return [
        _Told(name, [not value < step for value in values], f"{name} >= {text[step]}", f"{name} < {text[step]}")
        for step in sorted(text)[1:]
    ]


def _texts(name: str, values: Sequence[str]) -> list[_Told]:
    if all(map(_VERSION.fullmatch, values)):
        return _steps(name, [_version(value) for value in values], [_short(value) for value in values])
    return [
        _Told(name, [value == one for value in values], f"{name} is {_short(one)}", f"{name} is not {_short(one)}")
        for one in sorted(set(values))
    ]


def _members(name: str, sets: Sequence[frozenset[str]]) -> list[_Told]:
    where = "" if name == "flags" else f" in {name}"
    return [
        _Told(
            f"{word}{where}",
            [word in members for members in sets],
            f"{_short(word)}{where}",
            f"no {_short(word)}{where}",
        )
        for word in sorted(frozenset().union(*sets))
    ]


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float) and abs(value) < _LARGEST


def _version(text: str) -> tuple[int, ...]:
    """The numbers of a version: 13.1 and 13.1.0 are the same."""
    numbers = [int(number) for number in text.lstrip("v").split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _short(word: str) -> str:
    line = " ".join(word.split())
    if len(line) <= _LONGEST_WORD:
        return line
    return f"{line[: _LONGEST_WORD - _END_OF_LONG_WORD]}...{line[-_END_OF_LONG_WORD:]}"


def _sized(name: str, value: float) -> str:
    """Sizes in bytes as people write them, other numbers as they are."""
    if name.endswith("bytes"):
        for size, unit in _UNITS:
            if value >= size and value % size == 0:
                return f"{value // size:.0f} {unit}"
    # The shortest text from which the same number is read back, so that different numbers never look equal.
    return f"{value:,}" if isinstance(value, int) else repr(value).removesuffix(".0")
