"""What can be chosen of the simulated fleet."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    seed: int = 1
    revisions: int = 300
    machines: int = 6
    changes: int = 12
    maintenance: int = 4
    benchmarks: int = 8
    noise_hours: float = 24.0


def options(arguments: Sequence[str], description: str | None = None) -> Options:
    """Exits with help, or with what is wrong, as argparse does."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = Options()
    for name in ("seed", "revisions", "machines", "changes", "maintenance", "benchmarks"):
        parser.add_argument(f"--{name}", type=int, default=getattr(usual, name))
    parser.add_argument("--noise-hours", type=float, default=usual.noise_hours, help="0: no A/A trials")
    found = parser.parse_args(arguments)
    return Options(
        found.seed,
        found.revisions,
        found.machines,
        found.changes,
        found.maintenance,
        found.benchmarks,
        found.noise_hours,
    )
