"""Bad input from end to end: through the loop of a boot, with real processes, prepared settings and a journal."""

import errno
import hashlib
import io
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.cases.programs import CaseResult
from tidemark_agent.lab.journal import Journal
from tidemark_agent.lab.measurement import CaseLoop
from tidemark_agent.log import Log
from tidemark_agent.prepare import Preparation
from tidemark_agent.probe import CoreKind
from tidemark_agent.run import Settings, run_attempt
from tidemark_agent.wire.assignment import PlannedCase

from tests.agent.cases.support import CASE, CORE, Bench, prints
from tests.agent.fake_server import TOKEN, Lab, running_server
from tests.agent.prepare.tree import CPU, KernelTree, prepared, server

KEY = "session-1-1"
GOOD = prints(1, 2, 3)
LINES = "\n".join(f'{{"case": "one", "metric": "time", "value": {n}}}' for n in (1, 2, 3))


@dataclass(frozen=True)
class PreparedBench:
    """Runs made-up benchmarks as the agent runs its own: prepared and verified."""

    bench: Bench
    preparation: Preparation

    def run(self, case: PlannedCase, core: CoreKind) -> CaseResult:
        with self.preparation.case({"aslr": "off"}):
            return self.bench.run(case, core)

    def verify(self) -> tuple[str, ...]:
        return self.preparation.verify()


@pytest.fixture(autouse=True)
def _no_stop_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark_agent.system.process._STOP_SECONDS", 0.05)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def tree(tmp_path: Path) -> KernelTree:
    return server(tmp_path / "root")


def loop(bench: Bench, tree: KernelTree, **changes: Any) -> dict[str, Any]:
    """The one result of a boot with one case, as it stands in the journal."""
    preparation = prepared(tree, bench.root)
    preparation.apply()
    journal = Journal(bench.root / "journal")
    results: list[dict[str, Any]] = []
    CaseLoop(
        journal=journal,
        position=0,
        cases=[bench.planned(**changes)],
        cores=[CORE],
        begun={},
        results=results,
        log=Log(io.StringIO()),
        tell=lambda _text: None,
    ).run(PreparedBench(bench, preparation))
    assert preparation.restore() == ()
    (entry,) = [entry for entry in journal.entries() if "result" in entry]
    assert entry["result"]["outcome"] == results[0]["outcome"]
    return dict(entry["result"])


def says(text: str, more: str = "") -> str:
    """Source of a program that prints exactly these characters."""
    return f"import sys\nsys.stdout.buffer.write({text.encode('utf-8', 'surrogateescape')!r})\n{more}"


OUTPUTS = [
    ("nothing", "", "garbled"),
    ("cut in a line", LINES[:-9], "garbled"),
    ("cut before the last line", LINES.rpartition("\n")[0], "garbled"),
    ("decimal comma", LINES.replace("3}", "3,5}"), "garbled"),
    ("number as a text", LINES.replace("3}", '"3"}'), "garbled"),
    ("NaN", LINES.replace("3}", "NaN}"), "garbled"),
    ("beyond all numbers", LINES.replace("3}", "1e999}"), "garbled"),
    ("zero", LINES.replace("3}", "0}"), "garbled"),
    ("negative", LINES.replace("3}", "-3}"), "garbled"),
    ("a kernel message inside a line", LINES.replace('"value": 3', '"val[   12.345678] usb 1-1: x\nue": 3'), "garbled"),
    ("two programs at once", LINES.replace("\n", "") + "\n", "garbled"),
    ("another case", LINES.replace('"one"', '"two"'), "garbled"),
    ("binary", "\x00\x01\udcff\udcfe" * 500, "garbled"),
    ("deeply nested", "[" * 100_000, "garbled"),
    ("100 MB", "", "garbled"),
    ("coloured", "\x1b[1;32m" + LINES.replace("\n", "\x1b[0m\n\x1b[32m") + "\x1b[0m\n", "measured"),
    ("words between", "Warming up ...\r\n" + LINES.replace("\n", "\r\nst\udcf6rung\n") + "\n", "measured"),
]


@pytest.mark.parametrize(("name", "text", "outcome"), OUTPUTS, ids=[name for name, _, _ in OUTPUTS])
def test_output_of_any_kind_ends_as_an_outcome_with_its_evidence(
    bench: Bench, tree: KernelTree, name: str, text: str, outcome: str
) -> None:
    endless = "for _ in range(100):\n    print('x' * 1_000_000, flush=True)\n" if name == "100 MB" else ""
    bench.write_script(says(text, endless))
    result = loop(bench, tree)
    assert result["outcome"] == outcome, result
    assert bool(result["values"]) is (outcome == "measured")
    assert len(result["evidence"].encode()) <= 2048
    assert "\x1b" not in result["evidence"]
    if outcome == "garbled":
        assert result["reason"]
        assert result["evidence"] or name == "nothing"


