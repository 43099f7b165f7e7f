"""A machine in written files that answer as the kernel does, and that can be refused, limited and killed."""

import errno
import io
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tidemark_agent.log import Log
from tidemark_agent.prepare import Preparation, PrepareConfig
from tidemark_agent.prepare.files import KernelFiles, SettingError

BOOT_ID = "2c4a3f0e-7f7e-4a59-9d2f-6f6d1f2b8a10"
CPU = "sys/devices/system/cpu"
KERNEL = "proc/sys/kernel"
THP = "sys/kernel/mm/transparent_hugepage"
POOL = "sys/kernel/mm/hugepages/hugepages-2048kB"
NODE = "sys/devices/system/node"
CGROUP = "sys/fs/cgroup"
CPUS = 8
POLICIES = (f"{CPU}/cpufreq/policy0", f"{CPU}/cpufreq/policy4")
# Written to for their effect: what was written last is no setting.
_TRIGGERS = {"proc/sys/vm/drop_caches", "proc/sys/vm/compact_memory"}


class KernelTree(KernelFiles):
    """`refuses` gives the errno with which a file answers to being written, `most_pages` what a pool can get at all.

    `watch` is called before each change of the machine; it may raise.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.refuses: dict[str, int] = {}
        self.most_pages = 1 << 20
        self.watch: Callable[[str], None] = lambda _event: None
        self.written: list[tuple[str, str]] = []

    def put(self, target: str, text: str) -> None:
        path = self.root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")

    def remove(self, *targets: str) -> None:
        for target in targets:
            (self.root / target).unlink()

    def snapshot(self) -> dict[str, str]:
        paths = (path for path in self.root.rglob("*") if path.is_file())
        texts = {str(path.relative_to(self.root)): path.read_text(encoding="utf-8") for path in paths}
        return {name: text for name, text in texts.items() if name not in _TRIGGERS}

    def _write(self, target: str, value: str) -> None:
        self.watch(f"write {target}")
        if target in self.refuses:
            raise OSError(self.refuses[target], os.strerror(self.refuses[target]))
        old = (self.root / target).read_text(encoding="utf-8")
        self.written.append((target, value))
        if target.endswith("nr_hugepages"):
            self._resize(target, int(value))
        elif target.endswith("cgroup.subtree_control"):
            self._control(target, value)
        elif re.search(r"\[\S+\]", old):
            self._select(target, old, value)
        else:
            super()._write(target, value)
        self.watch(f"wrote {target}")

    def _select(self, target: str, old: str, value: str) -> None:
        words = [word.strip("[]") for word in old.split()]
        if value not in words:
            raise OSError(errno.EINVAL, "Invalid argument")
        self.put(target, " ".join(f"[{word}]" if word == value else word for word in words))

    def _control(self, target: str, value: str) -> None:
        """The controller's files come and go in the groups below."""
        self.put(target, "cpuset memory" if value == "+cpuset" else "memory")
        for child in (self.root / target).parent.glob("*/cgroup.procs"):
            if value == "+cpuset":
                child.with_name("cpuset.cpus").write_text("\n", encoding="utf-8")
            else:
                child.with_name("cpuset.cpus").unlink(missing_ok=True)

    def _resize(self, target: str, wanted: int) -> None:
        """The machine's pool is the sum of its nodes'; a change of it is shared by both as evenly as can be."""
        pools = [f"{NODE}/node{node}/hugepages/hugepages-2048kB" for node in (0, 1)]
        have = [int(self.text(f"{pool}/nr_hugepages")) for pool in pools]
        if target.startswith(NODE):
            have[pools.index(target.removesuffix("/nr_hugepages"))] = min(wanted, self.most_pages)
        else:
            goal, turn = min(wanted, self.most_pages), 0
            while sum(have) != goal:
                have[turn % 2] += (1 if sum(have) < goal else -1) if sum(have) < goal or have[turn % 2] else 0
                turn += 1
        for pool, count in zip((*pools, POOL), (*have, sum(have)), strict=True):
            self.put(f"{pool}/nr_hugepages", str(count))
            self.put(f"{pool}/free_hugepages", str(count))


