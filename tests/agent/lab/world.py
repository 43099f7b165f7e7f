"""A machine, a server and a spool that exist only here, with reboots, panics, kills and power cuts as a test wants."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_agent.boot.driver import KernelFiles
from tidemark_agent.boot.evidence import Evidence, RunningSystem
from tidemark_agent.cases.programs import CaseResult
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.lab.engine import Engine, SupersededError
from tidemark_agent.lab.journal import Journal, Progress, progress_of
from tidemark_agent.lab.measurement import CaseLoop
from tidemark_agent.lab.rebooted import RebootedBoots
from tidemark_agent.lab.result import boot_result
from tidemark_agent.log import Log
from tidemark_agent.probe import CoreKind
from tidemark_agent.wire.assignment import Assignment, PlannedBoot, PlannedCase, SessionJob

SAFE = "5afe"
KERNELS = {"base": "ba5e", "patched": "9a7c"}
CORE = CoreKind("all", "0")
KEY = "session-7-1"
AGENT = "agent-one"


class GoneError(BaseException):
    """The machine went down, or the agent was killed: this process is no more."""


class Silent:
    """Where the agent's log goes in these tests."""

    def write(self, text: str, /) -> int:
        return len(text)

    def flush(self) -> None:
        """Nothing is kept."""


def session_document(*, boots: int, cases: int = 2, driver: str = "kexec") -> dict[str, Any]:
    """The claim's answer for a session of alternating arms."""
    arms = ["base", "patched", "patched", "base"] * boots
    case = {"benchmark": "b", "version": "v", "runs": 2, "warmup": 1, "timeout_seconds": 9, "metrics": ["time"]}
    return {
        "kind": "session",
        "key": KEY,
        "trace": "t1",
        "lease_seconds": 60,
        "session": {
            "machine": "m",
            "boot_driver": driver,
            "virtual": False,
            "clock": "wall",
            "sandbox": "none",
            "options": {},
            "boot_timeout_seconds": 600,
            "kernels": {arm: {"image": build_id * 16, "build_id": build_id} for arm, build_id in KERNELS.items()},
            "boots": [{"position": number, "arm": arms[number]} for number in range(boots)],
            "cases": [{**case, "case": f"c{number}"} for number in range(cases)],
        },
    }


@dataclass
class World:
    """What outlives a process of the agent.

    `fates` say what becomes of each boot of a test kernel, one after another (good when there are no more): good,
    wrong, silent-early, panic-early, silent-late, panic-late. `cuts` are numbers of journal lines after (or, negative,
    before) which the agent ends: by a power cut if the value is True, else killed alone. `keeps` is a boot loader that
    remembers its one-shot choice over a power cut, as GRUB does.
    """

    folder: Path
    document: dict[str, Any]
    fates: Iterator[str] = field(default_factory=lambda: iter(()))
    cuts: dict[int, bool] = field(default_factory=dict)
    keeps: bool = False
    unwanted_from: int | None = None
    superseded_from: int | None = None
    trouble: str = ""
    cannot_arm: set[str] = field(default_factory=set)
    boots: int = 1
    kernel: tuple[str, str] = (SAFE, "")
    safe: str = SAFE
    fate: str = "good"
    armed: tuple[str, str] | None = None
    records: Evidence = field(default_factory=Evidence)
    lines: int = 0
    spool: dict[int, dict[str, Any]] = field(default_factory=dict)
    stored: dict[int, dict[str, Any]] = field(default_factory=dict)
    ends: list[tuple[str, str]] = field(default_factory=list)
    silent_deaths: int = 0
    case_runs: int = 0
    tidied: int = 0

    def running(self) -> RunningSystem:
        build_id, nonce = self.kernel
        return RunningSystem(f"boot-{self.boots}", build_id, nonce, "root=/dev/vda1")

    def restart(self, *, into_armed: bool) -> None:
        """Another boot: of what is armed, if this way down leads there, else of the safe kernel."""
        self.boots += 1
        armed, self.armed = self.armed, None
        if armed is None or not (into_armed or self.keeps):
            self.kernel = (self.safe, "")
            return
        self.fate = next(self.fates, "good")
        if self.fate == "wrong":
            self.kernel = ("bad0", armed[1])
        elif self.fate.endswith("early"):
            self.die()
        else:
            self.kernel = armed

    def die(self) -> None:
        """The test kernel ends by itself, and the firmware starts the safe one."""
        if self.fate.startswith("panic"):
            self.records = Evidence("Kernel panic - not syncing: told so", "its last lines")
        else:
            self.silent_deaths += 1
        self.boots += 1
        self.kernel = (self.safe, "")

    def cut_power(self) -> None:
        # It may cost a boot its try even while the safe kernel runs: the journal said already that it is armed.
        self.silent_deaths += 1
        self.restart(into_armed=False)

    def _engine(self, journal: "CutJournal") -> Engine:
        service, log = FakeService(self), Log(Silent())
        return Engine(journal, RebootedBoots(journal, FakeMachine(self, journal), service, log), service, log)

    def run_until_ended(self, most_processes: int = 400) -> Progress:
        """Start the agent again and again, as the machine's init does; what the session came to."""
        for _ in range(most_processes):
            journal = CutJournal(self)
            if not any(True for _ in journal.entries()):
                journal.begin()
            try:
                self._engine(journal).run()
            except GoneError:
                continue
            if journal.progress().ended:
                return journal.progress()
        raise AssertionError("the session does not end")


