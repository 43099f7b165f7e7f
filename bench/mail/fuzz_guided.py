"""A worker of bench.mail.fuzz: mails that atheris chooses by the code they reach; runs in atheris' environment.

python -m bench.mail.fuzz_guided SEED COUNT FOLDER
"""

import hashlib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

from bench.mail.fuzz_guard import Guard

_LARGEST = 32 * 1024
# Fewer, as each of them is read before anything is tried.
_MOST_SEEDS = 400


def fuzz(seed: int, count: int, folder: Path) -> None:
    """Ends this process after `count` mails; their tally is in FOLDER/guided.json."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["server.sources.mail", "email"]):
        checks = importlib.import_module("tests.fuzz.checks")
    guard = Guard(folder)
    start = _seeds(folder / "seeds")

    def one(raw: bytes) -> None:
        guard.tally.mails += 1
        name = f"guided-{seed}-{guard.tally.mails}"
        guard.attempt(name, raw, lambda: str(checks.read_checked(raw).kind))
        if guard.tally.mails % 500 == 0 or guard.tally.mails == count:
            guard.tally.write(folder / "guided.json")
        if guard.tally.mails == count:
            # The fuzzer's own end would run for ever or report a leak.
            os._exit(0)

    kept = folder / "kept"
    kept.mkdir(exist_ok=True)
    words = [
        f"-seed={seed}",
        f"-max_len={_LARGEST}",
        "-timeout=300",
        f"-artifact_prefix={folder}/guided-",
        "-rss_limit_mb=0",
    ]
    atheris.Setup([sys.argv[0], *words, str(kept), str(start)], one, custom_mutator=_mutator(atheris))
    atheris.Fuzz()


def _seeds(folder: Path) -> Path:
    random = importlib.import_module("bench.mail.fuzz_random")
    folder.mkdir(exist_ok=True)
    mails = sorted({mail[:_LARGEST] for thread in random.seeds() for mail in thread}, key=len)[:_MOST_SEEDS]
    for mail in mails:
        (folder / hashlib.sha256(mail).hexdigest()[:16]).write_bytes(mail)
    return folder


def _mutator(atheris: Any) -> Any:
    """The fuzzer's own mutations and ours in turns; it gives the mail, the most it may have, and a seed."""
    mutations = importlib.import_module("tests.fuzz.mutations")
    own = importlib.import_module("tests.fuzz.mails").OWN

    def mutate(data: bytes, largest: int, seed: int) -> bytes:
        if seed % 2:
            return bytes(atheris.Mutate(data, min(len(data), largest)))[:largest]
        return bytes(mutations.mutated([data], mutations.chance_of(seed), own))[:largest]

    return mutate


if __name__ == "__main__":
    fuzz(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
