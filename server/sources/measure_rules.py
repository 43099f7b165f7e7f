"""What to measure: changed paths choose benchmarks by rules that admins edit; the rules a new site begins with."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from server.sources.models import MeasureRule

_Sign = TypeVar("_Sign")
_Part = TypeVar("_Part")


def matches(
    pattern: Sequence[_Sign],
    parts: Sequence[_Part],
    *,
    is_star: Callable[[_Sign], bool],
    fits: Callable[[_Sign, _Part], bool],
) -> bool:
    """Whether `pattern` covers all of `parts`; a star covers any number of them, every other sign one that it fits.

    Only the last star passed is ever stretched, so that the work is at most len(pattern) * len(parts).
    """
    sign = part = 0
    star, stretched = -1, 0
    while part < len(parts):
        if sign < len(pattern) and is_star(pattern[sign]):
            star, stretched = sign, part
            sign += 1
        elif sign < len(pattern) and fits(pattern[sign], parts[part]):
            sign, part = sign + 1, part + 1
        elif star >= 0:
            stretched += 1
            sign, part = star + 1, stretched
        else:
            return False
    return all(is_star(rest) for rest in pattern[sign:])


def matches_text(pattern: str, text: str) -> bool:
    """`*` covers any characters, `?` one; nothing else is special."""
    return matches(pattern, text, is_star=lambda sign: sign == "*", fits=lambda sign, char: sign in {"?", char})


def matches_path(pattern: str, path: str) -> bool:
    """A pattern as in .gitignore: it covers files and all that lies below a directory.

    `*` and `?` stay within one name, `**` covers any number of directories. A pattern without a slash but at its end
    fits at any depth, others begin at the root.
    """
    names = [name for name in pattern.split("/") if name]
    if "/" not in pattern.rstrip("/"):
        names.insert(0, "**")
    return pattern.strip("/") != "" and matches(
        [*names, "**"], path.split("/"), is_star=lambda name: name == "**", fits=matches_text
    )


class Rule(NamedTuple):
    """`benchmarks` are names of benchmarks, or BENCHMARK/CASE with the beginning of a case's name."""

    pattern: str
    benchmarks: tuple[str, ...]
    note: str


# What every series is measured with.
DEFAULT_PATTERN = "**"

_FAULTS = ("mem-mmap", "will-it-scale/page_fault")
_MAPPINGS = ("will-it-scale/mmap", "will-it-scale/brk", "will-it-scale/page_fault", "mm-basic")
_COPIES = ("folio-copy", "copy-page", "move-pages", "mem-copy")
_MIGRATION = ("move-pages", "folio-copy", "copy-page")
_RECLAIM = ("vm-scalability", "mem-used")
_ALLOCATION = (*_RECLAIM, "will-it-scale/page_fault", "will-it-scale/malloc", "mem-mmap")
_ALL_MEMORY = ("mem-mmap", "vm-scalability", "will-it-scale")
_LOAD = ("kernel-compile", "will-it-scale")

_FAULTING = "faults and the pages they bring"
_COPYING = "copying pages"
_CLEARING = "clearing pages"
_USER_COPYING = "copying between user space and the kernel; perf runs the same assembly"
_MIGRATING = "moving pages"
_MAPPING = "mappings and their page tables"
_TLB = "flushing translations"
_ALLOCATING = "giving out pages"
_RECLAIMING = "taking pages back"
_MEMORY = "memory management everywhere"
_SCHEDULING = "scheduling and locking under many tasks"
_PAGE_CACHE = "files in memory and small objects, as a compiler uses them"

