"""CPU lists as the kernel writes them (`0,2-5`) and CPU masks (`ff,00000001`)."""

import re

# More than any kernel can have (NR_CPUS is at most 8192): a hostile "0-999999999" must not fill the memory.
_MOST_CPUS = 16384
_PIECE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_MASK = re.compile(r"[0-9a-fA-F]{1,8}(?:,[0-9a-fA-F]{1,8})*")


def cpu_set(text: str) -> frozenset[int]:
    """The CPUs of a list; raises ValueError for anything else."""
    cpus: set[int] = set()
    for piece in text.strip().split(",") if text.strip() else ():
        match = _PIECE.fullmatch(piece.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < _MOST_CPUS:
            raise ValueError(f"{text.strip()[:80]!r} is no list of CPUs")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def cpu_list(cpus: frozenset[int]) -> str:
    """The shortest list of these CPUs: `0,2-5`, "" for none."""
    pieces: list[list[int]] = []
    for cpu in sorted(cpus):
        if pieces and pieces[-1][1] == cpu - 1:
            pieces[-1][1] = cpu
        else:
            pieces.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pieces)


def common_cpus(one: str, other: str) -> str:
    """The CPUs that both lists have: those of a core type that are measured, say."""
    return cpu_list(cpu_set(one) & cpu_set(other))


def without_cpus(cpus: str, removed: str) -> str:
    return cpu_list(cpu_set(cpus) - cpu_set(removed))


def mask_set(text: str) -> frozenset[int]:
    """The CPUs of a hexadecimal mask; raises ValueError for anything else."""
    if not _MASK.fullmatch(text.strip()) or len(text) > _MOST_CPUS // 3:
        raise ValueError(f"{text.strip()[:80]!r} is no mask of CPUs")
    # Groups after the first always have eight digits; the kernel takes shorter ones as it takes 00000001.
    first, *rest = text.strip().split(",")
    bits = int(first + "".join(group.zfill(8) for group in rest), 16)
    return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def cpu_mask(cpus: frozenset[int]) -> str:
    """A mask in groups of 32 CPUs, without leading zeros."""
    bits = sum(1 << cpu for cpu in cpus)
    groups: list[int] = []
    while bits or not groups:
        groups.append(bits & 0xFFFFFFFF)
        bits >>= 32
    head, *tail = reversed(groups)
    return ",".join([f"{head:x}", *(f"{group:08x}" for group in tail)])
