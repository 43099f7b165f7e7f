"""What a mail tells, as plain data that is frozen: no row, no query, no setting is behind it.

Verdicts are the words of `server.detection.models.Verdict`; of a microarchitecture "split" as well.
"""

from dataclasses import dataclass
from datetime import datetime

REGRESSED, IMPROVED, UNCHANGED, INCONCLUSIVE, SPLIT = "regressed", "improved", "unchanged", "inconclusive", "split"
MOVED = (REGRESSED, IMPROVED)
HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class ToldCell:
    """Base against patched in one column. `words` tell its case from the other cases of its benchmark; `parameters` are
    what these words are called, where anybody knows.

    `speaks`: it stands for its microarchitecture; of several machines that agree one does.
    """

    column: str
    uarch: str
    benchmark: str
    case: str
    words: tuple[str, ...]
    metric: str
    unit: str
    better: str
    verdict: str
    base_mean: float | None = None
    base_sd: float | None = None
    patched_mean: float | None = None
    patched_sd: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    boots: tuple[int, int] = (0, 0)
    mde: float | None = None
    speaks: bool = True
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToldUarch:
    """One component of the vector. `missing` says why it has no figures; `same_code`: both kernels run the same.

    `chosen`: its machines are set to run some cases alone.
    """

    name: str
    verdict: str
    missing: str = ""
    same_code: bool = False
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Separation:
    """Facts that all changed machines show and none of the others; where a side is one machine it is named, otherwise
    its microarchitectures are.

    `routines` are those that the patches touch, and `features` those of the facts by which the kernel chooses their
    variants; without any the facts are only what happens to separate. `rivals` counts the other facts that separate
    alike, `uncounted`: there may be more. `machines` are how many changed and how many did not, `chance` how often such
    facts are found by chance alone.
    Without facts nothing separates them.
    """

    facts: tuple[str, ...]
    changed: tuple[str, ...]
    others: tuple[str, ...]
    routines: tuple[str, ...] = ()
    rivals: int = 0
    uncounted: bool = False
    machines: tuple[int, int] = (0, 0)
    chance: float | None = None
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RanMachine:
    """A machine as the booted system saw it. `cut_short`: more boots might have told more."""

    name: str
    uarch: str
    cpu: str
    clock: str
    cut_short: bool = False


@dataclass(frozen=True, slots=True)
class WhatRan:
    """What was booted. Of one command line for all machines it is told, of several that they differ."""

    base: str
    base_subject: str
    tree: str
    kernels: tuple[str, ...]
    machines: tuple[RanMachine, ...]
    command_lines: tuple[str, ...]
    patched: str = ""


@dataclass(frozen=True, slots=True)
class Culprit:
    """What the bisections and the walk over the patches say, as sentences; of a branch also the revision."""

    sentence: str = ""
    walk: tuple[str, ...] = ()
    sha: str = ""
    subject: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True)
class BranchRange:
    """Where a change of a branch lies: the last revision without it and the first with it."""

    branch: str
    good: str
    good_subject: str
    bad: str
    bad_subject: str
    timeline: str = ""


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: the sender as a header has it, and its bare address."""

    sender: str
    address: str


@dataclass(frozen=True, slots=True)
class ToldFinding:
    """All that one finding says. `subject` is that of the mail which is answered, empty for one that begins a thread.

    `page` has all data; `reproduce` is the case that the agent runs again, as BENCHMARK/CASE, and `agent` the address
    of its one file, empty where the site hands out none. `meanings` are words of the cases, each with what it means.
    `bisected`: it is told for what its bisection found. `version` is that of the series, empty for a branch.
    `uncovered` are microarchitectures of the site that had no part in it, each with the reason, empty where none is
    known.
    """

    writer: Writer
    kind: str
    virtual: bool
    subject: str
    uarchs: tuple[ToldUarch, ...]
    cells: tuple[ToldCell, ...]
    columns: tuple[str, ...]
    run: WhatRan
    page: str
    reproduce: str = ""
    agent: str = ""
    meanings: tuple[tuple[str, str], ...] = ()
    gaps: tuple[str, ...] = ()
    separation: Separation | None = None
    culprit: Culprit | None = None
    range: BranchRange | None = None
    bisected: bool = False
    version: str = ""
    uncovered: tuple[tuple[str, str], ...] = ()

    @property
    def speaking(self) -> tuple[ToldCell, ...]:
        return tuple(cell for cell in self.cells if cell.speaks)


@dataclass(frozen=True, slots=True)
class FollowUp:
    """What became, in a newer version, of what was told of an older one."""

    before: ToldFinding
    now: ToldFinding


@dataclass(frozen=True, slots=True)
class Retraction:
    """`said` is the first sentence of the mail that is taken back, `why` what disproved it, `by` who said so."""

    writer: Writer
    subject: str
    said: str
    sent_at: datetime | None
    why: str
    withdrawn: tuple[ToldCell, ...]
    page: str
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class Correction:
    """What is told in place of an earlier mail, of which `said` is the first sentence."""

    said: str
    sent_at: datetime | None
    now: ToldFinding


@dataclass(frozen=True, slots=True)
class DigestEntry:
    """One finding in a digest. `news` says what happened to it in that time."""

    kind: str
    uarchs: tuple[ToldUarch, ...]
    cells: tuple[ToldCell, ...]
    revision: str
    subject: str
    news: str
    page: str
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class Digest:
    """What a tree's findings came to between two days."""

    writer: Writer
    tree: str
    since: datetime
    until: datetime
    entries: tuple[DigestEntry, ...]
    heads: int
    page: str


Told = ToldFinding | FollowUp | Retraction | Correction | Digest


@dataclass(frozen=True)
class Text:
    """A mail as it is handed over: a subject on one line, a body that ends with a line's end."""

    subject: str
    body: str
