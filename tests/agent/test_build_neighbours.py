"""What others do to a builder, its disk, processors and clock, is neither blamed on a kernel nor built into one."""

import errno
import os
import resource
import shutil
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.build import maker
from tidemark_agent.build.objects import drop_leftovers
from tidemark_agent.guard import watch
from tidemark_agent.guard.orders import Orders
from tidemark_agent.guard.watch import HiddenError, size_below
from tidemark_agent.system.disk import try_lock
from tidemark_agent.system.process import MIB, Finished, Limits, run

from tests.agent.small_tree import MAKEFILE, REF, small_build

FULL = "echo 'as: cannot write: No space left on device'; exit 1"
# The first try leaves half an object, which the second must not find.
FULL_ONCE = f"@if test ! -e $(O)/../once; then touch $(O)/../once; echo half > $(O)/half.o; {FULL}; fi\n"
HANGING = {"Makefile": MAKEFILE.replace("@mkdir -p $(O)/arch/x86/boot", "@sleep 60", 1)}
# As kbuild does: an object is made anew when its source is newer.
BY_TIME = """
vmlinux: $(O)/main.o
\t@$(CC) -Wl,--build-id=sha1 -nostdlib -static -o $(O)/vmlinux $(O)/main.o
$(O)/main.o: main.c
\t@$(CC) -c -o $@ $<
"""


@pytest.fixture(autouse=True)
def own_host(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else builds on it, as other tests do."""
    for name in ("_HOST", "_QUEUE"):
        monkeypatch.setattr(f"tidemark_agent.system.disk.{name}", tmp_path_factory.mktemp("host"))


def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark_agent.system.process._STOP_SECONDS", 0.1)


def test_step_that_met_a_full_disk_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever filled it was ended, and the disk has room again when the agent looks."""
    without_pauses(monkeypatch)
    once = f"bzImage:\n\t{FULL_ONCE}\t@test ! -e $(O)/half.o\n"
    outcome = small_build(tmp_path, {"Makefile": MAKEFILE.replace("bzImage:\n", once)})
    assert (outcome.outcome, outcome.reason) == ("built", "")
    assert "the step is run once more" in outcome.log_tail


ONCE = "if test ! -e {seen}; then touch {seen}; echo '{words}'; exit 1; fi"


def test_crash_that_does_not_come_again_is_not_the_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder whose memory is broken lets a compiler crash now and then, of whatever it compiles."""
    without_pauses(monkeypatch)
    once = ONCE.format(seen=tmp_path / "seen", words="mm/a.c:9:1: internal compiler error: Segmentation fault")
    outcome = small_build(tmp_path, {"Makefile": MAKEFILE.replace("bzImage:\n", f"bzImage:\n\t@{once}\n")})
    assert (outcome.outcome, outcome.reason) == ("built", "")
    assert "crashed" in outcome.log_tail


@pytest.mark.parametrize("second", ["mm/b.c:9:1: internal compiler error: in expand", "Segmentation fault"])
def test_second_crash_at_another_place_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    without_pauses(monkeypatch)
    once = ONCE.format(seen=tmp_path / "seen", words="mm/a.c:9:1: internal compiler error: in expand")
    lines = f"bzImage:\n\t@{once}; echo '{second}'; exit 1\n"
    outcome = small_build(tmp_path, {"Makefile": MAKEFILE.replace("bzImage:\n", lines)})
    assert (outcome.outcome, "not twice at one place" in outcome.reason) == ("infrastructure", True), outcome.reason


OBJECTS = """
$(O)/{name}.o:
\t@if test -e {seen} -o {name} = a; then echo '{words}'; touch {seen}; exit 1; fi
"""


def test_crashes_of_two_objects_are_not_at_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's line is the same for both."""
    without_pauses(monkeypatch)
    words, seen = "gcc: internal compiler error: Segmentation fault signal terminated program cc1", tmp_path / "seen"
    lines = f"bzImage:\n\t@if test -e {seen}; then $(MAKE) -f $(CURDIR)/Makefile $(O)/b.o; "
    lines += "else $(MAKE) -f $(CURDIR)/Makefile $(O)/a.o; fi\n"
    objects = "".join(OBJECTS.format(name=name, seen=seen, words=words) for name in "ab")
    outcome = small_build(tmp_path, {"Makefile": MAKEFILE.replace("bzImage:\n", lines) + objects})
    assert (outcome.outcome, "not twice at one place" in outcome.reason) == ("infrastructure", True), outcome.reason


def test_what_hostile_neighbour_takes_for_an_instant_is_not_lacking_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody sees later that it was taken; so the neighbour's build is waited for, and the step is run again."""
    without_pauses(monkeypatch)
    monkeypatch.setattr("tidemark_agent.system.disk._POLL_SECONDS", 0.05)
    taken, met = tmp_path / "taken", tmp_path / "met"
    wait = f"for i in $$(seq 300); do test -e {met} && break; sleep 0.1; done; sleep 2"
    takes = f"bzImage:\n\t@touch {taken}; {wait}; rm {taken}\n"
    lacks = f"bzImage:\n\t@if test -e {taken}; then touch {met}; {FULL}; fi\n"
    hostile = {"Makefile": MAKEFILE.replace("bzImage:\n", takes)}
    neighbour = threading.Thread(target=small_build, args=(tmp_path / "neighbour", hostile))
    neighbour.start()
    while not taken.exists():
        time.sleep(0.02)
    outcome = small_build(tmp_path / "own", {"Makefile": MAKEFILE.replace("bzImage:\n", lacks)})
    neighbour.join()
    assert "the step is run once more" in outcome.log_tail
    assert (outcome.outcome, outcome.reason) == ("built", "")


def test_build_that_lacks_something_alone_as_well_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who else is on the host is unknown."""
    without_pauses(monkeypatch)
    lacks = MAKEFILE.replace("bzImage:\n", "bzImage:\n\t@echo 'make: gcc: Resource temporarily unavailable'; exit 1\n")
    outcome = small_build(tmp_path, {"Makefile": lacks})
    assert (outcome.outcome, "alone on the host as well" in outcome.reason) == ("infrastructure", True), outcome.reason
    assert len(list(tmp_path.glob("work/*/*/building"))) == 1


def test_step_that_fails_while_a_limit_around_it_refuses_something_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the programs make of it."""
    without_pauses(monkeypatch)
    monkeypatch.setattr(maker, "refused_around", iter(range(100)).__next__)
    outcome = small_build(tmp_path, {"main.c": "int broken\n"})
    assert (outcome.outcome, "the step is run once more" in outcome.log_tail) == ("infrastructure", True)


def test_script_that_goes_on_with_a_full_disk_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)
    once = FULL_ONCE.replace("exit 1", ":")
    outcome = small_build(tmp_path, {"Makefile": MAKEFILE.replace("bzImage:\n", f"bzImage:\n\t{once}")})
    assert (outcome.outcome, outcome.reason) == ("built", "")
    assert list(tmp_path.glob("work/*/*/obj/half.o")) == []


