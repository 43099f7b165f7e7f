"""Existing change-point libraries, each in an environment of its own, run through the kit; what they said is kept."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench.kit import ROOT, Kit, Row, read

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


def predict(kit: Kit, peer: Peer, rows: Sequence[Row], tasks: Sequence[Row] = ()) -> list[Row]:
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