PROGRAMS = [
    ("hangs", "import time\ntime.sleep(60)\n", "timeout", "ran longer than 3 s"),
    ("ignores signals, hangs", "import signal as s, time\ns.signal(15, s.SIG_IGN)\ntime.sleep(60)\n", "timeout", ""),
    ("kills itself", "import os\nos.kill(os.getpid(), 9)\n", "failed", "killed by signal 9"),
    ("kills its parent", f"import os\nos.kill(os.getppid(), 9)\n{GOOD}", "infrastructure", ""),
    ("kills its whole group", "import os\nos.killpg(0, 9)\n", "infrastructure", ""),
    (
        "asks for too much memory",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 28,) * 2)\nx = bytearray(1 << 30)\n",
        "failed",
        "MemoryError",
    ),
    ("fails in another language", "raise SystemExit('Datei fehlt \\x1b[31m')\n", "failed", "exit status 1"),
    ("is no program", "this is no Python\n", "failed", "exit status 1"),
    (
        "fills the disk",
        "f = open('big', 'wb')\nwhile True:\n    f.write(bytes(1 << 20))\n    f.flush()\n",
        "failed",
        "wrote more than 256 MiB",
    ),
    ("closes its output", f"import os\nos.close(1)\nos.close(2)\n{GOOD}", "failed", ""),
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=[name for name, *_ in PROGRAMS])
def test_program_of_any_kind_ends_as_an_outcome_with_its_reason(
    bench: Bench, tree: KernelTree, program: tuple[str, str, str, str]
) -> None:
    name, source, outcome, words = program
    bench.write_script(source, CASE + "timeout_seconds = 3\n" if "hangs" in name else CASE)
    began = time.monotonic()
    result = loop(bench, tree)
    assert (result["outcome"], result["values"]) == (outcome, {}), result
    assert words in result["reason"] + result["evidence"]
    assert time.monotonic() - began < 30


def test_daemons_of_daemons_do_not_outlive_the_case(bench: Bench, tree: KernelTree) -> None:
    """Each leaves the session and its parent, and takes no notice of being asked to go."""
    source = (
        "import os, signal, time\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        "            signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "            os.setsid()\n"
        f"            open({str(bench.root / 'ids')!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "            time.sleep(60)\n"
        "        os._exit(0)\n"
        f"while open({str(bench.root / 'ids')!r}, 'a') and len(open({str(bench.root / 'ids')!r}).readlines()) < 3:\n"
        "    time.sleep(0.01)\n"
    )
    bench.write_script(source + GOOD)
    result = loop(bench, tree)
    assert result["outcome"] in {"measured", "failed"}
    ids = [int(line) for line in (bench.root / "ids").read_text().split()]
    assert len(ids) == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in ids)


def test_benchmark_that_changes_the_governor_gives_no_measurement(bench: Bench, tree: KernelTree) -> None:
    governor = tree.root / CPU / "cpufreq/policy0/scaling_governor"
    before = governor.read_text()
    bench.write_script(f"open({str(governor)!r}, 'w').write('powersave\\n')\n{GOOD}")
    result = loop(bench, tree)
    assert (result["outcome"], result["values"]) == ("infrastructure", {})
    assert "governor" in result["reason"]
    assert "'powersave'" in result["reason"]
    assert governor.read_text() == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"benchmark": "no-such"}, "no benchmark no-such"),
        ({"version": "0" * 64}, "is wanted in version 000000000000"),
    ],
)
def test_plan_for_another_agent_is_infrastructure_and_named(
    bench: Bench, tree: KernelTree, changes: dict[str, Any], words: str
) -> None:
    bench.write_script(GOOD)
    result = loop(bench, tree, **changes)
    assert (result["outcome"], result["values"]) == ("infrastructure", {})
    assert words in result["reason"]


def test_clock_that_jumps_while_a_case_runs_changes_nothing(
    bench: Bench, tree: KernelTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps = iter(range(10**9, 10**15, 10**7))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)) * (-1) ** next(jumps))
    bench.write_script(GOOD)
    assert loop(bench, tree)["outcome"] == "measured"


def run_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sha256: str, content: bytes) -> Lab:
    """A session of one boot whose kernel has this hash in the plan, and this content on the server."""
    session = {
        "id": 1, "machine": "m", "boot_driver": "qemu", "virtual": True, "clock": "instructions", "sandbox": "none",
        "options": {}, "boot_timeout_seconds": 30, "cases": [], "boots": [{"position": 0, "arm": "base"}],
        "kernels": {"base": {"image": sha256, "build_id": "ab"}},
    }  # fmt: skip
    assignment = {"kind": "session", "key": KEY, "trace": "t", "lease_seconds": 60, "session": session}
    lab = Lab(assignments={KEY: assignment}, artifacts={sha256: content})
    monkeypatch.setattr("tidemark_agent.run.signal.signal", lambda *_: None)
    (tmp_path / "token").write_text(TOKEN)
    with running_server(lab) as address:
        run_attempt(KEY, Settings(server=address, token_file=tmp_path / "token", state=tmp_path / "state"))
    return lab


def test_kernel_with_other_bytes_than_its_hash_is_never_booted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = hashlib.sha256(b"the kernel that was built").hexdigest()
    lab = run_session(tmp_path, monkeypatch, wanted, b"another kernel")
    assert lab.ended[KEY]["outcome"] == "failed"
    assert f"for artifact {wanted}" in lab.ended[KEY]["reason"]
    assert lab.boots == {}
    assert list((tmp_path / "state/lab/kernels").iterdir()) == []


def test_full_disk_ends_the_measuring_and_the_server_learns_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tidemark_agent.system.disk.os.posix_fallocate", full)
    lab = run_session(tmp_path, monkeypatch, hashlib.sha256(b"kernel").hexdigest(), b"kernel")
    assert lab.boots == {}
    assert lab.ended[KEY]["outcome"] == "failed"
    assert lab.ended[KEY]["reason"] == "no disk space left: No space left on device"
