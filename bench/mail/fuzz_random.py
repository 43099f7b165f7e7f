"""A worker of bench.mail.fuzz: mails spoiled at random, each by a chance that its seed and number alone decide.

python -m bench.mail.fuzz_random SEED FIRST END FOLDER
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

from bench.mail.fuzz_guard import Guard
from bench.mail.mailboxes import CORPUS, Thread, threads_in
from server.sources.mail.parser import ParsedMail
from tests.fuzz.checks import check_together, read_checked
from tests.fuzz.mails import OWN
from tests.fuzz.mutations import chance_of, mutated

# So many mails come from one thread and are then put into series together.
GROUP = 20
_PROGRESS = "progress"


def seeds() -> list[Thread]:
    """Our own mails, and those of the corpus where it lies beside the repository."""
    return [OWN, *(threads_in(CORPUS) if CORPUS.is_dir() else [])]


def mail_of(threads: Sequence[Thread], everything: Sequence[bytes], seed: int, number: int) -> bytes:
    thread = chance_of(f"{seed}:{number // GROUP}:thread").choice(threads)
    return mutated(thread, _chance(seed, number), everything)


def _chance(seed: int, number: int) -> Random:
    return chance_of(f"{seed}:{number}")


def fuzz(seed: int, first: int, end: int, folder: Path) -> None:
    """The mails `first` to `end`; their tally is in FOLDER/random.json, the number of the running one in progress."""
    guard = Guard(folder)
    threads = seeds()
    everything = [mail for thread in threads for mail in thread]
    group: list[ParsedMail] = []
    with (folder / _PROGRESS).open("wb", buffering=0) as progress:
        for number in range(first, end):
            progress.seek(0)
            progress.write(b"%020d" % number)
            raw = mail_of(threads, everything, seed, number)
            guard.tally.mails += 1
            guard.attempt(f"{seed}:{number}", raw, partial(_read, raw, group))
            if number % GROUP == GROUP - 1:
                guard.attempt(f"{seed}:{number}:group", raw, partial(_grouped, tuple(group), _chance(seed, number)))
                group.clear()
            if number % 500 == 0:
                guard.tally.write(folder / "random.json")
    guard.tally.write(folder / "random.json")


def _read(raw: bytes, group: list[ParsedMail]) -> str:
    group.append(read_checked(raw))
    return group[-1].kind


def _grouped(group: Sequence[ParsedMail], chance: Random) -> str:
    check_together(group, chance)
    return "groups"


if __name__ == "__main__":
    fuzz(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
