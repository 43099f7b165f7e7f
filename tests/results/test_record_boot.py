"""From an agent's report to rows: proof, idempotency, refused values, ends of sessions."""

import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from server.core import clock
from server.core.errors import DomainError
from server.detection.trials.judgement import read_cells
from server.lab.attempts.boots import BootReport, start_boot, told_boot
from server.lab.attempts.ends import end_session
from server.lab.hosts.probes import facts_of_machine, latest_changes
from server.lab.models import Attempt, AttemptState, BootState, Machine, Session, SessionState
from server.results import measurements
from server.results.measurements import Values, record_boot
from server.results.models import Benchmark, Case, Measurement
from server.results.samples import sample_columns, sampled_cells
from tests.builders import because, build_case, build_metric, build_session

pytestmark = pytest.mark.django_db


def running_session() -> tuple[Session, Attempt]:
    build_metric()
    build_case()
    session = build_session(state=SessionState.RUNNING)
    attempt = Attempt.objects.create(
        key=f"session-{session.pk}-1", number=1, session=session, adapter="local", slots=1,
        state=AttemptState.RUNNING, agent="agent-one",
    )  # fmt: skip
    return session, attempt


def report(session: Session, position: int, **changes: object) -> BootReport:
    arm = session.boots.get(position=position).arm
    build = session.base_build if arm == "base" else session.patched_build
    fields: dict[str, object] = {"outcome": "measured", "boot_id": str(uuid.uuid4()), "build_id": build.build_id}
    return BootReport(**{**fields, **changes})  # type: ignore[arg-type]


def values(*numbers: float, **changes: object) -> Values:
    fields: dict[str, object] = {
        "benchmark": "mm-basic", "version": "1", "case": "fault-4k", "metric": "time", "core_type": "all",
        "values": numbers, "warmup": 1,
    }  # fmt: skip
    return Values(**{**fields, **changes})  # type: ignore[arg-type]


def test_measured_boot_is_stored_once() -> None:
    session, attempt = running_session()
    first = record_boot(attempt=attempt, position=0, report=report(session, 0), measured=[values(9.0, 1.5, 1.25)])
    again = record_boot(attempt=attempt, position=0, report=report(session, 0), measured=[values(9.0, 7.0, 7.0)])
    assert (first, again) == ((True, True), (False, True))
    row = Measurement.objects.get()
    assert (row.values, row.warmup, row.boot.state) == ([9.0, 1.5, 1.25], 1, BootState.MEASURED)


def test_wrong_kernel_gives_no_measurement() -> None:
    session, attempt = running_session()
    record_boot(attempt=attempt, position=0, report=report(session, 0, build_id="beef"), measured=[values(1.0, 2.0)])
    boot = session.boots.get(position=0)
    assert boot.state == BootState.FAILED
    assert boot.reason.startswith("wrong-kernel: build id beef ran")
    assert not Measurement.objects.exists()


def test_boot_id_seen_before_is_no_new_boot() -> None:
    session, attempt = running_session()
    boot_id = str(uuid.uuid4())
    for position in (0, 1):
        record_boot(
            attempt=attempt, position=position, report=report(session, position, boot_id=boot_id),
            measured=[values(1.0, 2.0)],
        )  # fmt: skip
    assert session.boots.get(position=1).reason.startswith("no-proof")
    assert Measurement.objects.count() == 1


