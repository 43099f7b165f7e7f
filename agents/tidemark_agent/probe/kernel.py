"""The running kernel: what it is, how it preempts, what it mitigates."""

import re
from collections.abc import Mapping

from tidemark_agent.build.elf import build_id_of_notes
from tidemark_agent.probe.tree import Tree
from tidemark_agent.probe.values import raw_text, text

_VULNERABILITIES = "sys/devices/system/cpu/vulnerabilities"
_CHOSEN = re.compile(r"\((\w{1,20})\)", re.ASCII)
_ASKED = re.compile(r"(?:^|\s)preempt=(\w{1,20})(?=\s|$)", re.ASCII)
# The words in a kernel's version and the model they stand for, the most telling first. The build decides it, but for
# PREEMPT_DYNAMIC, where the command line may.
_WORDS = {
    "PREEMPT_RT": "rt",
    "PREEMPT_DYNAMIC": "dynamic",
    "PREEMPT_LAZY": "lazy",
    "PREEMPT": "full",
}
_MOST_MITIGATIONS = 200
# Words that the boot drivers add for one boot alone: no two boots would have the same command line.
_OF_ONE_BOOT = "tidemark."


def build_id(tree: Tree) -> str:
    """The running kernel's build id in hexadecimal, "" if it shows none."""
    return build_id_of_notes(tree.data("sys/kernel/notes"))


def command_line(tree: Tree) -> str:
    """What the kernel was told, but for the words that tell one boot of ours from another."""
    return " ".join(word for word in text(tree, "proc/cmdline").split() if not word.startswith(_OF_ONE_BOOT))


def version(tree: Tree) -> str:
    """The build's number, features and date: "#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1"."""
    return text(tree, "proc/sys/kernel/version") or text(tree, "proc/version").partition(") ")[2]


def preemption(tree: Tree, told_version: str, cmdline: str) -> str:
    """none, voluntary, full, lazy or rt; "dynamic" where the kernel could be any and does not say; "" if unknown.

    debugfs tells it for certain; without it (it needs root) the version's words and the command line are read.
    """
    shown = _CHOSEN.search(text(tree, "sys/kernel/debug/sched/preempt"))
    if shown:
        return shown[1]
    words = told_version.split()
    model = next((model for word, model in _WORDS.items() if word in words), "")
    asked = _ASKED.findall(cmdline)
    if model == "dynamic" and asked:
        return str(asked[-1])
    # Without any such word the kernel preempts voluntarily or not at all, and does not say which.
    return model or ("none or voluntary" if "SMP" in words else "")


def mitigations(tree: Tree) -> Mapping[str, str]:
    """What the kernel says of each vulnerability, by its name."""
    names = tree.names(_VULNERABILITIES)[:_MOST_MITIGATIONS]
    told = {name: text(tree, f"{_VULNERABILITIES}/{name}") for name in names}
    return {name: said for name, said in told.items() if said}


def architecture(tree: Tree) -> str:
    """x86_64, aarch64 ...: as the kernel says, else as its CPU description shows; "" if neither tells.

    All 32-bit kernels of Arm's are arm: they call themselves armv6l, armv7l, armv8l after the CPU.
    """
    told = text(tree, "proc/sys/kernel/arch")
    if told:
        return "arm" if told.startswith("arm") and told != "arm64" else told
    cpuinfo = raw_text(tree, "proc/cpuinfo")
    if re.search(r"^CPU implementer\s*:", cpuinfo, re.MULTILINE):
        return "aarch64" if re.search(r"^CPU architecture\s*:\s*(8|AArch64)\s*$", cpuinfo, re.MULTILINE) else "arm"
    if re.search(r"^vendor_id\s*:", cpuinfo, re.MULTILINE):
        return "x86_64" if re.search(r"^flags\s*:.*\blm\b", cpuinfo, re.MULTILINE) else "i686"
    return ""
