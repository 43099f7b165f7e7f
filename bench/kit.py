"""The evaluation kit beside the repository, other ranges for it, and existing libraries run through it."""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

Overrides = dict[str, Any]


@dataclass(frozen=True)
class Ranges:
    """What differs from the kit's own ranges; the names are the simulator's."""

    name: str
    history: Overrides = field(default_factory=dict)
    pairs: Overrides = field(default_factory=dict)


OWN = Ranges("own")

# Wider than the kit's own: quieter and noisier machines, small and large fleets, short and long histories, more drift,
# more and longer levels of code layout, more service, more and fewer changes; nothing is tuned on one set of them.
WIDE = Ranges(
    "wide",
    history={
        "machines": (2, 6),
        "benches": (6, 10),
        "commits": (90, 400),
        "samples": (2, 5),
        "boots": (1, 3),
        "lu_within": (0.0012, 0.03),
        "boot_ratio": (0.3, 2.5),
        "p_bimodal": 0.2,
        "mode_gap": (0.015, 0.12),
        "p_drift": 0.25,
        "drift": (0.005, 0.04),
        "p_ar": 0.2,
        "ar_rho": (0.3, 0.7),
        "p_layout": 0.2,
        "layout_dwell": (8, 60),
        "maint": (0, 3),
        "maint_size": (0.005, 0.08),
        "changes_per_100": (0.8, 2.5),
        "p_missing": (0.0, 0.2),
    },
    pairs={"lu_sd": (0.005, 0.06), "icc": (0.0, 0.2, 0.5, 0.8), "gap": (0.02, 0.15), "burst": (0.05, 0.6)},
)


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


CACHE = ROOT / ".cache" / "bench"
# A peer that takes longer on one set is left out of the table.
LONGEST_SECONDS = 1800


@dataclass(frozen=True)
class Peer:
    """`method` is the kit's name of it; `package` what has to be installed."""

    name: str
    method: str
    package: str


# A star: settings that the kit's author tuned on its development sets. rbf and l2 are two costs of ruptures.
PEERS = (
    Peer("Otava", "otava", "apache-otava==0.8.0"),
    Peer("Otava*", "otava_tuned", "apache-otava==0.8.0"),
    Peer("E-divisive*", "e_divisive_tuned", "signal-processing-algorithms==2.1.6"),
    Peer("rbf*", "kernel_rbf_tuned", "ruptures==1.1.10"),
    Peer("l2*", "pelt_l2_tuned", "ruptures==1.1.10"),
)


class PeerError(Exception):
    """A peer could not be installed or did not finish."""


def environment_of(package: str, beside: Sequence[str] = ("scipy",)) -> str:
    """The Python of an environment with that package and those beside it; made when it is not there yet."""
    folder = CACHE / package.replace("==", "-")
    python = folder / "bin" / "python"
    whole = folder / "whole"
    if not whole.exists():
        print(f"installing {package}", file=sys.stderr, flush=True)
        _call([sys.executable, "-m", "venv", "--clear", str(folder)])
        _call([str(python), "-m", "pip", "install", "--quiet", package, *beside])
        whole.touch()
    return str(python)


def peer_predictions(kit: Kit, peer: Peer, rows: Sequence[Row], tasks: Sequence[Row] = ()) -> list[Row]:
    """Predictions of the peer, computed once for the same rows. Raises PeerError."""
    data, online = _lines(rows), _lines(tasks)
    baselines = (kit.folder / "baselines.py").read_bytes()
    name = hashlib.sha256(
        b"\0".join([peer.method.encode(), peer.package.encode(), baselines, data, online])
    ).hexdigest()
    folder = CACHE / "predictions"
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{name[:32]}.jsonl"
    if not out.exists():
        data_file, online_file, unfinished = (out.with_suffix(end) for end in (".data", ".online", ".part"))
        data_file.write_bytes(data)
        online_file.write_bytes(online)
        command = [environment_of(peer.package), str(kit.folder / "baselines.py"), "cpd", "--method", peer.method]
        command += ["--workers", "1", "--data", str(data_file), "--online", str(online_file), "--out", str(unfinished)]
        said = _call(command)
        # The kit lets a peer that breaks find nothing, which would pass for caution.
        if "note: " in said:
            raise PeerError(f"{said.count('note: ')} rows failed, the first with: {said.strip().splitlines()[0]}")
        unfinished.rename(out)
        data_file.unlink()
        online_file.unlink()
    return read(out)


def _lines(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows).encode()


def _call(command: list[str]) -> str:
    one_core = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **one_core},
            timeout=LONGEST_SECONDS,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise PeerError(str(error)) from error
    return done.stdout
