"""Whole situations made of builders, for tests that need what a person would see."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from server.builds.models import Build
from server.core import clock
from server.detection.models import Finding
from server.lab.hosts.probes import keep_facts_of_machine
from server.lab.models import Attempt, Boot, Machine, Session
from server.reports.models import Delivery, Report
from server.sources.models import MailingList, Series, Tree
from tests.builders import (
    because,
    build_boot,
    build_build,
    build_case,
    build_list,
    build_machine,
    build_measurements,
    build_revision,
    build_series,
    build_session,
    build_tree,
    tell_boots,
)
from tests.detection.measured import judge_series

_PLAIN_FLAGS: Final = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2"
)


@dataclass(frozen=True, slots=True)
class Host:
    """A virtual machine of the scenario; `erms` is the CPU flag that the patch's cost depends on."""

    name: str
    uarch: str
    cpu: str
    model_name: str
    erms: bool
    wall: bool = False


# One boot's cost in ns of (case, base, patched), on CPUs without and with ERMS. Numbers of our own.
_COSTS: Final = {
    "copy-4k": ((1312.4, 1312.4), (1318.0, 1318.0)),
    "cow-4k": ((3120.0, 3120.0), (6744.5, 6744.5)),
    "fault-4k": ((2204.0, 2204.0), (5811.0, 9932.0)),
    "fault-thp": ((581.2, 581.2), (4204.6, 8321.4)),
    "mmap-munmap": ((3405.0, 3411.0), (3502.0, 3498.0)),
}
HOSTS: Final = (
    Host("vm-haswell", "haswell", "Haswell", "Intel Core Processor (Haswell)", erms=True),
    Host("vm-haswell-wall", "haswell", "Haswell", "Intel Core Processor (Haswell)", erms=True, wall=True),
    Host("vm-nehalem", "nehalem", "Nehalem", "Intel Core i7 9xx (Nehalem Class Core i7)", erms=False),
    Host("vm-zen1", "zen1", "EPYC", "AMD EPYC Processor", erms=False),
    Host("vm-zen3", "zen3", "EPYC-Milan", "AMD EPYC-Milan Processor", erms=True),
)


def machine_of(host: Host) -> Machine:
    machine = build_machine(
        host.name,
        host.uarch,
        virtual=True,
        clock=Machine.Clock.WALL if host.wall else Machine.Clock.INSTRUCTIONS,
        driver_options={"cpu": host.cpu, "memory_mb": 512},
        last_seen_at=clock.now() - timedelta(minutes=4),
    )
    keep_facts_of_machine(machine, facts_of(host))
    return machine


def facts_of(host: Host) -> dict[str, object]:
    flags = [*_PLAIN_FLAGS.split(), *(["erms"] if host.erms else []), "hypervisor"]
    return {
        "uarch": host.uarch,
        "vendor": "AuthenticAMD" if host.uarch.startswith("zen") else "GenuineIntel",
        "model_name": host.model_name,
        "flags": flags,
        "virtual": True,
        "hypervisor": "QEMU TCG",
        "clock": "wall" if host.wall else "instructions",
        "kernel_release": "6.1.192",
        "cmdline": "console=ttyS0 panic=-1 mitigations=off",
        "memory_kb": 498_012,
        "cpus": 1,
        "core_types": [{"name": "all", "cpus": "0"}],
    }


def erms_regression(*, boots_per_side: int = 4) -> Series:
    """A series that clears pages twice where the CPU has ERMS: judged, reported and sent.

    Needs TIDEMARK_VIRTUAL_VERDICTS: regressed on haswell and zen3, unchanged on nehalem and zen1.
    """
    base = build_revision(subject="Linux 6.1.192")
    series = build_series(
        subject="x86/mm: Clear pages twice with ERMS",
        base=base,
        head=build_revision(base.tree, base, subject="x86/mm: Clear pages twice with ERMS"),
    )
    numbers = random.Random(20261101)  # noqa: S311 (noise for charts)
    for host in HOSTS:
        session = build_session(series, machine_of(host), state=Session.State.DONE, boots_per_side=boots_per_side)
        boots = list(session.boots.all())
        tell_boots(boots, facts=facts_of(host))
        measure(boots, host, numbers)
        Attempt.objects.create(
            key=f"session-{session.pk}-1",
            number=1,
            session=session,
            adapter="local",
            slots=1,
            state=Attempt.State.DONE,
            agent=f"{session.pk:032x}",
            trace=series.trace,
        ).record_creation()
    finding = judge_series(series_id=series.pk)
    assert finding is not None
    tell(finding)
    return series


