import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo.world import ROOT

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Cleans up until it reads a line, as the demo does until its processes have ended.
AFTER_ONE = """
import sys, time
from demo.processes import interrupt_once
interrupt_once()
try:
    print("ready", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("cleaning", flush=True)
    sys.stdin.readline()
    print("clean", flush=True)
"""
MEANWHILE = """
import signal, sys
from demo.processes import interrupt_once, undisturbed
interrupt_once()
handler = signal.getsignal(signal.SIGTERM)
with undisturbed():
    print("cleaning", flush=True)
    sys.stdin.readline()
assert signal.getsignal(signal.SIGTERM) is handler
print("clean", flush=True)
"""


# Whoever runs the tests in the background of a script hands ignored signals on to all that they start.
HEARING = "import signal\nfor number in (1, 2, 15): signal.signal(number, signal.SIG_DFL)\n"


def start(code: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HEARING + code]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def finish_under_signals(process: subprocess.Popen[str]) -> None:
    assert line(process) == "cleaning"
    for number in ENDING:
        process.send_signal(number)
    words, _ = process.communicate("go\n", timeout=60)
    assert (words, process.returncode) == ("clean\n", 0)


@pytest.mark.parametrize("first", ENDING)
def test_after_the_first_signal_no_other_breaks_the_clean_up(first: signal.Signals) -> None:
    with start(AFTER_ONE) as process:
        assert line(process) == "ready"
        process.send_signal(first)
        finish_under_signals(process)


def test_clean_up_at_the_regular_end_is_not_broken_either() -> None:
    with start(MEANWHILE) as process:
        finish_under_signals(process)


def test_demo_under_nohup_goes_on_without_its_terminal(tmp_path: Path) -> None:
    code = "import signal; from demo.processes import interrupt_once; interrupt_once(); print(signal.getsignal(1))"
    command = ["nohup", sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    assert int(done.stdout) == signal.SIG_IGN
