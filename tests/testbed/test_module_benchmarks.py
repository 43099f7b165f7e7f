"""The kernel-module benchmarks and move-pages on a machine with three NUMA nodes, one of them without CPUs."""

from pathlib import Path

import pytest

from tests.testbed.guest import run_in_guest
from tests.testbed.kernels import BASE, kernel
from tests.testbed.measured import Guest, measured
from tests.testbed.modules import benchmark_modules, module_archive

pytestmark = pytest.mark.real(minutes=2)
# Every function, size and state of the caches at least once, and every node in both roles.
CASES = (
    "clear-page/clear_page-4k-cold",
    "clear-page/clear_pages-2m-hot",
    "copy-page/copy_page-64k-hot",
    "copy-page/memcpy-512-8-2048",
    "folio-copy/folio_copy-4k-hot-0to0",
    "folio-copy/folio_mc_copy-2m-cold-0to2",
    "folio-copy/copy_highpage-64k-hot-2to1",
    "move-pages/4k-0to2",
    "move-pages/64k-2to1",
    "move-pages/2m-1to0",
)
REQUESTS = """\
import os, signal, sys, time
from pathlib import Path

RUN = "/sys/kernel/debug/tidemark_folio_copy/run"

def ask(words):
    file = os.open(RUN, os.O_RDWR)
    try:
        os.write(file, words.encode())
    except OSError as error:
        return f"{error.errno} {os.read(file, 200).decode().strip()}"
    finally:
        answer = os.read(file, 200).decode().strip()
        os.close(file)
    return f"0 {answer}"

def free_kb():
    Path("/proc/sys/vm/drop_caches").write_text("3")
    return int(Path("/proc/meminfo").read_text().split("MemFree:")[1].split()[0])

os.system("insmod /module.ko")
good = "function=folio_copy size=2m"
for words in sys.argv[1:]:
    print(f"{words!r}: {ask(words)}", flush=True)
ask(good)
before = free_kb()
for words in sys.argv[1:] * 20 + [good] * 20:
    ask(words)
child = os.fork()
if child == 0:
    for _ in range(1000):
        ask(f"{good} cache=cold evict=64m slices=64")
    os._exit(0)
time.sleep(1)
started = time.monotonic()
os.kill(child, signal.SIGKILL)
print("killed:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), time.monotonic() - started < 2)
print("lost more than 1 MiB:", before - free_kb() > 1024)
os.setuid(65534)
try:
    os.open(RUN, os.O_RDWR)
except OSError as error:
    print("not root:", error.strerror)
"""


def test_cases_give_figures_on_every_node(agent_program: Path, tmp_path: Path) -> None:
    guest = Guest(kernel(BASE), "Haswell", numa=True)
    found = measured(guest, list(CASES), agent=agent_program, folder=tmp_path)
    outcomes = {case: (result["outcome"], result["reason"]) for case, result in found.results.items()}
    assert outcomes == dict.fromkeys(CASES, ("measured", ""))
    for result in found.results.values():
        assert len(result["values"]["time"]) == 3
        assert all(1 < value < 10_000_000 for value in result["values"]["time"])


def test_machine_with_one_node_skips_what_needs_more(agent_program: Path, tmp_path: Path) -> None:
    guest = Guest(kernel(BASE), "Nehalem")
    cases = ["folio-copy/folio_copy-4k-hot-0to0", "folio-copy/folio_copy-4k-hot-0to1", "move-pages/4k-1to0"]
    found = measured(guest, cases, agent=agent_program, folder=tmp_path).results
    assert found[cases[0]]["outcome"] == "measured"
    for case in cases[1:]:
        assert (found[case]["outcome"], found[case]["reason"]) == ("skipped", "needs memory on NUMA node 1")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the module in a guest said to requests that it must refuse, and what became of the guest."""
    requests = (
        "", "size", "size=", "size=2m", "nonsense=1", "function=folio_copy size=3k", "function=folio_copy size=64",
        "function=folio_copy size=4m", "function=folio_copy size=-1", "function=folio_copy size=2m slices=0",
        "function=folio_copy size=2m slices=65", "function=folio_copy size=2m direction=0to1",
        "function=folio_copy size=2m direction=-1to0", "function=folio_copy size=2m direction=99999to0",
        "function=folio_copy size=2m direction=0to0x", "function=folio_copy size=2m cache=warm",
        "function=folio_copy size=2m cache=cold", "function=folio_copy size=2m cache=cold evict=1g",
        "function=folio_copy size=4k from_offset=8", "function=kfree size=4k", "function=%s%n size=4k",
        f"x={'y' * 300}",
    )  # fmt: skip
    module = next(content for name, content in benchmark_modules(module_archive()).items() if "folio_copy" in name)
    words = " ".join(f"'{request}'" for request in requests)
    after = "rmmod tidemark_folio_copy; echo removed: $?; echo warnings: $(dmesg | grep -cE 'WARNING|BUG|Call Trace')"
    return run_in_guest(
        {"/module.ko": module, "/requests.py": REQUESTS},
        f"dmesg -n 1; python3 /requests.py {words}; {after}",
        folder=tmp_path_factory.mktemp("requests"),
        kernel=kernel(BASE).image,
    )


def test_module_refuses_what_it_cannot_do_and_says_why(answers: str) -> None:
    said = dict(line[1:].split("': ", 1) for line in answers.splitlines() if line.startswith("'"))
    assert len(said) == 22
    assert not [request for request, answer in said.items() if answer.startswith("0 ")]
    assert said["function=kfree size=4k"] == "95 error this kernel has no kfree that modules can call"
    assert said["function=folio_copy size=2m direction=0to1"] == "19 error node 1 has no memory"
    assert said["function=folio_copy size=2m slices=65"] == "22 error slices are not 1 to 64"
    assert said["function=folio_copy size=4k from_offset=8"] == "22 error folio_copy knows no offsets"
    assert "no memory for an eviction buffer" in said["function=folio_copy size=2m cache=cold evict=1g"]


def test_module_leaves_nothing_behind_even_when_its_caller_is_killed(answers: str) -> None:
    lines = answers.splitlines()
    assert "killed: -9 True" in lines
    assert "lost more than 1 MiB: False" in lines
    assert "removed: 0" in lines
    assert "warnings: 0" in lines


def test_only_root_may_ask_the_module(answers: str) -> None:
    assert "not root: Permission denied" in answers