def test_configuration_is_begun_anew_from_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step reads the .config that it writes."""
    without_pauses(monkeypatch)
    half = FULL_ONCE.replace("echo half >", "echo half > $(O)/.config; echo half >")
    outcome = small_build(tmp_path, {"Makefile": MAKEFILE.replace("olddefconfig:\n", f"olddefconfig:\n\t{half}")})
    assert (outcome.outcome, outcome.reason) == ("built", "")
    assert "CONFIG_NET" in outcome.files["config"].read_text()


def test_second_try_has_the_time_that_the_first_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)
    slow = f"bzImage:\n\t@sleep 8\n\t{FULL_ONCE}"
    outcome = small_build(tmp_path, {"Makefile": MAKEFILE.replace("bzImage:\n", slow)}, timeout_seconds=15)
    assert (outcome.outcome, outcome.reason) == ("built", "")


@pytest.mark.parametrize(("others", "expected"), [(0.0, "failed"), (100.0, "infrastructure")])
def test_build_that_others_kept_from_the_processors_is_not_blamed_for_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: float, expected: str
) -> None:
    ended = threading.Event()

    def run_and_note(words: list[str], **options: Any) -> Finished:
        done = run(words, **options)
        if done.timed_out:
            ended.set()
        return done

    monkeypatch.setattr(maker, "run", run_and_note)
    monkeypatch.setattr(maker, "_busy_seconds", lambda: others if ended.is_set() else 0.0)
    outcome = small_build(tmp_path, HANGING, timeout_seconds=2)
    assert (outcome.outcome, outcome.reason[:19]) == (expected, "not built within 2 ")


def test_what_a_command_took_of_the_processors_is_known(tmp_path: Path) -> None:
    """Of those of its programs, too, that have ended."""
    spin = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    script = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {spin!r}]); time.sleep(60)"
    limits = Limits(memory_bytes=256 * MIB, processes=20)
    words = [sys.executable, "-c", script]
    done = run(words, output=tmp_path / "out", timeout=4, stop=threading.Event(), limits=limits)
    assert done.timed_out
    assert 0.3 <= done.cpu_seconds < 4


def test_files_without_a_name_count_as_disk(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\n"
        "file = open('held', 'wb'); os.unlink('held')\n"
        f"os.posix_fallocate(file.fileno(), 0, {64 * MIB}); time.sleep(60)"
    )
    limits = Limits(disk_bytes=16 * MIB, directories=(tmp_path,))
    words = [sys.executable, "-c", script]
    done = run(
        words, output=tmp_path / "out", timeout=50, stop=threading.Event(), limits=limits, directory=tmp_path
    )  # fmt: skip
    assert (done.timed_out, done.over_is_ours) == (False, False)
    assert "more than 16 MiB of disk" in done.over


def test_build_within_its_limit_is_not_to_blame_for_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it wrote itself: others may have filled the disk before it began."""
    room = iter([(3000 * MIB, 1 << 30), (100 * MIB, 1 << 30)])
    monkeypatch.setattr(watch, "room_of", lambda _: next(room))
    monkeypatch.setattr(watch, "size_below", lambda *_: 2900 * MIB)
    orders = Orders(["lifeline=0", "report=0", f"disk={4000 * MIB}", f"directory={tmp_path}", "--", "true"])
    over = watch.Watch(orders, is_counted=True).look()
    assert over is not None
    assert (over.is_ours, "nearly full" in over.reason) == (True, True)


