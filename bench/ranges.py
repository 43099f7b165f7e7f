"""Other ranges for the simulator than those it was tuned on: a detector must not know one kind of fleet only."""

from dataclasses import dataclass, field
from typing import Any

Overrides = dict[str, Any]


@dataclass(frozen=True)
class Ranges:
    """What differs from the kit's own ranges; the names are the simulator's."""

    name: str
    history: Overrides = field(default_factory=dict)
    pairs: Overrides = field(default_factory=dict)


OWN = Ranges("own")

# Noisier and less regular machines that are serviced more often, fewer and smaller changes on fewer machines.
SHIFTED = Ranges(
    "shifted",
    history={
        "machines": (2, 6),
        "commits": (80, 350),
        "samples": (1, 5),
        "boots": (1, 3),
        "lu_within": (0.003, 0.03),
        "boot_ratio": (0.3, 2.5),
        "p_bimodal": 0.25,
        "mode_gap": (0.01, 0.08),
        "p_drift": 0.3,
        "p_ar": 0.25,
        "ar_rho": (0.3, 0.7),
        "p_layout": 0.25,
        "hiccup_gap": (40, 100),
        "maint": (1, 3),
        "maint_size": (0.01, 0.1),
        "changes_per_100": (0.6, 1.5),
        "effect": (0.01, 0.4),
        "p_wide": 0.4,
        "p_all_machines": 0.5,
    },
    pairs={"lu_sd": (0.005, 0.06), "icc": (0.0, 0.2, 0.5, 0.8), "gap": (0.02, 0.15), "burst": (0.05, 0.6)},
)
