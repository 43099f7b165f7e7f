"""CPU lists and the words that stand for numbers of CPUs."""

from tidemark_agent.errors import InfrastructureError

_MOST_CPUS = 8192


def parse_cpus(text: str) -> tuple[int, ...]:
    """The CPUs in a list like `0-3,8`, in order; raises InfrastructureError for anything else."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) >= _MOST_CPUS:
            raise InfrastructureError(f"{text!r} is no list of CPUs")
        found |= set(range(int(first), int(last or first) + 1))
    if not found:
        raise InfrastructureError(f"{text!r} is no list of CPUs")
    return tuple(sorted(found))


def count_of(word: str, cpus: int) -> int:
    """How many CPUs `1`, `half` or `all` (or any number) of `cpus` are; at least one."""
    if word == "all":
        return cpus
    if word == "half":
        return max(1, cpus // 2)
    if word.isdecimal() and 0 < int(word) <= cpus:
        return int(word)
    raise InfrastructureError(f"{word!r} of {cpus} CPUs cannot be had")
