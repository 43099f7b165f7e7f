"""All settings of the machine that hold while it measures, in the order in which they are set."""

from collections.abc import Iterator

from tidemark_agent.prepare import cgroups, memory, power, quieting
from tidemark_agent.prepare.files import KernelFiles
from tidemark_agent.prepare.layout import Layout
from tidemark_agent.prepare.wishes import Wish


def machine_wishes(files: KernelFiles, layout: Layout, quiet_services: tuple[str, ...]) -> Iterator[Wish]:
    """Each is made when those before it are set; putting back goes the other way round."""
    # Services first: they might change settings themselves while they stop.
    yield quieting.services(quiet_services)
    yield power.energy_preference(files)
    yield power.governor(files)
    yield power.boost(files)
    yield memory.address_space()
    yield from memory.transparent_huge_pages()
    yield memory.numa_balancing()
    yield memory.same_page_merging(files)
    yield memory.swap(files)
    yield from quieting.watchdogs()
    if layout.housekeeping:
        yield quieting.timer_migration()
        yield quieting.workqueues(layout)
        yield from quieting.interrupts(files, layout)
        yield cgroups.controllers(files)
        yield cgroups.other_groups(files, layout)
