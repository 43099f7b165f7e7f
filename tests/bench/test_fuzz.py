"""The guard of the fuzzers sees what goes wrong; it sets limits of its process, so it runs in one of its own."""

import subprocess
import sys
from pathlib import Path

from bench.kit import ROOT
from bench.mail.fuzz import row
from bench.mail.fuzz_guard import Tally, read_tally

SCRIPT = """
import sys
from pathlib import Path
from bench.mail import fuzz_guard
fuzz_guard.LIMIT_SECONDS = 0.05
folder = Path(sys.argv[1])
guard = fuzz_guard.Guard(folder)
def raises():
    raise ValueError("no")
def stalls():
    try:
        while True:
            pass
    except Exception:
        return "swallowed"
for number in range(5):
    guard.tally.mails += 1
    guard.attempt(f"1:{number}", b"raw", raises)
guard.attempt("1:5", b"endless", stalls)
guard.attempt("1:6", b"fine", lambda: "patch")
guard.tally.write(folder / "tally.json")
"""


def test_crashes_and_stalls_are_counted_and_saved_and_the_run_goes_on(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], cwd=ROOT, check=True)
    tally = read_tally(tmp_path / "tally.json")
    assert (tally.mails, tally.crashes, tally.stalls, dict(tally.kinds)) == (5, 5, 1, {"patch": 1})
    assert sorted(tally.troubles.values()) == [1, 5]
    assert (tmp_path / "1-5.eml").read_bytes() == b"endless"
    assert "ValueError: no" in (tmp_path / "1-0.txt").read_text()
    # Five of one kind are no more to look at than three.
    assert not (tmp_path / "1-3.eml").exists()


def test_tallies_add_up_and_the_slowest_mail_is_named() -> None:
    one, other = Tally(mails=2, slowest=0.5, slowest_name="a"), Tally(mails=3, crashes=1, slowest=0.7, slowest_name="b")
    one.add(other)
    assert (one.mails, one.crashes, one.slowest_name) == (5, 1, "b")
    assert row("all", one, 10.0)[:6] == ["all", "5", "1", "0", "0.70", "10"]
