"""Settings that only the kernel's command line can have: recorded, and compared with what a case wants."""

from tidemark_agent.prepare.files import KernelFiles
from tidemark_agent.prepare.model import Setting

_RECORDED = ("isolcpus", "mitigations", "nohz_full", "preempt", "rcu_nocbs", "hugepages", "transparent_hugepage")


def boot_words(files: KernelFiles) -> tuple[Setting, ...]:
    words = files.text("proc/cmdline").split()
    given = {}
    for word in words:
        name, _, value = word.partition("=")
        given[name] = value or "on"
    recorded = tuple(Setting(name, "", given[name], given[name], "kept") for name in _RECORDED if name in given)
    state = kaslr_state(files)
    return (Setting("kaslr", "", state, state, "kept"), *recorded)


def kaslr_state(files: KernelFiles) -> str:
    """Off if the command line says so, else on: a kernel built without it has no way to tell."""
    return "off" if "nokaslr" in files.text("proc/cmdline").split() else "on"