class TreePrograms:
    """Swap as /proc/swaps of the tree tells it, services as files."""

    def __init__(self, tree: KernelTree) -> None:
        self._tree = tree
        self.refuses: set[str] = set()

    def systemctl(self, arguments: Sequence[str]) -> str:
        verb, unit = arguments[0], arguments[-1]
        if unit in self.refuses and verb != "show":
            raise SettingError(f"systemctl failed with 1: {unit} does not {verb}")
        if verb == "show":
            return self._tree.text(f"units/{unit}") or "inactive"
        self._tree.watch(f"write {unit}")
        self._tree.put(f"units/{unit}", {"start": "active", "stop": "inactive"}[verb])
        self._tree.watch(f"wrote {unit}")
        return ""

    def swap_on(self, path: str, priority: int | None) -> None:
        escaped = path.replace(" ", "\\040")
        self._change([*self._lines(), f"{escaped}\tpartition\t1048572\t0\t{-2 if priority is None else priority}"])

    def swap_off(self, path: str) -> None:
        if path in self.refuses:
            raise SettingError(f"swapoff {path}: not enough memory (ENOMEM)")
        self._change([line for line in self._lines() if line.split()[0] != path.replace(" ", "\\040")])

    def _lines(self) -> list[str]:
        return self._tree.text("proc/swaps").splitlines()[1:]

    def _change(self, lines: list[str]) -> None:
        self._tree.watch("write swaps")
        self._tree.put("proc/swaps", "\n".join(["Filename\tType\tSize\tUsed\tPriority", *lines]))
        self._tree.watch("wrote swaps")


def server(root: Path) -> KernelTree:
    """Eight CPUs in four cores, two nodes, everything there is to set, as a distribution leaves it."""
    tree = KernelTree(root)
    files = {
        "proc/sys/kernel/random/boot_id": BOOT_ID,
        "proc/cmdline": "root=/dev/sda1 ro nohz_full=1-7",
        "proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2\tpartition\t1048572\t0\t5",
        f"{KERNEL}/numa_balancing": "1",
        f"{KERNEL}/randomize_va_space": "2",
        f"{KERNEL}/nmi_watchdog": "1",
        f"{KERNEL}/soft_watchdog": "1",
        f"{KERNEL}/timer_migration": "1",
        "proc/sys/vm/drop_caches": "0",
        "proc/sys/vm/compact_memory": "0",
        f"{THP}/enabled": "[always] madvise never",
        f"{THP}/defrag": "always defer defer+madvise [madvise] never",
        f"{THP}/hugepages-64kB/enabled": "always inherit madvise [never]",
        "sys/kernel/mm/ksm/run": "1",
        "sys/devices/virtual/workqueue/cpumask": "ff",
        "proc/irq/default_smp_affinity": "ff",
        "proc/irq/41/smp_affinity_list": "0-7",
        "proc/irq/42/smp_affinity_list": "3",
        "proc/self/cgroup": "0::/system.slice/tidemark-agent.service",
        f"{CPU}/online": f"0-{CPUS - 1}",
        f"{CPU}/cpufreq/boost": "1",
        "units/cron.service": "active",
    }
    for pool in (POOL, *(f"{NODE}/node{node}/hugepages/hugepages-2048kB" for node in (0, 1))):
        files |= {f"{pool}/nr_hugepages": "0", f"{pool}/free_hugepages": "0"}
    for cpu in range(CPUS):
        files |= {
            f"{CPU}/cpu{cpu}/topology/thread_siblings_list": f"{cpu % 4},{cpu % 4 + 4}",
        }
    for policy in POLICIES:
        files |= {
            f"{policy}/affected_cpus": "0 1 2 3" if policy.endswith("0") else "4 5 6 7",
            f"{policy}/scaling_governor": "schedutil",
            f"{policy}/energy_performance_preference": "balance_performance",
        }
    for group in (
        "",
        "/system.slice",
        "/system.slice/cron.service",
        "/system.slice/tidemark-agent.service",
        "/user.slice",
    ):
        files |= {f"{CGROUP}{group}/cgroup.controllers": "cpuset memory"}
        files |= {f"{CGROUP}{group}/cgroup.procs": "", f"{CGROUP}{group}/cgroup.subtree_control": "memory"}
    for target, text in files.items():
        tree.put(target, text)
    return tree


def prepared(
    tree: KernelTree,
    state: Path,
    config: PrepareConfig | None = None,
    *,
    programs: TreePrograms | None = None,
    log: Log | None = None,
) -> Preparation:
    return Preparation(
        config or PrepareConfig(quiet_services=("cron.service",)),
        journal=state / "settings.jsonl",
        log=log or Log(io.StringIO()),
        stop=threading.Event(),
        root=tree.root,
        files=tree,
        programs=programs or TreePrograms(tree),
    )


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Files whose text differs: (before, after)."""
    names = sorted({*before, *after})
    pairs = {name: (before.get(name, "missing"), after.get(name, "missing")) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
