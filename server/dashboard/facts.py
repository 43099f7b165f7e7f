"""Facts from machines as text: whatever an agent sent, a page gets short strings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LONGEST = 4000
_TITLES = {
    "uarch": "microarchitecture",
    "vendor": "vendor",
    "family": "family",
    "model": "model",
    "stepping": "stepping",
    "model_name": "CPU",
    "virtual": "virtual",
    "hypervisor": "hypervisor",
    "clock": "clock",
    "kernel_release": "kernel release",
    "cmdline": "kernel command line",
    "memory_kb": "memory (kB)",
    "cpus": "CPUs",
    "core_types": "core types",
    "flags": "CPU flags",
}


@dataclass(frozen=True, slots=True)
class Fact:
    title: str
    text: str
    # Long lists (CPU flags) stand in a fold of their own.
    count: int = 0


def readable_facts(facts: object) -> tuple[Fact, ...]:
    """The known facts first, in the order people ask for them, then all others by name."""
    if not isinstance(facts, Mapping):
        return ()
    known = [name for name in _TITLES if name in facts]
    others = sorted(str(name) for name in facts if name not in _TITLES)
    return tuple(_fact(_TITLES.get(name, name), facts.get(name)) for name in [*known, *others])


def differing_facts(every: Sequence[object]) -> tuple[str, ...]:
    """Titles of the facts in which the boots of one session disagree; the kernel's own release may differ."""
    seen = [dict(facts) for facts in every if isinstance(facts, Mapping) and facts]
    names = sorted({str(name) for facts in seen for name in facts} - {"kernel_release"})
    return tuple(
        _TITLES.get(name, name) for name in names if any(facts.get(name) != seen[0].get(name) for facts in seen)
    )


def _fact(title: str, value: object) -> Fact:
    if isinstance(value, list):
        return Fact(title, _text(value), count=len(value))
    return Fact(title, _text(value))


def _text(value: object) -> str:
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, list):
        text = " ".join(_text(item) for item in value)
    elif isinstance(value, Mapping):
        text = ", ".join(f"{name} {_text(item)}" for name, item in value.items())
    else:
        text = "" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