def test_directory_that_nobody_can_look_into_counts_as_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been filled before its rights were taken away. Root could look into it."""
    scandir = os.scandir

    def look(path: str | int) -> Any:
        if str(path).endswith("locked"):
            raise PermissionError(errno.EACCES, "no")
        return scandir(path)

    (tmp_path / "locked").mkdir()
    monkeypatch.setattr(os, "scandir", look)
    with pytest.raises(HiddenError, match="cannot be looked into"):
        size_below([str(tmp_path)], MIB)


def test_objects_of_a_clock_that_was_ahead_are_not_taken_for_newer(tmp_path: Path) -> None:
    files = {
        "Makefile": MAKEFILE.replace("-x c $(CURDIR)/main.c", "$(O)/main.o").replace("bzImage:", "bzImage: vmlinux")
    }
    files["Makefile"] += BY_TIME
    first = small_build(tmp_path, files)
    assert first.outcome == "built", first.log_tail
    tomorrow = time.time() + 86_400
    for path in (*tmp_path.glob("work/*/*/obj/*"), *tmp_path.glob("work/*/clock")):
        os.utime(path, (tomorrow, tomorrow))
    second = small_build(tmp_path, {**files, "main.c": 'void _start(void) { for (;;) __asm__("nop"); }\n'})
    assert second.outcome == "built"
    assert second.build_id != first.build_id


SERIES = "refs/tidemark/series/7/1"


@pytest.mark.parametrize("ref", [REF, SERIES])
def test_header_that_is_found_earlier_than_the_one_before_is_built_in(tmp_path: Path, ref: str) -> None:
    """Make and ccache know what an object was made of, not what the compiler looked for in vain."""
    makefile = MAKEFILE.replace("-x c $(CURDIR)/main.c", "$(O)/main.o").replace("bzImage:", "bzImage: vmlinux")
    objects = BY_TIME.replace("-c -o", "-I$(CURDIR)/first -I$(CURDIR)/second -c -o")
    files = {
        "Makefile": makefile + objects,
        "main.c": "#include <found.h>\nvoid _start(void) { for (;;) __asm__(WHAT); }\n",
        "second/found.h": '#define WHAT ""\n',
    }
    plain = small_build(tmp_path, files)
    again = small_build(tmp_path, {**files, "README": "no header\n"})
    assert (plain.outcome, again.build_id) == ("built", plain.build_id)
    shadowed = small_build(tmp_path, {**files, "first/found.h": '#define WHAT "nop"\n'}, ref=ref)
    assert shadowed.outcome == "built"
    assert shadowed.build_id != plain.build_id


def test_objects_that_other_programs_made_are_not_built_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer linker or assembler, by an upgrade of the builder, makes other kernels than those of the kept objects."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("gcc", "ld", "as"):
        (programs / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    first = small_build(tmp_path, {})
    assert first.outcome == "built", first.log_tail
    (kept,) = tmp_path.glob("work/*/*/obj")
    (kept / "old.o").touch()
    assert small_build(tmp_path, {}).outcome == "built"
    assert (kept / "old.o").exists()
    (programs / "as").unlink()
    (programs / "as").write_text(f'#!/bin/sh\nexec {shutil.which("as", path="/usr/bin")} "$@"\n')
    (programs / "as").chmod(0o755)
    assert small_build(tmp_path, {}).outcome == "built"
    assert not (kept / "old.o").exists()


@pytest.mark.parametrize("code", [-9, 1, 137])
def test_room_that_fails_or_is_killed_says_nothing_about_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """And what it wrote is not trusted: make may have been killed in the middle."""
    without_pauses(monkeypatch)

    def run_or_fail(words: list[str], **options: Any) -> Finished:
        done = run(words, **options)
        return replace(done, code=code) if "bzImage" in words else done

    monkeypatch.setattr(maker, "run", run_or_fail)
    outcome = small_build(tmp_path, sandbox="bwrap")
    assert (outcome.outcome, outcome.reason[:28]) == ("infrastructure", "the step did not end by itse")
    assert len(list(tmp_path.glob("work/*/*/building"))) == 1


def test_room_tells_a_command_that_failed_from_itself(tmp_path: Path) -> None:
    outcome = small_build(tmp_path, {"main.c": "int broken\n"}, sandbox="bwrap")
    assert outcome.outcome == "failed"
    assert "main.c:1:" in outcome.reason


def test_processes_are_counted_in_the_room_alone(tmp_path: Path) -> None:
    """The kernel would compare a limit that is set outside with all processes of the agent's user."""
    show = 'bzImage:\n\t@echo "limit $$(prlimit --nproc --raw --noheadings --output SOFT)"\n'
    limits = {"memory_mb": 512, "disk_mb": 512, "processes": 77, "cpu_seconds": 60, "log_mb": 8}
    outcome = small_build(
        tmp_path, {"Makefile": MAKEFILE.replace("bzImage:\n", show)}, sandbox="bwrap", limits=limits
    )  # fmt: skip
    assert outcome.outcome == "built", outcome.log_tail
    assert "limit 77" in outcome.log_tail
    script = "import resource; print('limit', resource.getrlimit(resource.RLIMIT_NPROC)[0])"
    words = [sys.executable, "-c", script]
    run(words, output=tmp_path / "out", timeout=50, stop=threading.Event(), limits=Limits(processes=77))
    assert (tmp_path / "out").read_text() == f"limit {resource.getrlimit(resource.RLIMIT_NPROC)[0]}\n"


