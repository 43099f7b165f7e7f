"""The evaluation kit beside the repository: its scorer, its simulator, its simple peers and its data."""

import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.ranges import OWN, Ranges

ROOT = Path(__file__).resolve().parents[1]
BESIDE = ROOT.parent / "shared" / "eval"
Row = dict[str, Any]


class KitError(Exception):
    """There is no kit, or it is not whole."""


@dataclass(frozen=True)
class Kit:
    folder: Path
    evaluate: ModuleType
    simulate: ModuleType
    baselines: ModuleType


@dataclass(frozen=True)
class Histories:
    """Timelines to be searched for changes; `tasks` name prefixes of some of them."""

    name: str
    rows: Sequence[Row]
    tasks: Sequence[Row] = ()


@dataclass(frozen=True)
class Pairs:
    """Cells to be compared: base against patched."""

    name: str
    rows: Sequence[Row]


def open_kit(folder: Path) -> Kit:
    """Raises KitError where something of the kit is not there."""
    parts = [folder / f"{name}.py" for name in ("evaluate", "simulate", "baselines")]
    missing = [str(path) for path in (*parts, folder / "dev") if not path.exists()]
    if missing:
        raise KitError(f"no evaluation kit: {', '.join(missing)} not there; name its folder with --kit")
    return Kit(folder, *(_module(path) for path in parts))


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"kit_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise KitError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # The kit is somebody else's folder: not even compiled code is written there.
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = kept
    return module


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def recorded(kit: Kit, name: str) -> Histories:
    """A set of the kit that is not simulated: perf, tcpd, null_real, machine_real."""
    return Histories(name, read(kit.folder / "dev" / f"{name}.jsonl"))


def simulated(kit: Kit, seed: int | None, ranges: Ranges = OWN) -> tuple[Histories, Histories]:
    """A simulated fleet and one whose program never changes; `seed` None is the kit's own development set.

    The prefixes of both are in the tasks of the first, because the kit scores them together.
    """
    if seed is None:
        dev = kit.folder / "dev"
        changing, quiet, tasks = (read(dev / f"{name}.jsonl") for name in ("sim", "sim_null", "online"))
        return Histories("dev", changing, tasks), Histories("dev, no change", quiet)
    changing, quiet = kit.simulate.histories(cfg={**kit.simulate.HISTORY, **ranges.history}, seed=seed)
    tasks = kit.simulate.online_tasks(changing, quiet)
    return Histories(f"seed {seed}", changing, tasks), Histories(f"seed {seed}, no change", quiet)


def pairs(kit: Kit, seed: int | None, ranges: Ranges = OWN) -> Pairs:
    """Simulated cells; the rows of different seeds have different names, so that they can be pooled."""
    if seed is None:
        return Pairs("dev", read(kit.folder / "dev" / "ab.jsonl"))
    rows = kit.simulate.ab_pairs(cfg={**kit.simulate.AB, **ranges.pairs}, seed=seed)
    return Pairs(f"seed {seed}", [row | {"id": f"{seed}/{row['id']}"} for row in rows])