RULES = (
    Rule(DEFAULT_PATTERN, ("mm-basic", "will-it-scale/page_fault1", "kernel-compile/tinyconfig-jall"), "the default"),
    Rule("mm/memory.c", _FAULTS, _FAULTING),
    Rule("mm/huge_memory.c", _FAULTS, _FAULTING),
    Rule("mm/khugepaged.c", (*_FAULTS, "vm-scalability"), _FAULTING),
    Rule("mm/hugetlb*", ("mem-mmap",), _FAULTING),
    Rule("mm/rmap.c", (*_FAULTS, "vm-scalability", *_MIGRATION), _FAULTING),
    Rule("mm/swap*", _RECLAIM, _RECLAIMING),
    Rule("arch/*/mm/fault.c", _FAULTS, _FAULTING),
    Rule("mm/util.c", _COPIES, _COPYING),
    Rule("mm/migrate*.c", _COPIES, _MIGRATING),
    Rule("mm/mempolicy.c", _MIGRATION, _MIGRATING),
    Rule("mm/compaction.c", (*_MIGRATION, "vm-scalability"), _MIGRATING),
    Rule("mm/memory-tiers.c", _MIGRATION, _MIGRATING),
    Rule("mm/mmap*.c", _MAPPINGS, _MAPPING),
    Rule("mm/vma*", _MAPPINGS, _MAPPING),
    Rule("mm/mprotect.c", _MAPPINGS, _MAPPING),
    Rule("mm/mremap.c", _MAPPINGS, _MAPPING),
    Rule("mm/mmu_gather.c", (*_MAPPINGS, "will-it-scale/tlb_flush"), _TLB),
    Rule("lib/maple_tree.c", _MAPPINGS, _MAPPING),
    Rule("arch/*/mm/*tlb*", ("will-it-scale/tlb_flush", *_MAPPINGS), _TLB),
    Rule("mm/page_alloc.c", _ALLOCATION, _ALLOCATING),
    Rule("mm/memcontrol*.c", _ALLOCATION, _ALLOCATING),
    Rule("mm/percpu*.c", ("will-it-scale/page_fault",), _ALLOCATING),
    Rule("mm/vmstat.c", _ALLOCATION, _ALLOCATING),
    Rule("mm/vmscan.c", _RECLAIM, _RECLAIMING),
    Rule("mm/workingset.c", _RECLAIM, _RECLAIMING),
    Rule("mm/page-writeback.c", _RECLAIM, _RECLAIMING),
    Rule("mm/zswap.c", _RECLAIM, _RECLAIMING),
    Rule("mm/filemap.c", ("vm-scalability", "kernel-compile"), _PAGE_CACHE),
    Rule("mm/readahead.c", ("vm-scalability", "kernel-compile"), _PAGE_CACHE),
    Rule("mm/shmem.c", ("vm-scalability", "will-it-scale/page_fault"), _PAGE_CACHE),
    Rule("mm/slub.c", ("kernel-compile", "will-it-scale"), _PAGE_CACHE),
    Rule("mm/slab*", ("kernel-compile", "will-it-scale"), _PAGE_CACHE),
    Rule("include/linux/mm*.h", _ALL_MEMORY, _MEMORY),
    Rule("include/linux/page*.h", _ALL_MEMORY, _MEMORY),
    Rule("include/linux/pgtable.h", _ALL_MEMORY, _MEMORY),
    Rule("include/linux/gfp*.h", _ALL_MEMORY, _MEMORY),
    Rule("include/linux/huge_mm.h", _FAULTS, _FAULTING),
    Rule("include/linux/highmem*.h", (*_COPIES, "clear-page", "mem-mmap"), _COPYING),
    Rule("include/linux/uaccess.h", ("mem-copy", "mm-basic"), _USER_COPYING),
    Rule("arch/*/include/asm/pgtable*.h", _ALL_MEMORY, _MEMORY),
    Rule("arch/*/include/asm/page*.h", (*_COPIES, "clear-page", "mem-mmap"), _COPYING),
    Rule("arch/*/include/asm/string*.h", ("copy-page", "mem-copy"), _COPYING),
    Rule("arch/*/include/asm/uaccess*.h", ("mem-copy", "mm-basic"), _USER_COPYING),
    Rule("arch/*/include/asm/tlb*.h", ("will-it-scale/tlb_flush", *_MAPPINGS), _TLB),
    Rule("arch/*/include/asm/cpufeature*.h", (*_COPIES, "clear-page", "mem-mmap"), "what chooses variants by the CPU"),
    Rule("arch/*/kernel/alternative.c", (*_COPIES, "clear-page", "mem-mmap"), "what chooses variants by the CPU"),
    Rule("arch/*/kernel/cpu/", (*_COPIES, "clear-page", "mem-mmap"), "what chooses variants by the CPU"),
    Rule("arch/*/lib/copy_page*", _COPIES, _COPYING),
    Rule("arch/*/mm/copypage*", _COPIES, _COPYING),
    Rule("arch/*/lib/memcpy*", _COPIES, _COPYING),
    Rule("arch/*/lib/memmove*", _COPIES, _COPYING),
    Rule("arch/*/lib/copy_mc*", _COPIES, _COPYING),
    Rule("arch/*/lib/copy_*user*", _COPIES, _USER_COPYING),
    Rule("arch/*/lib/memset*", ("clear-page", "mem-copy"), _CLEARING),
    Rule("arch/*/lib/clear_page*", ("clear-page", "mem-mmap"), _CLEARING),
    Rule("lib/string.c", ("copy-page", "mem-copy"), _COPYING),
    Rule("kernel/sched/", _LOAD, _SCHEDULING),
    Rule("kernel/locking/", _LOAD, _SCHEDULING),
    Rule("kernel/futex/", _LOAD, _SCHEDULING),
    Rule("kernel/rcu/", _LOAD, _SCHEDULING),
    Rule("kernel/fork.c", ("mm-basic", "kernel-compile", "will-it-scale"), "processes and their memory"),
    Rule("kernel/events/", ("mm-basic",), "counters that cost something when they are off, too"),
)


def benchmarks_for(paths: Iterable[str]) -> list[str]:
    """What the changed `paths` ask to be measured, in the order of names; the default set is always among it.

    Entries are names of benchmarks, or BENCHMARK/CASE with the beginning of a case's name. Empty without any rule.
    """
    changed = set(paths)
    wanted: set[str] = set()
    for rule in MeasureRule.objects.filter(enabled=True):
        if rule.pattern == DEFAULT_PATTERN or any(matches_path(rule.pattern, path) for path in changed):
            wanted.update(rule.benchmarks)
    return sorted(wanted)


def load_default_rules() -> int:
    """Add the rules that a new site begins with where they are missing; returns how many. Edited ones stay."""
    known = set(MeasureRule.objects.values_list("pattern", flat=True))
    missing = [
        MeasureRule(pattern=rule.pattern, benchmarks=list(rule.benchmarks), note=rule.note)
        for rule in RULES
        if rule.pattern not in known
    ]
    MeasureRule.objects.bulk_create(missing, ignore_conflicts=True)
    return len(missing)
