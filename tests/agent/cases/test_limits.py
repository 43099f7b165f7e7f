"""Whose fault a full disk is."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from tidemark_agent.cases.execution import Limits

MIB = 1024**2


def limits_after(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *, free: tuple[int, int], own: int, allowed: int = 1024
) -> Limits:
    """Limits that were asked once, with so many MiB free before and after, and so many in the case's own files."""
    left = iter(free)
    usage = "tidemark_agent.cases.execution.shutil.disk_usage"
    monkeypatch.setattr(usage, lambda _: SimpleNamespace(free=next(left) * MIB))
    monkeypatch.setattr("tidemark_agent.cases.execution.size_of", lambda *_: own * MIB)
    limits = Limits(seconds=60, disk_bytes=allowed * MIB, directories=(folder,))
    limits.start()
    (folder / "output").write_text("")
    assert limits.is_over(folder / "output") == bool(limits.outcome)
    return limits


def test_disk_with_room_is_no_reason_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits_after(monkeypatch, tmp_path, free=(9000, 8500), own=400).outcome == ""


def test_case_that_wrote_more_than_allowed_is_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = limits_after(monkeypatch, tmp_path, free=(9000, 7000), own=1900)
    assert (limits.outcome, limits.why) == ("failed", "wrote more than 1024 MiB")


def test_what_others_wrote_is_not_put_down_to_the_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits_after(monkeypatch, tmp_path, free=(9000, 5000), own=3).outcome == ""
    assert limits_after(monkeypatch, tmp_path, free=(900, 100), own=3).outcome == "infrastructure"


def test_case_that_filled_a_small_disk_is_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = limits_after(monkeypatch, tmp_path, free=(900, 100), own=790)
    assert limits.outcome == "failed"
    assert limits.why == "the disk ran full: 800 MiB less than before, of which 790 MiB are the case's own files"


def test_disk_that_was_full_before_does_not_end_a_case_that_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert limits_after(monkeypatch, tmp_path, free=(90, 90), own=0).outcome == ""
