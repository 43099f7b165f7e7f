"""What is old leaves for the archive and is read from there; what somebody uses stays; a kill loses nothing."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pyarrow as pa
import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from pyarrow import parquet
from pytest_django.fixtures import Settings

from server.builds.expiry import nameless_files
from server.builds.storage import FolderStore, artifact_store, has_artifact
from server.core import clock
from server.core.models import Transition
from server.detection.lifecycle.needed import sessions_in_use
from server.detection.models import Finding
from server.detection.trials.judgement import fresh_comparisons
from server.lab.models import Boot, Conditions, Session, Trial
from server.results import archive, retention
from server.results.models import ArchivedSession, ArchivePart, KeptKind, KeptMonth, Measurement, PackedValues, Summary
from tests.builders import (
    build_attempt,
    build_case,
    build_comparison,
    build_finding,
    build_machine,
    build_measurement,
    build_metric,
    build_session,
)
from tests.builds.conftest import use_bucket
from tests.builds.s3_server import s3_server

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 15, tzinfo=UTC)


@pytest.fixture(autouse=True)
def policy(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.KEEP_MONTHS = {"samples": 3, "conditions": 3, "transitions": 3, "logs": 3}
    monkeypatch.setattr(clock, "now", lambda: NOW)


def measured(at: datetime, **fields: Any) -> Session:
    """A session of that day whose trial is answered, with two cases, conditions, steps and a log."""
    session = build_session(state=Session.State.DONE, **fields)
    Session.objects.filter(pk=session.pk).update(created_at=at)
    Trial.objects.filter(sessions=session).update(state=Trial.State.DONE, answered_at=NOW)
    for boot in session.boots.order_by("position"):
        for name in ("fault-4k", "fault-2m"):
            build_measurement(boot, [9.5, 1.0 + boot.position, 0.1, 2.5], build_case(name), build_metric())
        Conditions.objects.create(boot=boot, document={"of": boot.position}, console_tail=f"console {boot.position}")
    build_attempt(session, state="done", log="what the agent said")
    return session


def answers(client: Client, session: Session) -> tuple[Any, ...]:
    """All forms in which its values are told, without when they left."""
    samples = reverse("api-session-samples", args=[session.pk])
    told = json.loads(client.get(samples).getvalue())
    told.pop("archived")
    asked: list[dict[str, str]] = [{"format": "csv"}, {"format": "ndjson", "arm": "base"}, {"case": "fault-2m"}]
    tables = [client.get(samples, query).getvalue() for query in asked[:2]]
    narrowed = json.loads(client.get(samples, asked[2]).getvalue())["columns"]
    arrow = pa.ipc.open_stream(client.get(samples, {"format": "arrow"}).getvalue()).read_all().to_pylist()
    rows = client.get(reverse("api-measurement-list"), {"session": str(session.pk), "format": "parquet"}).getvalue()
    page = client.get(reverse("api-measurement-list"), {"session": session.pk}).json()
    return told, *tables, narrowed, arrow, rows, page


def retain(**options: Any) -> list[retention.Leaving]:
    return retention.retain(sessions_in_use, seconds=60, **options)


def told(done: Sequence[retention.Leaving]) -> list[tuple[str, str, int, int]]:
    return [(one.kind, f"{one.month:%Y-%m}", one.sessions, one.rows) for one in done]


def test_session_that_has_left_is_answered_as_before(client: Client) -> None:
    session = measured(datetime(2026, 7, 31, 23, 59, tzinfo=UTC))
    before = answers(client, session)
    steps = Transition.objects.filter(subject__in=["boot", "attempt"])
    assert told(retain()) == [
        ("samples", "2026-07", 1, 8),
        ("conditions", "2026-07", 1, 4),
        ("transitions", "2026-07", 1, 5),
        ("logs", "2026-07", 1, 1),
    ]
    assert not PackedValues.objects.exists()
    assert not Conditions.objects.exists()
    assert not steps.exists()
    assert Transition.objects.filter(subject="session", subject_id=session.pk).exists()
    assert list(session.attempts.values_list("log", flat=True)) == [""]
    assert answers(client, session) == before
    samples = json.loads(client.get(reverse("api-session-samples", args=[session.pk])).getvalue())
    assert samples["archived"] is not None


def test_median_of_each_boot_stays(client: Client) -> None:
    session = measured(datetime(2026, 5, 2, tzinfo=UTC))
    numbers = set(Measurement.objects.values_list("pk", flat=True))
    retain()
    rows = Measurement.objects.filter(case__name="fault-4k").order_by("boot__position")
    assert list(rows.values_list("values", "warmup", "number", "summarised")) == [
        ([median], 0, 1, True) for median in (1.0, 2.0, 2.5, 2.5)
    ]
    assert set(Measurement.objects.values_list("pk", flat=True)) == numbers
    page = client.get(reverse("session-values", args=[session.pk])).content.decode()
    assert "a median of each boot" in page
    assert client.get(reverse("session", args=[session.pk])).status_code == 200


def test_months_leave_by_their_ends_in_utc() -> None:
    last = measured(datetime(2026, 7, 31, 23, 59, 59, tzinfo=UTC))
    first = measured(datetime(2026, 8, 1, tzinfo=UTC), series=None, machine=build_machine("another"))
    retain()
    assert set(Summary.objects.values_list("boot__session", flat=True)) == {last.pk}
    assert set(PackedValues.objects.values_list("boot__session", flat=True)) == {first.pk}


def test_dry_run_says_what_would_go_and_changes_nothing() -> None:
    measured(datetime(2026, 5, 2, tzinfo=UTC))
    out = StringIO()
    call_command("retain", "--dry-run", stdout=out)
    assert "2026-05 samples: 8 rows of 1 sessions would leave" in out.getvalue()
    assert (ArchivePart.objects.count(), Summary.objects.count(), KeptMonth.objects.count()) == (0, 0, 0)
    assert PackedValues.objects.count() == 8


def test_nothing_leaves_of_what_is_kept_for_ever(settings: Settings) -> None:
    settings.KEEP_MONTHS = {"samples": 0, "conditions": 3, "transitions": 0, "logs": 0}
    measured(datetime(2020, 5, 2, tzinfo=UTC))
    assert {one.kind for one in retain()} == {"conditions"}
    assert PackedValues.objects.count() == 8


def test_what_an_open_finding_uses_stays_until_it_is_over() -> None:
    session = measured(datetime(2026, 5, 2, tzinfo=UTC))
    assert session.series is not None
    build_comparison(session, "regressed")
    finding = build_finding(session.series)
    done = retain()
    assert [(one.kind, one.sessions, one.held) for one in done] == [(kind, 0, 1) for kind in KeptKind.values]
    assert PackedValues.objects.count() == 8
    Finding.objects.filter(pk=finding.pk).update(state=Finding.State.INVALID)
    retain()
    assert not PackedValues.objects.exists()
    # And each month is closed: no run looks at it again.
    assert set(KeptMonth.objects.filter(month="2026-05-01").values_list("is_over", "held")) == {(True, 0)}


def test_what_goes_on_and_what_nobody_answered_stays() -> None:
    session = measured(datetime(2026, 5, 2, tzinfo=UTC))
    Trial.objects.filter(sessions=session).update(answered_at=None)
    assert sum(one.sessions for one in retain()) == 0
    Trial.objects.filter(sessions=session).update(answered_at=NOW)
    Session.objects.filter(pk=session.pk).update(state=Session.State.RUNNING)
    assert sum(one.sessions for one in retain()) == 0
    assert PackedValues.objects.count() == 8


def test_run_that_was_killed_before_rows_went_is_gone_on_with(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    session = measured(datetime(2026, 5, 2, tzinfo=UTC))
    before = answers(client, session)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(retention, "_drop", die)
        with pytest.raises(KeyboardInterrupt):
            retain()
    assert ArchivedSession.objects.get().left_at is None
    # The rows are here: nobody is told of the archive.
    assert answers(client, session) == before
    assert json.loads(client.get(reverse("api-session-samples", args=[session.pk])).getvalue())["archived"] is None
    retain()
    assert ArchivePart.objects.filter(kind="samples").count() == 1
    assert answers(client, session) == before
    assert not PackedValues.objects.exists()
    # Once more changes nothing.
    assert retain() == []


def test_two_runs_at_once_leave_the_way_to_the_archive(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    session = measured(datetime(2026, 5, 2, tzinfo=UTC))
    before = answers(client, session)
    drop = retention._drop
    others: list[int] = []

    def twice(of: ArchivedSession, *rest: Any) -> None:
        # The server of the first run's lock was restarted: another run had read the same row.
        drop(ArchivedSession.objects.select_related("part").get(pk=of.pk), *rest)
        others.append(of.pk)
        drop(of, *rest)

    monkeypatch.setattr(retention, "_drop", twice)
    assert [one.sessions for one in retain()] == [1, 1, 1, 1]
    assert not ArchivedSession.objects.filter(left_at=None).exists()
    assert list(ArchivedSession.objects.order_by("pk").values_list("pk", flat=True)) == others
    assert answers(client, session) == before


def test_result_that_came_after_the_file_is_not_lost(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    session = measured(datetime(2026, 5, 2, tzinfo=UTC))
    write = archive.write_part

    def late(kind: str, *rest: Any) -> Any:
        written = write(kind, *rest)
        if kind == KeptKind.SAMPLES and not PackedValues.objects.filter(cases=[build_case("late").pk]).exists():
            build_measurement(session.boots.order_by("position")[0], [1.0, 7.0], build_case("late"), build_metric())
        return written

    monkeypatch.setattr(retention, "write_part", late)
    retain()
    assert PackedValues.objects.count() == 9
    before = answers(client, session)
    retain()
    assert not PackedValues.objects.exists()
    assert answers(client, session) == before
    assert [part.number for part in ArchivePart.objects.filter(kind="samples")] == [1, 2]


def test_result_that_is_told_when_all_others_have_left_is_told_with_them(client: Client) -> None:
    session = measured(datetime(2026, 5, 2, tzinfo=UTC))
    retain()
    boot = session.boots.order_by("position")[2]
    build_measurement(boot, [4.0, 8.0], build_case("fault-4k"), build_metric("cycles"))
    columns = json.loads(client.get(reverse("api-session-samples", args=[session.pk])).getvalue())["columns"]
    late = [(column["boots"], column["values"]) for column in columns if column["metric"] == "cycles"]
    assert late == [([2], [[4.0, 8.0]])]
    assert [len(column["values"]) for column in columns] == [4, 1, 4]


def test_file_that_is_full_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        measured(datetime(2026, 5, 2, tzinfo=UTC), machine=build_machine(f"another-{number}"))
    monkeypatch.setattr(archive, "_MOST_BYTES", 1)
    retain()
    assert not PackedValues.objects.exists()
    assert ArchivePart.objects.filter(kind="samples").count() == 3
    assert not KeptMonth.objects.filter(month="2026-05-01", is_over=False).exists()


def test_rows_stay_where_the_archive_does_not_give_them_back(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    session = measured(datetime(2026, 5, 2, tzinfo=UTC))
    before = answers(client, session)
    with monkeypatch.context() as patched:
        patched.setattr(FolderStore, "adopt", _adopt_spoiled)
        assert sum(one.sessions for one in retain()) == 0
    assert PackedValues.objects.count() == 8
    # Another run stores them well.
    retain()
    assert not PackedValues.objects.exists()
    assert answers(client, session) == before


def test_file_that_is_gone_is_told_to_readers(client: Client) -> None:
    session = measured(datetime(2026, 5, 2, tzinfo=UTC))
    retain()
    artifact_store().remove(ArchivePart.objects.get(kind="samples").sha256)
    for name, query in (("api-session-samples", {}), ("api-measurement-list", {"session": session.pk})):
        address = reverse(name, args=[] if query else [session.pk])
        answer = client.get(address, query)
        assert (answer.status_code, answer.json()["code"]) == (503, "damaged")
    assert client.get(reverse("session-values", args=[session.pk])).status_code == 200


def _adopt_spoiled(store: FolderStore, sha256: str, file: Any) -> None:
    whole = file.read_bytes()
    target = store.place(sha256)
    target.parent.mkdir(parents=True, exist_ok=True)
    begin, end = len(whole) // 2 - 200, len(whole) // 2 + 200
    target.write_bytes(whole[:begin] + bytes(byte ^ 0xFF for byte in whole[begin:end]) + whole[end:])


def test_archive_is_kept_by_the_store_and_read_without_the_service() -> None:
    session = measured(datetime(2026, 5, 2, tzinfo=UTC))
    retain()
    part = ArchivePart.objects.get(kind="samples")
    assert nameless_files() == []
    with artifact_store().open(part.sha256) as file:
        rows = parquet.read_table(file).to_pylist()
    assert {(row["session"], row["benchmark"], row["metric"]) for row in rows} == {(session.pk, "mm-basic", "time")}
    assert rows[0]["values"] == [9.5, 1.0, 0.1, 2.5]
    with artifact_store().open(part.manifest) as file:
        manifest = json.loads(file.read())
    assert (manifest["month"], manifest["sessions"]) == ("2026-05", [session.pk])
    assert manifest["file"] == {"sha256": part.sha256, "bytes": part.size, "rows": 8}
    assert has_artifact(part.sha256, part.size)
    out = StringIO()
    call_command("retain", "--check", stdout=out)
    assert "4 files of the archive were read, 0 are not whole" in out.getvalue()
    artifact_store().remove(part.sha256)
    with pytest.raises(CommandError):
        call_command("retain", "--check", stdout=out)


def test_archive_in_a_bucket_answers_as_one_in_a_folder(client: Client, settings: Settings) -> None:
    with s3_server() as address:
        store = use_bucket(settings, address, location="archive")
        session = measured(datetime(2026, 5, 2, tzinfo=UTC))
        before = answers(client, session)
        retain()
        assert not PackedValues.objects.exists()
        assert answers(client, session) == before
        assert all(store.find(part.sha256) and store.find(part.manifest) for part in ArchivePart.objects.all())
        call_command("retain", "--check", stdout=StringIO())


def test_boot_whose_samples_have_left_is_judged_by_nothing() -> None:
    session = measured(datetime(2026, 5, 2, tzinfo=UTC))
    assert fresh_comparisons([session])
    retain()
    assert fresh_comparisons([session]) == []
    assert not Boot.objects.filter(session=session, conditions__isnull=False).exists()
    out = StringIO()
    call_command("recompute", "--check", stdout=out)
    assert "passed over" in out.getvalue()


def test_seconds_that_are_over_end_a_run_which_the_next_goes_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        measured(NOW - timedelta(days=150 + number), machine=build_machine(f"another-{number}"), series=None)
    monkeypatch.setattr(retention, "_SESSIONS", 1)
    assert retention.retain(sessions_in_use, seconds=0) == []
    assert PackedValues.objects.count() == 24
    retain()
    assert not PackedValues.objects.exists()
