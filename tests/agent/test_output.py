"""Logs of bounded size: the beginning and the end of whatever a program prints."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_agent.guard.command import CappedLog
from tidemark_agent.system.process import run

LIMIT = 8192


def capped(path: Path, pieces: list[bytes], limit: int = LIMIT) -> bytes:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    log = CappedLog(descriptor, limit)
    for piece in pieces:
        log.write(piece)
    log.close()
    os.close(descriptor)
    return path.read_bytes()


def test_short_log_is_whole(tmp_path: Path) -> None:
    assert capped(tmp_path / "log", [b"one\n", b"two\n"]) == b"one\ntwo\n"


def test_long_log_keeps_both_ends_and_says_how_much_is_missing(tmp_path: Path) -> None:
    lines = [f"line {number}\n".encode() for number in range(10_000)]
    kept = capped(tmp_path / "log", lines)
    assert len(kept) <= LIMIT
    head, _, rest = kept.decode().partition("[tidemark: ")
    count, _, tail = rest.partition(" bytes ")
    tail = tail.partition("]\n")[2]
    assert head.startswith("line 0\nline 1\n")
    assert tail.startswith("line ")
    assert tail.endswith("line 9998\nline 9999\n")
    assert int(count) == len(b"".join(lines)) - len(head) + 1 - len(tail)


@given(pieces=st.lists(st.integers(0, 5000), max_size=20), limit=st.integers(64, 6000))
def test_no_log_gets_longer_than_its_limit(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[int], limit: int
) -> None:
    kept = capped(tmp_path_factory.mktemp("log") / "log", [b"x" * size for size in pieces], limit)
    assert len(kept) <= limit + 128
    if sum(pieces) < limit // 2:
        assert kept == b"x" * sum(pieces)


def test_later_steps_go_on_where_the_first_ended_and_get_their_part_of_a_full_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for script in ("yes first | head -c 1000000", "yes second | head -c 1000000", "echo last"):
        run(["sh", "-c", script], output=log, timeout=30, stop=threading.Event(), log_limit=64 * 1024, append=True)
    text = log.read_text()
    assert len(text) < 80 * 1024
    assert text.startswith("first\n")
    assert text.count("left out here") == 2
    assert "second\nsecond\n" in text
    assert text.endswith("last\n")


def test_program_that_prints_for_ever_is_ended_by_its_time_limit(tmp_path: Path) -> None:
    done = run(["yes"], output=tmp_path / "log", timeout=1.5, stop=threading.Event(), log_limit=1024 * 1024)
    assert done.timed_out
    assert (tmp_path / "log").stat().st_size <= 1024 * 1024
    assert b"left out here" in (tmp_path / "log").read_bytes()


def test_what_a_program_prints_just_before_its_end_is_there(tmp_path: Path) -> None:
    script = "(sleep 0.2; echo child) & head -c 300000 /dev/zero | tr '\\0' x; echo; echo the end"
    run(["sh", "-c", script], output=tmp_path / "log", timeout=30, stop=threading.Event())
    assert (tmp_path / "log").read_text().endswith("x\nthe end\n")
