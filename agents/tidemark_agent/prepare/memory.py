"""Wishes about memory that hold for all cases unless one says otherwise."""

from tidemark_agent.prepare.files import KernelFiles, SettingError
from tidemark_agent.prepare.kinds import swaps
from tidemark_agent.prepare.model import CannotMeasureError
from tidemark_agent.prepare.wishes import Want, Wish

THP = "sys/kernel/mm/transparent_hugepage"
NUMA_BALANCING = "proc/sys/kernel/numa_balancing"
ASLR = "proc/sys/kernel/randomize_va_space"
_KSM = "sys/kernel/mm/ksm/run"


def transparent_huge_pages() -> tuple[Wish, ...]:
    """`madvise`, so that programs get huge pages where they ask for them, whatever the kernel was configured for."""
    return (
        Wish("thp", "madvise", (Want("word", f"{THP}/enabled", "madvise"),)),
        Wish("thp-defrag", "madvise", (Want("word", f"{THP}/defrag", "madvise"),)),
    )


def numa_balancing() -> Wish:
    """Pages that wander to other nodes by themselves make every run another."""
    return Wish("numa-balancing", "off", (Want("word", NUMA_BALANCING, "0"),))


def address_space() -> Wish:
    """On, the kernel's own default: one fixed layout would be a single draw of luck for all boots."""
    return Wish("aslr", "on", (Want("word", ASLR, "2"),))


def same_page_merging(files: KernelFiles) -> Wish:
    """Stopped. Where it ran, what it has merged is taken apart as well: copy-on-write faults would be measured."""
    wanted = "2" if files.text(_KSM) == "1" else files.text(_KSM) or "0"
    return Wish("ksm", "off", (Want("word", _KSM, wanted),))


def swap(files: KernelFiles) -> Wish:
    try:
        found = swaps(files)
    except SettingError as error:
        raise CannotMeasureError(f"swap cannot be looked at: {error}") from error
    parts = tuple(Want("swap", path, "off") for path in found)
    return Wish("swap", "off", parts, absence="there is no swap")
