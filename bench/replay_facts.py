"""What the probe tells in each boot of a simulated machine."""

from hashlib import sha256
from typing import Any

from bench.replay_model import Model
from bench.replay_models import KIB

# By these features x86 kernels choose their routines that copy and clear.
_CHOOSING = ("rep_good", "erms", "fsrm", "fzrm", "fsrs", "fsrc")


def facts_of(model: Model) -> dict[str, Any]:
    """What one boot tells; the same at every boot."""
    flags = model.words.split() + (["hypervisor"] if model.virtual else [])
    family, number, stepping = model.numbers
    detected = {word: word in flags for word in _CHOOSING} if model.arch == "x86_64" else {}
    return {
        "uarch": model.uarch,
        "vendor": model.vendor,
        "model_name": model.model_name,
        "midr": model.midr,
        "family": family,
        "model": number,
        "stepping": stepping,
        "arch": model.arch,
        "flags": flags,
        "virtual": model.virtual,
        "hypervisor": "",
        "clock": "wall",
        "cpus": model.cpus,
        "memory_kb": model.memory_gib << 20,
        "microcode": model.microcode,
        "page_bytes": 4 * KIB,
        "l1d_bytes": model.l1d_bytes,
        "l2_bytes": model.l2_bytes,
        "llc_bytes": model.llc_bytes or None,
        "core_types": [{"name": name, "cpus": ""} for name in model.core_types],
        "alternatives": {"chosen_by": detected, "cleared": [], "detected": []},
        "preemption": "voluntary",
        "governor": "performance",
        "fingerprint": f"1-{sha256(model.name.encode()).hexdigest()[:24]}",
        **model.more,
    }