def test_boot_id_told_to_two_sessions_at_once_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    session, attempt = running_session()
    boot_id = str(uuid.uuid4())
    told = {"attempt": attempt, "measured": [values(1.0, 2.0)]}
    record_boot(position=0, report=report(session, 0, boot_id=boot_id), **told)  # type: ignore[arg-type]
    look = told_boot
    # As if the other one had been stored after this look.
    monkeypatch.setattr(measurements, "told_boot", lambda *asked: replace(look(*asked), is_elsewhere=False))
    with pytest.raises(DomainError) as refused:
        record_boot(position=1, report=report(session, 1, boot_id=boot_id), **told)  # type: ignore[arg-type]
    assert (refused.value.code, refused.value.permanent) == ("busy", False)
    monkeypatch.undo()
    assert record_boot(position=1, report=report(session, 1, boot_id=boot_id), **told)[0]  # type: ignore[arg-type]
    assert session.boots.get(position=1).reason.startswith("no-proof")


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (values(1.0, float("nan")), "not a finite number"),
        (values(1.0, 2.0, case="nothing"), "unknown case"),
        (values(1.0, 2.0, version="2"), "unknown case"),
        (values(1.0, 2.0, metric="speed"), "no metric speed"),
        (values(1.0, 2.0, core_type="big"), "no core type big"),
        (values(1.0), "nothing is left"),
        (values(*[1.0] * 10_000), "10000 values, where the case asks for "),
    ],
)
def test_values_that_cannot_be_stored_are_kept_as_a_note(refused: Values, reason: str) -> None:
    session, attempt = running_session()
    record_boot(attempt=attempt, position=0, report=report(session, 0), measured=[values(1.0, 2.0), refused])
    boot = session.boots.get(position=0)
    assert boot.state == BootState.MEASURED
    assert reason in boot.notes[0]["reason"]
    assert Measurement.objects.count() == 1


@pytest.mark.parametrize(
    ("bound", "most", "stored"), [("_MOST_CELLS", 1, 1), ("_MOST_VALUES", 5, 2)], ids=["cells", "values"]
)
def test_boot_has_as_much_as_its_readers_can_bear(
    monkeypatch: pytest.MonkeyPatch, bound: str, most: int, stored: int
) -> None:
    """Whoever owns a machine sends what he likes; what is beyond is noted, and the rest is kept."""
    monkeypatch.setattr(measurements, bound, most)
    session, attempt = running_session()
    for name in ("fault-8k", "fault-16k"):
        case = Case.objects.get(name="fault-4k")
        case.pk, case.name = None, name
        case.save()
    sent = [values(1.0, 2.0, case=name) for name in ("fault-4k", "fault-8k", "fault-16k")]
    record_boot(attempt=attempt, position=0, report=report(session, 0), measured=sent)
    assert Measurement.objects.count() == stored
    notes = session.boots.get(position=0).notes
    assert len(notes) == 3 - stored
    assert "a boot has at most" in notes[0]["reason"]


def test_boot_without_any_usable_value_failed() -> None:
    session, attempt = running_session()
    record_boot(attempt=attempt, position=0, report=report(session, 0), measured=[])
    assert session.boots.get(position=0).reason == "no-values: no case gave a usable value"


def test_session_is_done_when_every_boot_has_a_result(
    sent_tasks: list[tuple[str, tuple[int | str, ...]]], django_capture_on_commit_callbacks: object
) -> None:
    session, attempt = running_session()
    for position in range(4):
        with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
            record_boot(
                attempt=attempt, position=position, report=report(session, position), measured=[values(1.0, 2.0)]
            )
    session.refresh_from_db()
    assert session.state == SessionState.DONE
    assert sent_tasks == [("detection.look", (session.trial_id,))]


def test_two_panics_of_one_kernel_end_the_session() -> None:
    session, attempt = running_session()
    panic = {"outcome": "panic", "reason": "not syncing: oops", "boot_id": "", "build_id": ""}
    assert record_boot(attempt=attempt, position=1, report=report(session, 1, **panic), measured=[]) == (True, True)
    assert record_boot(attempt=attempt, position=2, report=report(session, 2, **panic), measured=[]) == (True, False)
    session.refresh_from_db()
    assert session.state == SessionState.FAILED
    assert session.reason == "patched kernel gave no measurement in 2 boots, last: panic: not syncing: oops"
    assert not session.boots.filter(state__in=[BootState.PLANNED, BootState.RUNNING]).exists()


def test_infrastructure_trouble_plans_the_boot_again_and_repeating_the_report_changes_nothing() -> None:
    session, attempt = running_session()
    trouble = {"outcome": "infrastructure", "reason": "no space", "boot_id": "", "build_id": ""}
    session.boots.filter(position=0).update(state=BootState.RUNNING, started_by=attempt.key)
    answers = [
        record_boot(attempt=attempt, position=0, report=report(session, 0, **trouble), measured=[])[0] for _ in range(4)
    ]
    boot = session.boots.get(position=0)
    assert answers == [True, False, False, False]
    assert (boot.state, boot.retries, boot.reason) == (BootState.PLANNED, 1, "infrastructure: no space")