def test_build_of_a_series_leaves_nothing_however_it_ends(tmp_path: Path) -> None:
    outcome = small_build(tmp_path, HANGING, ref=SERIES, timeout_seconds=1)
    assert outcome.reason.startswith("not built within 1 s")
    assert list(tmp_path.glob("work/*/*/obj-series*")) == []


def test_what_killed_builds_of_other_trees_left_is_deleted_unless_they_are_being_built(tmp_path: Path) -> None:
    left = [tmp_path / tree / "config" / "obj-series1" for tree in ("own", "killed", "building")]
    for copy in left:
        copy.mkdir(parents=True)
        (copy.parents[1] / "lock").touch()
    descriptor = try_lock(tmp_path / "building" / "lock")
    assert descriptor is not None
    drop_leftovers(tmp_path, beside=tmp_path / "own")
    assert [copy.exists() for copy in left] == [True, False, True]
    os.close(descriptor)


def test_processors_that_wait_for_a_disk_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who rewrites small files without end takes none of their time, and leaves an honest build no disk."""
    stat = tmp_path / "stat"
    monkeypatch.setattr(maker, "_TIMES", stat)
    ticks = os.sysconf("SC_CLK_TCK")
    stat.write_text(f"cpu {ticks} 0 {2 * ticks} {50 * ticks} 0 0 0 0 0 0\ncpu0 1 2 3\n")
    others = maker.Others()
    later = time.monotonic() + 100
    monkeypatch.setattr(time, "monotonic", lambda: later)
    share = 100 * (os.cpu_count() or 1)
    stat.write_text(f"cpu {ticks} 0 {2 * ticks} {(50 + share // 2) * ticks} {share // 2 * ticks} 0 0 0 0 0\n")
    assert others.took_much(0.0)
    stat.write_text(f"cpu {ticks} 0 {2 * ticks} {(50 + share) * ticks} 0 0 0 0 0 0\n")
    assert not others.took_much(0.0)
