import io
from pathlib import Path

from demo.progress import Display, clock_text
from demo.world import ROOT, Times, is_comparable

TITLES = {"tree": "makes the tree", "builds": "builds kernels"}
EXPECTED = {"tree": 40.0, "builds": 180.0}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def display(*, tty: bool) -> tuple[Display, io.StringIO, Clock]:
    out, clock = io.StringIO(), Clock()
    return Display(TITLES, EXPECTED, out, tty=tty, now=clock), out, clock


def test_times_are_minutes_and_seconds() -> None:
    assert [clock_text(seconds) for seconds in (0, 59.6, 61, 3600)] == ["0:00", "1:00", "1:01", "60:00"]


def test_pipe_gets_one_line_for_each_change() -> None:
    shown, out, clock = display(tty=False)
    shown.start("tree")
    shown.tell("tree", "downloading")
    shown.tell("tree", "downloading")
    clock.now = 37.0
    shown.finish("tree", "ready")
    lines = out.getvalue().splitlines()
    assert lines == [
        "[  0:00] makes the tree: started (expected 0:40)",
        "[  0:00] makes the tree: downloading",
        "[  0:37] makes the tree: done in 0:37: ready",
    ]
    assert "\x1b" not in out.getvalue()


def test_pipe_that_hears_nothing_is_told_what_runs_and_how_long_it_will_be() -> None:
    shown, out, clock = display(tty=False)
    shown.start("tree")
    shown.finish("tree")
    shown.start("builds")
    shown.tell("builds", "base kernel compiling: 300 of about 1200 objects")
    clock.now = 14.0
    shown.break_silence()
    said = len(out.getvalue().splitlines())
    clock.now = 16.0
    shown.break_silence()
    shown.break_silence()
    shown.close()
    assert out.getvalue().splitlines()[said:] == [
        "[  0:16] builds kernels: base kernel compiling: 300 of about 1200 objects; about 2:44 to go"
    ]


def test_host_that_was_slow_so_far_is_not_promised_the_usual_time() -> None:
    shown, out, clock = display(tty=False)
    shown.start("tree")
    clock.now = 120.0
    shown.break_silence()
    assert out.getvalue().splitlines()[-1].endswith("about 9:00 to go")
    shown.finish("tree")
    shown.start("builds")
    clock.now = 180.0
    shown.break_silence()
    assert out.getvalue().splitlines()[-1].endswith("about 8:00 to go")
    shown.close()


def test_terminal_is_redrawn_in_place_with_elapsed_and_expected_time() -> None:
    shown, out, clock = display(tty=True)
    shown.start("tree")
    clock.now = 12.0
    shown.tell("tree", "downloading")
    shown.close()
    frames = out.getvalue().split("\x1b[3A")
    assert len(frames) == 3, "each frame after the first goes up over the one before"
    assert "0:12 of  0:40  downloading" in frames[-1]
    assert "builds kernels" in frames[-1]
    assert "about 3:28 to go" in frames[-1]


def test_detail_with_line_ends_does_not_tear_the_display() -> None:
    shown, out, _clock = display(tty=True)
    shown.start("tree")
    shown.tell("tree", "one\ntwo\x1b[2J" + "x" * 500)
    shown.close()
    frame = out.getvalue().split("\x1b[3A")[-1]
    assert frame.count("\n") == 3
    assert "\x1b[2J" not in frame


def test_failed_stage_keeps_its_reason() -> None:
    shown, out, clock = display(tty=False)
    shown.start("builds")
    clock.now = 5.0
    shown.fail("builds", "does not compile")
    shown.finish("builds", "late")
    assert out.getvalue().splitlines()[-1] == "[  0:05] builds kernels: failed in 0:05: does not compile"
    assert shown.seconds() == {}


def test_stage_that_was_over_before_takes_its_time_from_the_rows() -> None:
    shown, _out, _clock = display(tty=False)
    shown.start("builds")
    shown.finish("builds", seconds=75.0)
    assert shown.seconds() == {"builds": 75.0}


def test_times_of_the_last_run_are_expected_of_the_next(tmp_path: Path) -> None:
    cold = Times(tmp_path)
    assert cold.expected()["builds"] > 100
    cold.remember({"builds": 99.04})
    assert Times(tmp_path).expected()["builds"] == 99.0
    (tmp_path / "versions").write_text("6.1.1-1\n")
    warm = Times(tmp_path)
    assert warm.expected()["builds"] != 99.0
    warm.remember({"builds": 20.0})
    assert Times(tmp_path).expected()["builds"] == 20.0


def test_only_the_plain_demo_s_times_are_expected_of_the_next(tmp_path: Path) -> None:
    assert is_comparable("slow", ROOT / ".local")
    assert not is_comparable("null", ROOT / ".local")
    assert not is_comparable("slow", tmp_path)


def test_broken_record_of_times_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "times.json").write_text("{")
    assert Times(tmp_path).expected()["tree"] > 0
