"""The journal's file, whole, torn, spoiled or written by somebody else."""

import errno
import json
import os
from pathlib import Path

import pytest
from tidemark_agent.prepare.journal import Journal, Part

from tests.agent.prepare.tree import BOOT_ID, CPU, prepared, server

BOOST = Part("word", f"{CPU}/cpufreq/boost", "1", "0")
SWAP = Part("swap", "/dev/sda2", "5", "off")


def build_journal(path: Path, boot_id: str = BOOT_ID) -> Journal:
    journal = Journal(path, boot_id)
    assert journal.load() == ()
    return journal


def test_journal_that_was_left_tells_what_is_to_be_put_back(tmp_path: Path) -> None:
    path = tmp_path / "state" / "settings.jsonl"
    journal = build_journal(path)
    first = journal.begin("boost", (BOOST,))
    first = journal.settle(first, ("0",))
    second = journal.begin("swap", (SWAP,))
    assert build_journal(path).steps == (first, second)
    journal.undone(first)
    assert build_journal(path).steps == (second,)


def test_steps_that_are_added_to_a_journal_do_not_clash_with_those_it_has(tmp_path: Path) -> None:
    path = tmp_path / "settings.jsonl"
    kept = build_journal(path).begin("boost", (BOOST,))
    later = build_journal(path)
    added = later.begin("swap", (SWAP,))
    assert build_journal(path).steps == (kept, added)


@pytest.mark.parametrize("size", range(1, 40, 6))
def test_half_written_last_line_is_passed_over(tmp_path: Path, size: int) -> None:
    path = tmp_path / "settings.jsonl"
    journal = build_journal(path)
    step = journal.begin("boost", (BOOST,))
    with path.open("a") as stream:
        stream.write(json.dumps({"step": 2, "name": "swap", "parts": []})[:size])
    again = build_journal(path)
    assert again.steps == (step,)
    more = again.begin("swap", (SWAP,))
    assert build_journal(path).steps == (step, more)


def test_line_that_cannot_be_understood_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / "settings.jsonl"
    journal = build_journal(path)
    first = journal.begin("boost", (BOOST,))
    with path.open("ab") as stream:
        stream.write(b"\x00\xff garbage\n" + b"[" * 5000 + b"\n" + b'{"step": 9, "undone": true}\n')
    second = journal.begin("swap", (SWAP,))
    again = Journal(path, BOOT_ID)
    problems = again.load()
    assert [problem.partition(" cannot")[0] for problem in problems] == [
        f"settings.jsonl line {number}" for number in (3, 4, 5)
    ]
    assert again.steps == (first, second)


@pytest.mark.parametrize("first", ['{"format": 2, "boot_id": "x"}', "garbage", '{"format": 1, "boot_id": 7}'])
def test_journal_without_a_beginning_is_put_aside_and_reported(tmp_path: Path, first: str) -> None:
    path = tmp_path / "settings.jsonl"
    path.write_text(f"{first}\n")
    problems = Journal(path, BOOT_ID).load()
    assert len(problems) == 1
    assert "cannot be understood" in problems[0]
    assert not path.exists()
    assert [aside.read_text() for aside in tmp_path.glob("settings.jsonl.unreadable-*")] == [f"{first}\n"]


@pytest.mark.parametrize(
    "part",
    [
        {"kind": "word", "target": "etc/shadow", "before": "x", "wanted": "y"},
        {"kind": "word", "target": "proc/sys/x", "before": "\ud800", "wanted": "y"},
        {"kind": "pool", "target": "sys/x/nr_hugepages", "before": "many", "wanted": "1"},
        {"kind": "word", "target": "proc/1/root/etc/shadow", "before": "x", "wanted": "y"},
        {"kind": "word", "target": "proc/../etc/shadow", "before": "x", "wanted": "y"},
        {"kind": "program", "target": "/bin/sh", "before": "x", "wanted": "y"},
        {"kind": "word", "target": "proc/sys/kernel/x", "before": 7, "wanted": "y"},
        "word",
    ],
)
def test_journal_sets_nothing_but_what_the_agent_sets(tmp_path: Path, part: object) -> None:
    tree = server(tmp_path / "root")
    tree.put("etc/shadow", "secret")
    lines = [{"format": 1, "boot_id": BOOT_ID}, {"step": 1, "name": "evil", "parts": [part]}]
    (tmp_path / "settings.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    problems = prepared(tree, tmp_path).replay()
    assert len(problems) == 1
    assert "line 2 cannot be understood" in problems[0]
    assert tree.text("etc/shadow") == "secret"
    assert tree.written == []


def test_line_that_the_disk_has_no_room_for_leaves_no_half_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "settings.jsonl"
    journal = build_journal(path)
    step = journal.begin("boost", (BOOST,))
    whole = os.write
    monkeypatch.setattr("tidemark_agent.prepare.journal.os.write", lambda where, data: whole(where, data[:20]))
    with pytest.raises(OSError, match="no room") as error:
        journal.begin("swap", (SWAP,))
    assert error.value.errno == errno.ENOSPC
    monkeypatch.undo()
    later = journal.begin("swap", (SWAP,))
    assert build_journal(path).steps == (step, later)


def test_boot_that_cannot_be_named_is_no_reason_to_touch_anything(tmp_path: Path) -> None:
    tree = server(tmp_path / "root")
    tree.remove("proc/sys/kernel/random/boot_id")
    build_journal(tmp_path / "settings.jsonl").begin("boost", (BOOST,))
    problems = prepared(tree, tmp_path).replay()
    assert len(problems) == 1
    assert "boot_id cannot be read" in problems[0]
    assert tree.written == []
    assert (tmp_path / "settings.jsonl").exists()
