"""Reading a booted machine's console, however it is garbled."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_agent.boot.console import Section, Verdict, judge_boot, measurements_of, read_console
from tidemark_agent.wire.assignment import KernelImage, PlannedCase

NONCE = "0123456789abcdef0123456789abcdef"
BUILD_ID = "bd633c2a0ba30de962119a851ce6c1eb3bceda71"
BOOT_ID = "d0869750-7ee3-42c5-b659-c846af78663f"
KERNEL = KernelImage(image="0" * 64, build_id=BUILD_ID)
FAULT = PlannedCase("mm-basic", "v1", "fault-4k", runs=3, warmup=1, timeout_seconds=9, metrics=("time",))
COPY = PlannedCase("mm-basic", "v1", "copy", runs=3, warmup=1, timeout_seconds=9, metrics=("time",))


def section(name: str, lines: list[str], status: int = 0, nonce: str = NONCE) -> list[str]:
    return ["", f"@@{nonce} begin {name}", *lines, "", f"@@{nonce} end {name} {status}"]


def value_lines(case: str, values: list[object]) -> list[str]:
    return [json.dumps({"case": case, "metric": "time", "value": value}) for value in values]


def notes_hex(build_id: str) -> str:
    return (struct.pack("<III", 4, len(build_id) // 2, 3) + b"GNU\0" + bytes.fromhex(build_id)).hex()


def proof(build_id: str = BUILD_ID) -> list[str]:
    return [
        "[    0.000000] Linux version 6.1.192",
        *section("hello", ["ready"]),
        *section("boot_id", [BOOT_ID]),
        *section("notes", [notes_hex(build_id)]),
        *section("release", ["6.1.192"]),
        *section("cpuinfo", ["processor : 0", "vendor_id : GenuineIntel", "cpu family : 6", "model : 60"]),
    ]


def good_boot() -> list[str]:
    return [
        *proof(),
        *section("case-0", value_lines("fault-4k", [3, 2.5, 2.25])),
        *section("case-1", value_lines("copy", [1, 1, 1])),
        *section("bye", ["done"]),
        "[    0.5] reboot: Restarting system",
    ]


def judged(lines: list[str], *, timed_out: bool = False) -> Verdict:
    console = read_console("\r\n".join(lines).encode(), NONCE)
    return judge_boot(
        console, kernel=KERNEL, cases=[FAULT, COPY], timed_out=timed_out, hypervisor="qemu-tcg", clock="instructions"
    )


def test_good_boot_is_measured_with_its_proof() -> None:
    verdict = judged(good_boot())
    assert (verdict.outcome, verdict.boot_id, verdict.build_id) == ("measured", BOOT_ID, BUILD_ID)
    assert [(m.case, m.values, m.warmup) for m in verdict.measurements] == [
        ("fault-4k", (3.0, 2.5, 2.25), 1),
        ("copy", (1.0, 1.0, 1.0), 1),
    ]
    assert verdict.notes == ()
    assert verdict.facts is not None
    assert (verdict.facts.uarch, verdict.facts.virtual) == ("haswell", True)


def test_escape_sequences_and_kernel_messages_between_the_lines_do_no_harm() -> None:
    lines = good_boot()
    at = next(i for i, line in enumerate(lines) if "2.5" in line)
    lines[at] = f"\x1b[2J\x1b[01;31m{lines[at]}\x1b[0m"
    lines.insert(at, "[    1.433686] tsc: Refined TSC clocksource calibration: 2300.000 MHz")
    lines[0] = "\x1bc\x1b[?7l\x1b[2J" + lines[0]
    assert judged(lines).outcome == "measured"
    assert not judged(lines).notes


@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), -1, 0, "12", None, True, [1], 10**400])
def test_senseless_value_is_a_note_never_a_measurement(garbage: object) -> None:
    lines = [*proof(), *section("case-0", value_lines("fault-4k", [3, garbage, 2])), *section("bye", ["done"])]
    measured, notes = measurements_of(read_console("\n".join(lines).encode(), NONCE), [FAULT])
    assert measured == []
    assert notes[0].outcome == "garbled"
    assert "garbled output: 2 good values of time, 3 wanted" in notes[0].reason


def test_value_with_a_kernel_message_inside_is_not_believed() -> None:
    broken = '{"case":"fault-4k","metric":"time","value":2[    1.433686] printk: x\n.25}'
    lines = [*proof(), *section("case-0", [*value_lines("fault-4k", [3, 2]), broken]), *section("bye", ["done"])]
    measured, notes = measurements_of(read_console("\n".join(lines).encode(), NONCE), [FAULT])
    assert (measured, notes[0].outcome) == ([], "garbled")


def test_values_of_another_case_or_metric_are_not_taken() -> None:
    lines = [*proof(), *section("case-0", value_lines("copy", [1, 2, 3])), *section("bye", ["done"])]
    assert measurements_of(read_console("\n".join(lines).encode(), NONCE), [FAULT])[0] == []


def test_sections_with_another_nonce_are_nothing() -> None:
    lines = [line.replace(NONCE, "f" * 32) for line in good_boot()]
    verdict = judged(lines)
    assert (verdict.outcome, verdict.measurements) == ("no-boot", ())


def test_one_bad_case_leaves_the_other_measured() -> None:
    lines = [
        *proof(),
        *section("case-0", ['{"case":"fault-4k","error":"the clock is too coarse"}'], status=1),
        *section("case-1", value_lines("copy", [1, 1, 1])),
        *section("bye", ["done"]),
    ]
    verdict = judged(lines)
    assert verdict.outcome == "measured"
    assert [m.case for m in verdict.measurements] == ["copy"]
    assert [(n.case, n.outcome, n.reason) for n in verdict.notes] == [
        ("fault-4k", "failed", "exit status 1: the clock is too coarse")
    ]


def test_error_text_of_a_case_has_nothing_that_cannot_be_stored() -> None:
    line = r'{"case":"fault-4k","error":"no\u0000 page\ud800 \u001b[2Jleft"}'
    lines = [*proof(), *section("case-0", [line], status=1), *section("bye", ["done"])]
    _, notes = measurements_of(read_console("\n".join(lines).encode(), NONCE), [FAULT])
    assert notes[0].reason == "exit status 1: no page? left"


def test_case_that_was_killed_is_a_timeout_note() -> None:
    lines = [*proof(), *section("case-0", [], status=137), *section("case-1", value_lines("copy", [1, 1, 1]))]
    verdict = judged([*lines, *section("bye", ["done"])])
    assert [(n.case, n.outcome) for n in verdict.notes] == [("fault-4k", "timeout")]


def test_case_that_the_kernel_killed_for_want_of_memory_is_no_timeout() -> None:
    killed = [*section("case-0", [], status=137), *section("oom-0", ["oom_kill 2"])]
    late = [*section("case-1", [], status=137), *section("oom-1", ["oom_kill 2"])]
    verdict = judged([*proof(), *killed, *late, *section("bye", ["done"])])
    assert [(n.case, n.outcome, n.reason) for n in verdict.notes] == [
        ("fault-4k", "oom", "memory ran out: processes killed by the kernel: 2"),
        ("copy", "timeout", "ran longer than 9 s"),
    ]
    assert (verdict.outcome, verdict.reason) == ("infrastructure", "no case gave a measurement")


def test_boot_in_which_no_case_gave_a_value_is_not_measured() -> None:
    lines = [*proof(), *section("case-0", ["?"]), *section("case-1", ["?"]), *section("bye", ["done"])]
    assert judged(lines).outcome == "infrastructure"


def test_panic_wins_over_all_that_was_measured_before() -> None:
    lines = [*good_boot()[:-8], "[    2.000000] Kernel panic - not syncing: sysrq triggered crash"]
    verdict = judged(lines)
    assert (verdict.outcome, verdict.measurements) == ("panic", ())
    assert verdict.reason == "Kernel panic - not syncing: sysrq triggered crash"


def test_silence_before_user_space_is_no_boot() -> None:
    assert judged(["[    0.000000] Linux version 6.1.192"], timed_out=True).outcome == "no-boot"
    assert judged([]).outcome == "no-boot"


def test_reset_before_the_end_is_the_kernels_fault() -> None:
    verdict = judged(proof())
    assert (verdict.outcome, verdict.reason) == ("panic", "the machine was reset before the last case was over")


def test_boot_that_hangs_after_user_space_is_a_timeout() -> None:
    verdict = judged(proof(), timed_out=True)
    assert (verdict.outcome, verdict.build_id) == ("timeout", BUILD_ID)


def test_kernel_message_among_the_notes_does_not_change_the_build_id() -> None:
    lines = good_boot()
    at = lines.index(notes_hex(BUILD_ID))
    lines[at : at + 1] = [lines[at][:64], "[    1.433686] feed face: decade", lines[at][64:].ljust(64)]
    assert (judged(lines).outcome, judged(lines).build_id) == ("measured", BUILD_ID)


def test_other_build_id_is_the_wrong_kernel() -> None:
    other = "4c8f89a763e85edf1023ef8db93d6791f5e46c1c"
    verdict = judged([*proof(other), *good_boot()[len(proof()) :]])
    assert (verdict.outcome, verdict.build_id, verdict.measurements) == ("wrong-kernel", other, ())


@pytest.mark.parametrize("missing", ["notes", "boot_id"])
def test_kernel_without_proof_is_never_measured(missing: str) -> None:
    lines = [line.replace(f" {missing} 0", f" {missing} 1") for line in good_boot()]
    lines = [line for line in lines if line not in {BOOT_ID, notes_hex(BUILD_ID)}]
    assert judged(lines).outcome == "wrong-kernel"


@given(st.binary(max_size=4000))
def test_no_bytes_on_the_console_break_the_reader_or_look_measured(raw: bytes) -> None:
    console = read_console(raw, NONCE)
    verdict = judge_boot(console, kernel=KERNEL, cases=[FAULT], timed_out=False, hypervisor="x", clock="wall")
    assert verdict.outcome in {"no-boot", "panic"}
    assert len(console.tail.encode()) <= 8192


@given(st.lists(st.tuples(st.integers(0, 100), st.text(max_size=40)), max_size=20))
def test_garbage_lines_anywhere_never_make_a_wrong_value(garbage: list[tuple[int, str]]) -> None:
    lines = good_boot()
    for at, text in garbage:
        lines.insert(at % (len(lines) + 1), text)
    for measurement in judged(lines).measurements:
        wanted = {"fault-4k": (3.0, 2.5, 2.25), "copy": (1.0, 1.0, 1.0)}
        assert measurement.values == wanted[measurement.case]


@given(st.integers(0, 2000))
def test_console_cut_anywhere_never_gives_a_partial_measurement(cut: int) -> None:
    text = "\n".join(good_boot())[:cut]
    measured, _ = measurements_of(read_console(text.encode(), NONCE), [FAULT, COPY])
    assert all(len(measurement.values) == 3 for measurement in measured)


def test_console_tail_keeps_no_control_characters() -> None:
    tail = read_console(b"\x1b[2Ja\x07b\r\n\x00\xff" + b"x" * 9000, NONCE).tail
    assert len(tail.encode()) <= 8192
    assert not any(ord(c) < 32 and c not in "\n\t" for c in tail)


@pytest.mark.parametrize("line", ["", "[    5.000000] foo: a line that a driver prints"])
def test_kernel_that_prints_much_is_measured_all_the_same(line: str) -> None:
    flood = [line] * 300_000
    assert judged([*flood, *good_boot(), *flood]).outcome == "measured"


def test_of_two_markers_on_one_line_the_first_counts() -> None:
    lines = [f"@@{NONCE} begin a", "x", f"y @@{NONCE} end a 0 @@{NONCE} begin b", f"@@{NONCE} end b 0"]
    console = read_console("\n".join(lines).encode(), NONCE)
    assert dict(console.sections) == {"a": Section(("x",), 0)}
    assert console.begun == frozenset({"a"})
