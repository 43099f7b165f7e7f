"""CPU features that the kernel chooses code by, beyond those it names in /proc/cpuinfo."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidemark_agent.probe.tree import LARGE, Tree
from tidemark_agent.probe.values import clean, raw_text

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
