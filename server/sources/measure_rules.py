"""The rules a new site begins with: which paths ask for which benchmarks. Rows of MeasureRule, which admins edit."""

from typing import NamedTuple


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
