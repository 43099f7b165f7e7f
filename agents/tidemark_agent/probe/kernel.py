"""Facts of the running kernel: release, features, clocks."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidemark_agent.probe.tree import LARGE, Tree, clean, number, numbered, raw_text, text
from tidemark_agent.system.elf import build_id_of_notes

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


# Features by which x86 kernels choose how they copy and clear, by their bit in the kernel's own list (word * 32 + bit);
# avx_vnni is of the same word as the unnamed ones. Those have no name in /proc/cpuinfo any more, yet
# /sys/devices/system/cpu/modalias lists every bit that is set.
_NAMED = {"rep_good": 3 * 32 + 16, "erms": 9 * 32 + 9, "fsrm": 18 * 32 + 4, "avx_vnni": 12 * 32 + 4}
_UNNAMED = {"fzrm": 12 * 32 + 10, "fsrs": 12 * 32 + 11, "fsrc": 12 * 32 + 12}
_BITS = re.compile(r"cpu:type:x86,[^:]{0,80}:feature:((?:,[0-9A-F]{4})+)", re.ASCII)
_CLEARED = re.compile(r"(?:^|\s)clearcpuid=(\S{1,400})")
# arm64 kernels tell in their log which features and workarounds they detected, and so which code they patched in.
_DETECTED = re.compile(r"CPU features: detected: ([^\n]{1,120})")
_MOST_DETECTED = 200


@dataclass(frozen=True)
class Alternatives:
    """`chosen_by` tells for each feature that selects a copy or clear routine whether the kernel has it, where known.

    `cleared` are the features switched off on the command line; `detected` is what an arm64 kernel says it patched for.
    """

    chosen_by: Mapping[str, bool]
    cleared: tuple[str, ...] = ()
    detected: tuple[str, ...] = ()


def unnamed_flags(tree: Tree, flags: Collection[str]) -> Mapping[str, bool]:
    """Features without a name in /proc/cpuinfo, if the numbers of named ones show that the numbering is as expected."""
    found = _BITS.match(raw_text(tree, "sys/devices/system/cpu/modalias"))
    if not found:
        return {}
    bits = {int(bit, 16) for bit in found[1][1:].split(",")}
    # One of them at least must be there: a list without any bit in common proves nothing.
    agreed = [name for name, bit in _NAMED.items() if (name in flags) == (bit in bits)]
    if len(agreed) != len(_NAMED) or not bits & set(_NAMED.values()):
        return {}
    return {name: bit in bits for name, bit in _UNNAMED.items()}


def alternatives(tree: Tree, flags: Collection[str], *, arch: str, cmdline: str) -> Alternatives:
    """What can be read about the code that this kernel chose; nothing is concluded from what is missing."""
    if arch == "aarch64":
        detected = dict.fromkeys(map(clean, _DETECTED.findall(raw_text(tree, "dev/kmsg", LARGE))))
        return Alternatives({}, detected=tuple(detected)[:_MOST_DETECTED])
    if arch != "x86_64" or not flags:
        return Alternatives({})
    named = {name: name in flags for name in ("rep_good", "erms", "fsrm")}
    cleared = (word for words in _CLEARED.findall(cmdline) for word in words.split(","))
    return Alternatives({**named, **unnamed_flags(tree, flags)}, cleared=tuple(dict.fromkeys(filter(None, cleared))))


_CPU = "sys/devices/system/cpu"
_POLICIES = f"{_CPU}/cpufreq"
_MOST_POLICIES = 8192


@dataclass(frozen=True)
class Frequency:
    """Limits in kHz over all policies, None where there are no such files (virtual machines).

    `governor`, `driver` and `preference` are one word, or all that occur, sorted, with commas.
    """

    driver: str = ""
    governor: str = ""
    preference: str = ""
    min_khz: int | None = None
    max_khz: int | None = None
    hardware_min_khz: int | None = None
    hardware_max_khz: int | None = None


def frequency(tree: Tree) -> Frequency:
    policies = [f"{_POLICIES}/policy{policy}" for policy in numbered(tree, _POLICIES, "policy")[:_MOST_POLICIES]]

    def words(name: str) -> str:
        return ", ".join(sorted({text(tree, f"{policy}/{name}") for policy in policies} - {""}))

    def numbers(name: str) -> list[int]:
        found = (number(tree, f"{policy}/{name}") for policy in policies)
        return [value for value in found if value is not None]

    return Frequency(
        driver=words("scaling_driver"),
        governor=words("scaling_governor"),
        preference=words("energy_performance_preference"),
        min_khz=min(numbers("scaling_min_freq"), default=None),
        max_khz=max(numbers("scaling_max_freq"), default=None),
        hardware_min_khz=min(numbers("cpuinfo_min_freq"), default=None),
        hardware_max_khz=max(numbers("cpuinfo_max_freq"), default=None),
    )


def boost(tree: Tree) -> bool | None:
    """Whether CPUs may run above their nominal clock; None where the system has no switch for it."""
    no_turbo = number(tree, f"{_CPU}/intel_pstate/no_turbo")
    if no_turbo is not None:
        return no_turbo == 0
    switch = number(tree, f"{_POLICIES}/boost")
    if switch is not None:
        return switch != 0
    policies = numbered(tree, _POLICIES, "policy")[:_MOST_POLICIES]
    own = [number(tree, f"{_POLICIES}/policy{policy}/boost") for policy in policies]
    known = [value for value in own if value is not None]
    return any(known) if known else None


def smt(tree: Tree) -> str:
    """on, off, forceoff, notsupported, notimplemented; "on, not active" where no core has a second thread."""
    control, active = text(tree, f"{_CPU}/smt/control"), text(tree, f"{_CPU}/smt/active")
    return f"{control}, not active" if (control, active) == ("on", "0") else control
