"""mem-used: what it reads of the kernel, and the extremes it keeps."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.agent.cases.sources import kernel_archive, script
from tests.agent.cases.support import Bench

PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
ZONES = """Node 0, zone      DMA
  pages free     2816
        boost    0
        min      10
        low      13
        high     16
        managed  3840
Node 0, zone   Normal
        low      1011
      nr_free_pages 123
  pagesets
    cpu: 0
              low:   7
"""


def memory(free: int, available: int) -> str:
    return f"MemTotal:        8192000 kB\nMemFree: {free} kB\nMemAvailable:    {available} kB\nBuffers: 1 kB\n"


def test_extremes_of_all_looks_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowest = script("mem-used", monkeypatch).Lowest()
    (tmp_path / "zoneinfo").write_text(ZONES)
    for free, available in ((4096, 8192), (1024, 9216), (2048, 4096)):
        (tmp_path / "meminfo").write_text(memory(free, available))
        lowest.look(tmp_path)
    assert lowest.values() == {
        "free-min": 1.0,
        "available-min": 4.0,
        "used-peak": 8192000 / 1024 - 4.0,
        "low-watermark": 1024 * PAGE_KB / 1024,
    }


@pytest.mark.parametrize(
    "text", ["", "MemTotal: 1 kB\n", "MemTotal: 1 kB\nMemFree: 1 kB\nMemAvailable: x\n", "\0" * 99]
)
def test_memory_that_the_kernel_does_not_tell_is_no_value(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    with pytest.raises(ValueError, match="MemAvailable"):
        script("mem-used", monkeypatch).meminfo(text)


def test_zones_without_watermarks_are_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="low watermark"):
        script("mem-used", monkeypatch).low_watermark("Node 0, zone DMA\n  low: 7\n")


def test_memory_is_watched_while_a_kernel_is_compiled(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script("mem-used", monkeypatch)
    drop = bench.root / "drop_caches"
    monkeypatch.setattr(module, "DROP_CACHES", drop)
    for name in ("kept", "scratch"):
        (bench.root / name).mkdir()
    places = ["--kept", str(bench.root / "kept"), "--scratch", str(bench.root / "scratch"), "--jobs", "2"]
    words = ["mem_used.py", "one", "2", "--source", str(kernel_archive(bench.root)), *places]
    monkeypatch.setattr(sys, "argv", words)
    assert module.main() == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    metrics = ["free-min", "available-min", "used-peak", "low-watermark"]
    assert [record["metric"] for record in records] == metrics * 2
    assert all(record["value"] > 0 for record in records)
    assert drop.read_text() == "3"


def test_kernel_that_does_not_compile_gives_no_value(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script("mem-used", monkeypatch)
    monkeypatch.setattr(module, "DROP_CACHES", bench.root / "drop_caches")
    for name in ("kept", "scratch"):
        (bench.root / name).mkdir()
    places = ["--kept", str(bench.root / "kept"), "--scratch", str(bench.root / "scratch"), "--jobs", "2"]
    words = ["mem_used.py", "one", "1", "--source", str(kernel_archive(bench.root)), "--target", "broken", *places]
    monkeypatch.setattr(sys, "argv", words)
    assert module.main() == 1
    assert "error" in json.loads(capsys.readouterr().out)
