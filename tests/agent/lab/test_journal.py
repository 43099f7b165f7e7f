"""The journal of a session on disk."""

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_agent.lab.journal import Journal, JournalError, progress_of

LINES = b'{"event": "one"}\n{"event": "two"}\n'


def test_entries_come_back_in_their_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append("begun", key="k")
    journal.append("ended")
    assert [entry["event"] for entry in Journal(tmp_path).entries()] == ["begun", "ended"]


def test_line_that_a_power_cut_tore_is_ignored_and_overwritten(tmp_path: Path) -> None:
    (tmp_path / "session.jsonl").write_bytes(LINES + b'{"event": "thr')
    journal = Journal(tmp_path)
    assert [entry["event"] for entry in journal.entries()] == ["one", "two"]
    journal.append("three")
    assert [entry["event"] for entry in journal.entries()] == ["one", "two", "three"]


@pytest.mark.parametrize("line", [b"garbage", b"[]", b'{"no": "event"}', b'{"event": 1}', b"\xff\xfe", b""])
def test_journal_that_cannot_be_understood_is_put_aside(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "session.jsonl").write_bytes(line + b"\n" + LINES)
    journal = Journal(tmp_path)
    with pytest.raises(JournalError, match="line 1"):
        list(journal.entries())
    kept = journal.put_aside()
    assert kept.read_bytes() == line + b"\n" + LINES
    assert list(journal.entries()) == []


@given(cut=st.integers(0, len(LINES)))
def test_any_cut_of_the_file_leaves_whole_entries(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("journal")
    (folder / "session.jsonl").write_bytes(LINES[:cut])
    assert [entry["event"] for entry in Journal(folder).entries()] == ["one", "two"][: LINES[:cut].count(b"\n")]


def test_disk_that_fills_in_the_middle_of_a_line_takes_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    journal.append("one")
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "full")
        return write(descriptor, data[: len(data) - 10])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="full"):
        journal.append("two")
    monkeypatch.undo()
    journal.append("three")
    assert [entry["event"] for entry in journal.entries()] == ["one", "three"]


def test_last_five_ended_sessions_are_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for number in range(8):
        journal.append("begun", number=number)
        journal.close(f"session-{number}-1")
    kept = sorted((tmp_path / "ended").iterdir())
    assert [json.loads(path.read_text())["number"] for path in kept] == [3, 4, 5, 6, 7]
    assert list(journal.entries()) == []


@pytest.mark.parametrize(
    "entry",
    [
        {"event": "unknown"},
        {"event": "begun"},
        {"event": "claimed", "assignment": {"kind": "session"}},
        {"event": "armed", "nonce": "n"},
        {"event": "outcome", "position": "x", "body": {}},
        {"event": "spooled", "position": 3},
    ],
)
def test_entry_that_makes_no_sense_is_not_guessed_at(entry: dict[str, object]) -> None:
    with pytest.raises(JournalError):
        progress_of([entry])
