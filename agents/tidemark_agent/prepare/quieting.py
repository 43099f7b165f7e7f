"""Wishes that take work away from the measured CPUs: interrupts, timers, kernel threads, watchdogs, services."""

from tidemark_agent.prepare.cpu_list import cpu_list, cpu_mask, cpu_set
from tidemark_agent.prepare.files import KernelFiles
from tidemark_agent.prepare.layout import Layout
from tidemark_agent.prepare.wishes import Want, Wish

_KERNEL = "proc/sys/kernel"


def watchdogs() -> tuple[Wish, ...]:
    """The detectors of lock-ups wake every CPU, and the hard one takes a counter of its PMU."""
    return (
        Wish("nmi-watchdog", "off", (Want("word", f"{_KERNEL}/nmi_watchdog", "0"),)),
        Wish("soft-watchdog", "off", (Want("word", f"{_KERNEL}/soft_watchdog", "0"),)),
    )


def timer_migration() -> Wish:
    """Timers of idle CPUs may go to busy ones, so that those which are idle on purpose stay so."""
    return Wish("timer-migration", "on", (Want("word", f"{_KERNEL}/timer_migration", "1"),), needed=False)


def services(units: tuple[str, ...]) -> Wish:
    parts = tuple(Want("service", unit, "inactive") for unit in units)
    return Wish("services", "inactive", parts, absence="no quiet_services are configured")


def interrupts(files: KernelFiles, layout: Layout) -> tuple[Wish, ...]:
    """All to the housekeeping CPUs. Those that cannot move (timers, per-CPU queues of disks) are named in the note."""
    keep = layout.housekeeping
    parts = tuple(
        Want("cpus", target, _moved(files.text(target), keep))
        for target in files.names("proc/irq", "[0-9]*/smp_affinity_list")
    )
    default = Want("mask", "proc/irq/default_smp_affinity", cpu_mask(keep))
    return (
        Wish("irq-default-affinity", cpu_list(keep), (default,), needed=False),
        Wish("irq-affinity", cpu_list(keep), parts, needed=False),
    )


def workqueues(layout: Layout) -> Wish:
    target = "sys/devices/virtual/workqueue/cpumask"
    want = Want("mask", target, cpu_mask(layout.housekeeping))
    return Wish("workqueue-cpus", cpu_list(layout.housekeeping), (want,), needed=False)


def _moved(now: str, keep: frozenset[int]) -> str:
    """Where an interrupt is to go: it stays on those of its CPUs that may keep it."""
    try:
        return cpu_list(cpu_set(now) & keep or keep)
    except ValueError:
        return cpu_list(keep)
