"""With stand-ins for other programs: nothing is installed here."""

import sys
from pathlib import Path

import pytest

from bench.mail import __main__
from bench.mail.__main__ import B4, OURS, PURE, Speed, figures_of, measured, speed_table
from bench.mail.mailboxes import Outcome, Round, Worker, WorkerError, read_threads, write_threads
from bench.mail.memory import Seen, shown
from tests.fuzz.mails import OWN

WORKER = """
from bench.mail.mailboxes import Outcome, serve
def one_round(threads):
    print("noise")
    return Outcome(sum(map(len, threads)), len(threads), 7)
serve(one_round)
"""


def rounds(*seconds: float) -> list[Round]:
    return [Round(spent, Outcome(100, 0, 5)) for spent in seconds]


def test_mails_reach_a_worker_as_they_are(tmp_path: Path) -> None:
    threads = [list(OWN), [b""], [b"3\n", b"\n\n"]]
    write_threads(tmp_path / "mails", threads)
    assert read_threads(tmp_path / "mails") == threads


def test_programs_take_turns_and_what_they_print_is_no_answer(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    first, second = measured([(name, [sys.executable, str(script)]) for name in "ab"], [[b"x"], [b"y", b"z"]], rounds=3)
    assert [first.name, second.name] == ["a", "b"]
    assert [one.outcome for one in first.rounds] == [Outcome(3, 2, 7)] * 3


def test_a_program_that_dies_is_an_error() -> None:
    with pytest.raises(WorkerError, match="peer ended with code 3"):
        Worker("peer", [sys.executable, "-c", "raise SystemExit(3)"])


def test_ratios_are_those_of_rounds_side_by_side() -> None:
    # The machine was slow in the second round: for both.
    speeds = [Speed(B4, rounds(3.0, 30.0, 4.0)), Speed(OURS, rounds(1.0, 10.0, 1.0))]
    assert figures_of(speeds) == {"rate": 100.0, B4: 3.0}


def test_the_table_shows_median_and_spread() -> None:
    line = speed_table([Speed(PURE, rounds(1.0, 0.5, 2.0))]).splitlines()[-1]
    assert line.split() == ["patchwork,", "no", "database", "100", "50", "200", "0", "5"]


def test_a_bar_that_does_not_hold_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.eml").write_bytes(OWN[0])
    ours = Speed(OURS, rounds(0.01))
    for seconds, code in ((0.031, 0), (0.029, 1)):
        monkeypatch.setattr(__main__, "measured", lambda *_, seconds=seconds: [ours, Speed(B4, rounds(seconds))])
        assert __main__.main(["--mails", str(tmp_path)]) == code
    assert "FAIL" in capsys.readouterr().out
    assert __main__.main(["--mails", str(tmp_path / "none")]) == 2


def test_memory_that_grows_by_more_than_a_tenth_fails() -> None:
    ended = {"peak_mb": 109.0, "messages": 100, "series": 3, "stale": 0, "cpu_seconds": 1.0}
    assert shown([Seen(10, 100.0), Seen(100, 105.0)], ended, 2.0)[1]
    text, flat = shown([Seen(10, 100.0), Seen(100, 111.0)], ended, 2.0)
    assert not flat
    assert [line.split()[-1] for line in text.splitlines()[2:5]] == ["pass", "FAIL", "pass"]