def test_late_trouble_of_an_earlier_attempt_leaves_the_running_boot_alone() -> None:
    session, attempt = running_session()
    session.boots.filter(position=0).update(state=BootState.RUNNING, started_by="session-1-2")
    trouble = {"outcome": "infrastructure", "reason": "no space", "boot_id": "", "build_id": ""}
    record_boot(attempt=attempt, position=0, report=report(session, 0, **trouble), measured=[])
    assert session.boots.get(position=0).state == BootState.RUNNING


def test_patched_kernel_cannot_put_its_machine_out_of_service() -> None:
    session, attempt = running_session()
    facts = {"uarch": "zen3", "virtual": True, "core_types": []}
    record_boot(attempt=attempt, position=1, report=report(session, 1, facts=facts), measured=[values(1.0, 2.0)])
    machine = Machine.objects.get()
    assert (machine.health, machine.virtual) == (Machine.Health.GOOD, False)


def test_machine_that_tells_no_facts_with_its_figures_is_no_evidence() -> None:
    session, attempt = running_session()
    record_boot(attempt=attempt, position=0, report=report(session, 0, facts={}), measured=[values(1.0, 2.0)])
    machine = Machine.objects.get()
    assert machine.virtual
    assert set(machine.doubts) == {"vendor", "arch"}


def test_machine_that_is_not_what_it_says_is_quarantined() -> None:
    session, attempt = running_session()
    facts = {"uarch": "zen3", "virtual": True, "core_types": [{"name": "all", "cpus": "0"}]}
    record_boot(attempt=attempt, position=0, report=report(session, 0, facts=facts), measured=[values(1.0, 2.0)])
    machine = Machine.objects.get()
    session.refresh_from_db()
    assert machine.health == Machine.Health.QUARANTINED
    assert machine.virtual
    assert session.state == SessionState.FAILED
    assert "registered as haswell, but its CPU is zen3" in session.reason


def test_result_that_comes_twice_is_no_news_of_the_machine() -> None:
    session, attempt = running_session()
    old, new = ({"uarch": "haswell", "fingerprint": f"1-{digit}", "core_types": []} for digit in "ab")
    first = report(session, 0, facts=old)
    record_boot(attempt=attempt, position=0, report=first, measured=[values(1.0, 2.0)])
    base = session.boots.filter(arm="base").exclude(position=0).values_list("position", flat=True)[0]
    record_boot(attempt=attempt, position=base, report=report(session, base, facts=new), measured=[values(1.0, 2.0)])
    record_boot(attempt=attempt, position=0, report=first, measured=[values(1.0, 2.0)])
    machine = Machine.objects.get()
    assert facts_of_machine(machine)["fingerprint"] == "1-b"
    assert [reason for _at, reason, _trace in latest_changes(machine, limit=5)] == ["fingerprint"]


def kinds(first: int, number: int = 16) -> dict[str, object]:
    return {"uarch": "haswell", "core_types": [{"name": f"kind-{first + n}", "cpus": "0"} for n in range(number)]}


def test_machine_has_few_kinds_of_cores_however_many_its_boots_name() -> None:
    session, attempt = running_session()
    positions = session.boots.filter(arm="base").order_by("position").values_list("position", flat=True)
    for turn, position in enumerate(positions[:2]):
        seen = report(session, position, facts=kinds(16 * turn))
        of_each = [values(9.0, 1.5, core_type=f"kind-{16 * turn}"), values(9.0, 1.5, core_type=f"kind-{16 * turn + 1}")]
        record_boot(attempt=attempt, position=position, report=seen, measured=of_each)
    names = set(session.machine.core_types.values_list("name", flat=True))
    assert len(names) == 16
    # What was measured on stays; what was not makes room.
    assert {"kind-0", "kind-1", "kind-16", "kind-17"} <= names
    assert Measurement.objects.count() == 4