class CutJournal(Journal):
    """A journal at some of whose lines the agent or the machine ends."""

    def __init__(self, world: World) -> None:
        super().__init__(world.folder)
        self.world = world

    def begin(self) -> None:
        super().append("begun", key=KEY, agent=AGENT, build_id=SAFE, boot_id="boot-1")

    def append(self, event: str, **fields: Any) -> dict[str, Any]:
        self.world.lines += 1
        self._end_at(-self.world.lines)
        entry = super().append(event, **fields)
        self._end_at(self.world.lines)
        return entry

    def progress(self) -> Progress:
        return progress_of(self.entries())

    def _end_at(self, line: int) -> None:
        if line in self.world.cuts:
            if self.world.cuts[line]:
                self.world.cut_power()
            raise GoneError


@dataclass
class FakeDriver:
    world: World
    name: str

    def check(self) -> None:
        if "check" in self.world.cannot_arm:
            raise InfrastructureError("kexec is switched off")

    def arm(self, kernel: KernelFiles) -> None:
        if self.world.kernel[0] in self.world.cannot_arm:
            raise InfrastructureError("the kernel cannot be loaded")
        self.world.armed = (kernel.build_id, kernel.command_line)

    def reboot(self) -> None:
        self.world.restart(into_armed=True)
        raise GoneError

    def disarm(self) -> None:
        self.world.armed = None

    def leave(self) -> None:
        self.world.restart(into_armed=False)
        raise GoneError


@dataclass
class FakeCases:
    world: World

    def run(self, case: PlannedCase, core: CoreKind) -> CaseResult:
        if self.world.fate.endswith("late"):
            self.world.die()
            raise GoneError
        self.world.case_runs += 1
        return CaseResult(
            case.benchmark, case.version, case.case, core.name, "measured", warmup=1, values={"time": (1.0, 2.0)}
        )

    def verify(self) -> tuple[str, ...]:
        return ()


@dataclass
class FakeMachine:
    world: World
    journal: Journal

    def running(self) -> RunningSystem:
        return self.world.running()

    def driver(self, job: SessionJob) -> FakeDriver:
        return FakeDriver(self.world, job.boot_driver)

    def kernel_files(self, job: SessionJob, boot: PlannedBoot, nonce: str) -> KernelFiles:
        return KernelFiles(Path("image"), job.kernels[boot.arm].build_id, nonce)

    def evidence(self, nonce: str, known: tuple[str, ...]) -> Evidence:
        return Evidence() if nonce in known else self.world.records

    def forget_evidence(self) -> tuple[str, ...]:
        self.world.records = Evidence()
        return ()

    def measure(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> dict[str, Any]:
        loop = CaseLoop(
            journal=self.journal,
            position=boot.position,
            cases=progress.job.cases,
            cores=[CORE],
            begun=progress.begun,
            results=progress.results,
            log=Log(Silent()),
            tell=lambda _text: None,
        )
        loop.run(FakeCases(self.world))
        return boot_result(
            results=loop.results,
            cases=progress.job.cases,
            cores=[CORE],
            settings=[],
            facts={},
            began=0.0,
            proof={"boot_id": running.boot_id, "build_id": running.build_id},
            console_tail="",
            out_of_time=False,
        )

    def wait_for_end(self) -> None:
        """Nothing to wait for: the machine goes down when it is asked."""

    def tidy(self) -> None:
        self.world.tidied += 1


@dataclass
class FakeService:
    world: World
    tells: list[str] = field(default_factory=list)

    def claim(self) -> Mapping[str, Any]:
        return self.world.document

    def hold(self, assignment: Assignment) -> None:
        """Nobody else wants it."""

    def release(self) -> None:
        """Nothing is held."""

    def is_wanted(self, position: int) -> bool:
        if self.world.superseded_from is not None and position >= self.world.superseded_from:
            raise SupersededError("409 superseded")
        return self.world.unwanted_from is None or position < self.world.unwanted_from

    def tell(self, progress: str) -> None:
        self.tells.append(progress)

    def announce_reboot(self) -> None:
        """The server waits."""

    def trouble(self) -> str:
        return self.world.trouble

    def store(self, position: int, body: Mapping[str, Any]) -> None:
        if position not in self.world.spool:
            self.world.spool[position] = dict(body)

    def deliver(self) -> bool:
        for position, body in self.world.spool.items():
            self.world.stored.setdefault(position, body)
        return True

    def end(self, outcome: str, reason: str) -> None:
        self.deliver()
        self.world.ends.append((outcome, reason))
