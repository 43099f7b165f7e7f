"""Pages of sessions and machines."""

import pytest

from server.lab.models import Boot, Machine, Session
from tests.builders import build_boot, build_machine, build_series, build_session, tell_boots
from tests.dashboard.conftest import Reader
from tests.scenarios import HOSTS, erms_regression, half_measured, machine_of

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["/sessions/1/", "/machines/nobody/"])
def test_unknown_things_are_not_found(reader: Reader, path: str) -> None:
    assert "404" in reader.read(path, status=404)


@pytest.mark.usefixtures("virtual_verdicts")
def test_session_shows_its_boots_in_order_with_their_proof(reader: Reader) -> None:
    session = erms_regression().sessions.get(machine__name="vm-zen3")
    text = reader.read(f"/sessions/{session.pk}/")
    assert "8 of 8 measured" in text
    assert text.count("✓ as planned") == 8
    boots = text[text.index('id="boot-0"') :]
    assert boots.index('id="boot-1"') < boots.index('id="boot-7"')
    assert session.base_build.build_id in text
    assert "counts instructions, blind to caches" in text
    assert "All measured boots agree." in text
    assert "1.979x" in text


def test_boot_of_another_kernel_is_called_that(reader: Reader) -> None:
    session = build_session(state=Session.State.RUNNING, boots_per_side=2)
    Boot.objects.filter(session=session, position=0).update(build_id="feedfacefeedface", state=Boot.State.FAILED)
    text = reader.read(f"/sessions/{session.pk}/")
    assert "✗ another kernel" in text
    assert "as planned" not in text


def test_failed_boot_shows_its_reason_and_the_end_of_its_console(reader: Reader) -> None:
    session = half_measured().sessions.get(machine__name="vm-haswell")
    text = reader.read(f"/sessions/{session.pk}/")
    assert "kernel panic" in text
    assert "Attempted to kill init!" in text
    assert "1 of 4 measured" in text


def test_session_that_waits_has_no_facts_and_no_charts_yet(reader: Reader) -> None:
    session = build_session()
    text = reader.read(f"/sessions/{session.pk}/")
    assert "No boot has told anything about its machine yet." in text
    assert "chart-data" not in text
    assert "uPlot" not in text


def test_boots_that_saw_different_machines_are_pointed_at(reader: Reader) -> None:
    session = build_session(state=Session.State.DONE)
    tell_boots(Boot.objects.filter(session=session), facts={"flags": ["erms"]})
    tell_boots(Boot.objects.filter(session=session, position=3), facts={"flags": []})
    assert "The boots disagree in: CPU flags." in reader.read(f"/sessions/{session.pk}/")


def test_case_that_gave_no_value_is_named_at_its_boot(reader: Reader) -> None:
    session = build_session(state=Session.State.DONE)
    note = {"benchmark": "mm-basic", "case": "fault-thp", "outcome": "garbage", "reason": "no number in line 3"}
    Boot.objects.filter(session=session, position=0).update(notes=[note, "not a note"])
    assert "mm-basic/fault-thp: garbage no number in line 3" in reader.read(f"/sessions/{session.pk}/")


def test_cases_that_were_skipped_for_one_reason_stand_in_one_line(reader: Reader) -> None:
    session = build_session(state=Session.State.DONE)
    reason = "needs memory on NUMA node 1"
    notes = [
        {
            "benchmark": "folio-copy",
            "case": f"folio_copy-{number}",
            "core_type": core,
            "outcome": "skipped",
            "reason": reason,
        }
        for number in range(90)
        for core in ("big", "little")
    ]
    notes.append({"benchmark": "mm-basic", "case": "copy", "outcome": "failed", "reason": "ended with 1"})
    Boot.objects.filter(session=session, position=0).update(notes=notes)
    text = reader.read(f"/sessions/{session.pk}/")
    assert text.count(reason) == 1
    assert f"folio-copy/folio_copy-0 and 89 more: skipped {reason}" in text
    assert "mm-basic/copy: failed ended with 1" in text


def test_history_of_a_session_is_its_own(reader: Reader) -> None:
    series = build_series()
    mine = build_session(series, build_machine("bench-1", "zen3"))
    build_session(series, build_machine("bench-2", "zen5"))
    history = reader.read(f"/sessions/{mine.pk}/").split('id="history"')[1]
    assert "bench-1" in history
    assert "bench-2" not in history


def test_machine_tells_its_clock_and_what_its_probe_saw(reader: Reader) -> None:
    machine_of(HOSTS[1])
    text = reader.read("/machines/vm-haswell-wall/")
    assert "wall clock: caches" in text
    assert "Intel Core Processor (Haswell)" in text
    assert "erms" in text
    assert "they say nothing about the speed of hardware" in text


def test_machine_that_was_never_booted_says_so(reader: Reader) -> None:
    build_machine("bench-1", "zen3", health="quarantined", health_reason="drifts")
    text = reader.read("/machines/bench-1/")
    for sentence in ("physical", "Not probed yet", "No session yet.", "never", "drifts"):
        assert sentence in text
    assert "not evidence" not in text


def test_machine_lists_its_latest_sessions(reader: Reader) -> None:
    session = build_session(build_series(subject="mm: One"), build_machine("bench-1", "zen3"))
    build_boot(session, 90, Boot.Arm.BASE, measured=True)
    text = reader.read("/machines/bench-1/")
    assert f'href="/sessions/{session.pk}/"' in text
    assert "mm: One" in text
    assert '<td class="figure">1/5</td>' in text


def test_machines_show_what_they_do_now(reader: Reader) -> None:
    build_machine("idle-1", "zen1")
    busy = build_session(machine=build_machine("busy-1", "zen3"), state=Session.State.RUNNING)
    build_session(machine=build_machine("busy-1", "zen3"))
    Machine.objects.filter(pk=build_machine("off-1", "zen5").pk).update(enabled=False)
    text = reader.read("/machines/")
    assert f'href="/sessions/{busy.pk}/"' in text
    assert "idle" in text
    assert "switched off" in text