def test_only_measured_boots_tell_kinds_of_cores_and_trouble_is_told_once() -> None:
    session, attempt = running_session()
    session.boots.filter(position=0).update(state=BootState.RUNNING, started_by=attempt.key)
    trouble = {"outcome": "infrastructure", "reason": "no space", "boot_id": "", "build_id": ""}
    for turn in range(3):
        facts = {**kinds(turn, 1), "fingerprint": f"1-{turn}"}
        record_boot(attempt=attempt, position=0, report=report(session, 0, facts=facts, **trouble), measured=[])
    assert [row.name for row in session.machine.core_types.all()] == ["all"]
    assert facts_of_machine(session.machine)["fingerprint"] == "1-0"


def test_list_of_a_kinds_cpus_is_kept_in_short() -> None:
    session, attempt = running_session()
    facts = {"uarch": "haswell", "core_types": [{"name": "all", "cpus": "0," * 20_000}]}
    record_boot(attempt=attempt, position=0, report=report(session, 0, facts=facts), measured=[values(9.0, 1.5)])
    assert len(session.machine.core_types.get().cpus) == 4096


def test_boot_that_failed_very_often_for_reasons_of_ours_is_not_begun_again() -> None:
    session, attempt = running_session()
    begun = 0
    trouble = {"outcome": "infrastructure", "reason": "no space", "boot_id": "", "build_id": ""}
    while begun < 100 and start_boot(attempt=attempt, agent=attempt.agent, position=0):
        begun += 1
        record_boot(attempt=attempt, position=0, report=report(session, 0, **trouble), measured=[])
    assert begun == 50


def test_boots_of_one_session_are_measured_by_one_version_of_a_benchmark() -> None:
    session, attempt = running_session()
    record_boot(attempt=attempt, position=0, report=report(session, 0), measured=[values(9.0, 1.5)])
    assert Measurement.objects.get().version.hash == "1"
    Benchmark.objects.update(version="2")
    record_boot(attempt=attempt, position=1, report=report(session, 1), measured=[values(9.0, 7.0, version="2")])
    assert Measurement.objects.count() == 1
    (note,) = session.boots.get(position=1).notes
    assert note["reason"].startswith("this session measured the case with version 1 before")


def test_boot_took_no_longer_than_the_service_saw_it_run() -> None:
    session, attempt = running_session()
    assert start_boot(attempt=attempt, agent=attempt.agent, position=0)
    now = clock.now()
    told = report(session, 0, started_at=now - timedelta(days=1), ended_at=now + timedelta(days=1))
    record_boot(attempt=attempt, position=0, report=told, measured=[values(9.0, 1.5)])
    boot = session.boots.get(position=0)
    assert boot.started_at is not None
    assert boot.ended_at is not None
    assert timedelta(0) <= boot.ended_at - boot.started_at < timedelta(minutes=5)


def test_values_that_come_after_their_session_ended_are_kept_and_not_judged() -> None:
    session, attempt = running_session()
    assert start_boot(attempt=attempt, agent=attempt.agent, position=0)
    end_session(session, SessionState.FAILED, because("given up"))
    late = report(session, 0, facts=kinds(0, 2), conditions={"load": 1})
    assert record_boot(attempt=attempt, position=0, report=late, measured=[values(9.0, 1.5)]) == (True, False)
    boot = session.boots.get(position=0)
    assert (boot.state, boot.outcome, boot.boot_id) == ("failed", "late", late.boot_id)
    assert Measurement.objects.get().values == [9.0, 1.5]
    assert boot.conditions.document == {"load": 1}
    assert read_cells([session]) == []
    measured = Measurement.objects.filter(boot__session=session)
    ((_, column),) = sample_columns(measured, sampled_cells(measured))
    assert (column["values"], column["judged"]) == ([[9.0, 1.5]], [False])
    # Told twice it is there already; what was never begun has nothing to tell.
    assert record_boot(attempt=attempt, position=0, report=late, measured=[values(9.0, 1.5)])[0] is False
    assert record_boot(attempt=attempt, position=1, report=report(session, 1), measured=[values(9.0, 1.5)])[0] is False
    assert Measurement.objects.count() == 1