def measure(boots: Sequence[Boot], host: Host, numbers: random.Random) -> None:
    """All cases of a session's boots: exact where instructions are counted, noisy where a busy host's clock is read."""
    cases = {name: build_case(name) for name in _COSTS}
    measured = []
    for boot in boots:
        between = numbers.gauss(0, 0.035) if host.wall else 0.0
        for name, costs in _COSTS.items():
            cost = costs[host.erms][boot.arm == Boot.Arm.PATCHED] * (1.9 if host.wall else 1.0)
            values = []
            for run in range(cases[name].runs):
                within = numbers.gauss(0, 0.04) if host.wall else 0.0
                if name == "mmap-munmap" and not host.wall:
                    within = numbers.choice([-0.002, 0.0, 0.0, 0.003])
                first = 0.08 if run == 0 else 0.0
                values.append(round(cost * (1 + between + within + first), 1))
            measured.append((boot, cases[name], values))
    build_measurements(boots[0].session, measured)


def tell(finding: Finding) -> Report:
    """The report of a finding, sent."""
    series = finding.series
    assert series is not None
    report = Report.objects.create(
        finding=finding,
        first_of=finding,
        state=Report.State.SENT,
        trace=series.trace,
        subject=f"Re: [PATCH 0/2] {series.subject}",
        body=f"{finding.headline}\n\nvirtual, not evidence\n\nAll data: http://127.0.0.1:8000/series/{series.pk}/\n",
        in_reply_to=series.root_message_id,
        references=[series.root_message_id],
        to=[series.author_address],
        cc=["linux-mm@example.org"],
    ).record_creation()
    Delivery.objects.create(
        report=report,
        state=Delivery.State.SENT,
        trace=series.trace,
        message_id=f"tidemark-report-{report.pk}@example.org",
        tries=1,
        sent_at=clock.now(),
    ).record_creation()
    return report


def broken_build() -> Series:
    """A series whose patched kernel does not compile."""
    base = build_revision(subject="Linux 6.1.192")
    head = build_revision(base.tree, base, subject="mm: Use a helper that is not there")
    series = build_series(subject="mm: Use a helper that is not there", base=base, head=head)
    build_build(base)
    build_build(
        head,
        state=Build.State.FAILED,
        reason="make bzImage ended with 2",
        log_tail="mm/memory.c:4051:9: error: implicit declaration of function 'clear_page_thrice'\nmake: *** Error 2\n",
    )
    return series


def half_measured() -> Series:
    """A series in the middle of its sessions: one boot paniced, one is running."""
    series = build_series(subject="mm: Batch the zeroing of folios", version=2)
    session = build_session(series, machine_of(HOSTS[0]), state=Session.State.RUNNING, boots_per_side=2)
    first, second, third, _last = session.boots.order_by("position")
    first.delete()
    measured = build_boot(session, 0, Boot.Arm.BASE, measured=True)
    measure([measured], HOSTS[0], random.Random(1))  # noqa: S311 (noise for charts)
    second.advance(
        Boot.State.FAILED,
        because("kernel panic"),
        boot_id="0f0f0f0f-0000-4000-8000-000000000001",
    )
    tell_boots(
        [second], console="[    0.412345] Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b\n"
    )
    third.advance(Boot.State.RUNNING)
    build_session(series, machine_of(HOSTS[3]), boots_per_side=2)
    return series


def busy_site() -> Series:
    """A site with something in every state, watchers good, failing, late and off; returns the judged series."""
    now = clock.now()
    Tree.objects.filter(pk=build_tree().pk).update(polled_at=now - timedelta(minutes=2))
    build_tree(
        "mm",
        url="https://git.example.org/mm.git",
        polled_at=now - timedelta(minutes=1),
        failing_since=now - timedelta(hours=5),
        failures=6,
        last_error="fatal: unable to access 'https://git.example.org/mm.git/': Could not resolve host",
    )
    build_tree("arm64", url="https://git.example.org/arm64.git", enabled=False)
    MailingList.objects.filter(pk=build_list().pk).update(
        url="http://127.0.0.1:8010/linux-mm", polled_at=now - timedelta(seconds=20)
    )
    build_list("linux-arch", url="http://127.0.0.1:8010/linux-arch", polled_at=now - timedelta(hours=9))
    judged = erms_regression()
    half_measured()
    broken_build()
    build_series(subject="mm/vmscan: Scan less", state=Series.State.INCOMPLETE, total=5)
    held = "sender is not on the list of trusted senders"
    build_series(subject="mm: Rework everything", state=Series.State.HELD, reason=held)
    build_series(
        subject="mm: Add folio_frob()",
        state=Series.State.REFUSED,
        reason="patch 2/2 does not apply: mm/memory.c: patch does not apply (on 0123456789ab)",
    )
    build_machine("bench-icx-1", "icelakex", boot_driver="grub", health="quarantined", health_reason="3 boots lost")
    return judged
