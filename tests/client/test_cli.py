"""The command line against the running service: what people read, and what scripts read."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from pyarrow import parquet
from pytest_django.live_server_helper import LiveServer
from tidemark import Tidemark
from tidemark.api import Query
from tidemark.cli import MATCHED, OK, TROUBLE, USAGE, main
from tidemark.nouns import NOUNS

from server.core.access.people import issue_person_token
from server.core.models import PersonToken
from server.detection.models import Finding, NoiseProfile, Timeline
from server.lab.models import Session, Trial
from server.sources.models import Series
from tests.api.test_submissions import mbox
from tests.builders import (
    EPOCH,
    build_build,
    build_case,
    build_comparison,
    build_finding,
    build_machine,
    build_measurement,
    build_metric,
    build_revision,
    build_series,
    build_session,
)

Step = Callable[[], object]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def findings() -> list[Finding]:
    return [
        build_finding(build_series(), kind=kind, headline=f"mm: {kind}")
        for kind in (Finding.Kind.REGRESSED, Finding.Kind.UNCHANGED, Finding.Kind.SPLIT)
    ]


def build_profile() -> None:
    machine = build_machine("zen3-1")
    core_type, _ = machine.core_types.get_or_create(name="all")
    NoiseProfile.objects.create(
        machine=machine, case=build_case(), metric=build_metric(), core_type=core_type, comparisons=9, false_alarms=0,
        rejections=0, change_95=0.01, boot_sd=0.0, changes=[0.0] * 9, last_at=EPOCH,
    )  # fmt: skip


def run(live_server: LiveServer, *words: str) -> int:
    return main(["--server", live_server.url, *words])


def test_a_table_has_a_line_for_each_row_and_no_colours_in_a_pipe(
    live_server: LiveServer, findings: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(live_server, "findings") == OK
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["id", "kind", "state"]
    assert [line.split()[0] for line in lines] == [str(one.pk) for one in reversed(findings)]
    assert "\x1b" not in "".join(lines)


def test_filters_are_those_of_the_api(
    live_server: LiveServer, findings: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(live_server, "findings", "kind=split", "--format", "json") == OK
    assert [one["id"] for one in json.loads(capsys.readouterr().out)] == [findings[2].pk]
    assert run(live_server, "findings", "kind=slow") == USAGE
    assert "kind: " in capsys.readouterr().err
    assert run(live_server, "findings", "knid=split") == USAGE
    assert "knid: There is no such parameter here. Known: " in capsys.readouterr().err
    assert run(live_server, "findings", "regressed") == USAGE
    assert "write NAME=VALUE" in capsys.readouterr().err


def test_a_script_is_told_by_the_exit_code(
    live_server: LiveServer, findings: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(live_server, "findings", "--fail-on", "regressed,split") == MATCHED
    assert "mm: split" in capsys.readouterr().out
    assert run(live_server, "findings", "--fail-on", "improved") == OK
    assert run(live_server, "findings", "kind=unchanged", "--fail-on", "regressed") == OK


def test_every_row_counts_for_the_exit_code_and_a_misspelt_word_stops_the_script(
    live_server: LiveServer,
    findings: list[Finding],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidemark.cli._USUAL_LIMIT", 1)
    assert run(live_server, "findings") == OK
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run(live_server, "findings", "--fail-on", "regressed") == MATCHED
    assert run(live_server, "findings", "--fail-on", "regresed") == USAGE
    assert "regresed" in capsys.readouterr().err


def test_columns_are_chosen_and_csv_keeps_them(
    live_server: LiveServer, findings: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(live_server, "findings", "--format", "csv", "--columns", "id,headline", "--limit", "1") == OK
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [
        ["id", "headline"],
        [str(findings[2].pk), "mm: split"],
    ]


def test_csv_is_the_one_of_the_service(live_server: LiveServer, capfd: pytest.CaptureFixture[str]) -> None:
    for subject in ("=cmd|' /C calc'!A0", "mm: plain; -1", "\u200b+1", "- ", "a;=1"):
        series = build_series(subject=subject)
        build_comparison(build_session(series), "regressed")
        build_finding(series, headline=subject, identical=True)
    names = "headline,identical,created_at,vector"
    assert run(live_server, "findings", "--format", "csv", "--columns", names) == OK
    own = capfd.readouterr().out
    assert run(live_server, "get", "findings", "format=csv", f"fields={names}") == OK
    assert own == capfd.readouterr().out.replace("\r\n", "\n")
    assert "'=cmd" in own


def test_tables_ask_for_their_columns_and_documents_for_all(
    live_server: LiveServer,
    findings: list[Finding],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[object] = []
    rows = Tidemark.rows

    def seen(self: Tidemark, path: str, query: Query | None = None, **more: Any) -> Any:
        asked.append((query or {}).get("fields"))
        return rows(self, path, query, **more)

    monkeypatch.setattr(Tidemark, "rows", seen)
    assert run(live_server, "findings", "--columns", "id,vector.zen3.ratio,id", "--fail-on", "improved") == OK
    assert run(live_server, "series", "--format", "csv", "--columns", "finding.kind") == OK
    assert run(live_server, "series", "--format", "csv", "fields=id,subject") == OK
    assert run(live_server, "findings", "--format", "ndjson") == OK
    assert asked == ["id,vector,kind", "finding", "id,subject", None]
    capsys.readouterr()
    assert run(live_server, "findings", "--columns", "id,colour") == USAGE
    assert "There is no field colour here. Known: id, " in capsys.readouterr().err


def test_any_address_is_answered_as_it_is_and_what_is_known_is_not_told_again(
    live_server: LiveServer, findings: list[Finding], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("get", "findings", "fields=id,kind", "format=csv")
    assert run(live_server, *words) == OK
    told = capfd.readouterr().out
    assert told.splitlines()[1] == f"{findings[2].pk},split"
    mark = tmp_path / "mark"
    assert run(live_server, *words, "--etag", str(mark)) == OK
    assert capfd.readouterr().out == told
    assert run(live_server, *words, "--etag", str(mark)) == OK
    assert capfd.readouterr() == ("", "tidemark: as it was\n")
    build_finding(build_series(), kind="improved")
    assert run(live_server, *words, "--etag", str(mark)) == OK
    assert "improved" in capfd.readouterr().out
    assert run(live_server, "get", f"findings/{findings[0].pk}", "fields=kind") == OK
    assert capfd.readouterr().out == '{"kind":"regressed"}\n'
    assert run(live_server, "get", "findings/?kind=split") == USAGE
    assert run(live_server, "get", "../../admin") == USAGE
    assert run(live_server, "get", "findings", "--etag", str(tmp_path)) == USAGE
    assert run(live_server, "get", "findings", "--etag", str(tmp_path / "no" / "mark")) == USAGE
    assert run(live_server, "get", "no-such-thing") == TROUBLE


def test_timeline_is_found_by_its_id_or_by_what_it_is_of(
    live_server: LiveServer, capsys: pytest.CaptureFixture[str]
) -> None:
    base = build_revision()
    machine, case = build_machine("zen3-1", "zen3"), build_case()
    cell = {
        "branch": base.tree.branches.create(name="master"),
        "reference": base,
        "core_type": machine.core_types.get(),
    }
    for metric in ("time", "space"):
        Timeline.objects.create(machine=machine, case=case, metric=build_metric(metric), **cell)
    one = Timeline.objects.get(metric__name="time")
    assert run(live_server, "timeline", str(one.pk)) == OK
    assert run(live_server, "timeline", "case=fault-4k", "metric=time") == OK
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert run(live_server, "timeline", "case=fault-4k") == USAGE
    assert "metric: Several are left. Say which: space, time." in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("findings", "fields=id", "--fail-on", "regressed"),
        ("findings", "fields=id,kind", "--fail-on", "regressed", "--format", "ndjson"),
        ("watch", "findings", "fields=headline", "--fail-on", "regressed"),
        ("compare", "3f2a9bc..90ab12e", "fields=verdict"),
        ("timeline", "case=fault-4k", "fields=sha"),
        ("timeline", "case=fault-4k", "format=csv"),
        ("findings", "--limit", "-1"),
        ("events", "--limit", "-1"),
        ("what-if", "zen3-1", "4", "--limit", "-1"),
    ],
)
def test_what_would_leave_out_what_is_read_is_refused(live_server: LiveServer, words: tuple[str, ...]) -> None:
    assert run(live_server, *words) == USAGE


def test_blanks_between_columns_are_none_of_their_names(
    live_server: LiveServer, findings: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(live_server, "findings", "kind=split", "--columns", "id, kind", "--format", "csv") == OK
    assert capsys.readouterr().out == f"id,kind\n{findings[2].pk},split\n"


def test_noise_of_a_machine_is_told_cell_by_cell(live_server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    build_profile()
    assert run(live_server, "noise", "zen3-1", "--format", "csv", "--columns", "machine,case,change_95") == OK
    assert capsys.readouterr().out == "machine,case,change_95\nzen3-1,fault-4k,0.01\n"
    assert run(live_server, "noise", "nobody") == TROUBLE


def test_columns_and_outcomes_are_fields_of_the_answers(live_server: LiveServer) -> None:
    with Tidemark(live_server.url) as service:
        described = service.get("schema")
    schemas = described["components"]["schemas"]

    def fields(form: dict[str, Any]) -> dict[str, Any]:
        several = form.get("allOf", form.get("oneOf", form.get("anyOf", [])))
        named = form.get("$ref") or next((one["$ref"] for one in several), "")
        found: dict[str, Any] = schemas[named.rpartition("/")[2]].get("properties", {}) if named else {}
        return found

    for name, noun in NOUNS.items():
        answer = described["paths"][f"/api/v1/{noun.path}/"]["get"]["responses"]["200"]["content"]
        page = fields(answer["application/json"]["schema"])
        row = fields((page.get("results") or page["rows"])["items"])
        known = {one["name"] for one in described["paths"][f"/api/v1/{noun.path}/"]["get"].get("parameters", ())}
        assert not noun.outcome or noun.filter in known, name
        for column in filter(None, (*noun.columns, noun.outcome)):
            first, _, rest = column.partition(".")
            assert first in row, f"{name}: {column}"
            assert not rest or rest in fields(row[first]), f"{name}: {column}"


def test_samples_are_one_row_for_each_value(live_server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    session = build_session(state=Session.State.DONE)
    build_measurement(session.boots.get(position=0), [412.0, 398.125])
    assert run(live_server, "samples", str(session.pk), "--format", "csv", "--columns", "boot,arm,run,value") == OK
    assert capsys.readouterr().out == "boot,arm,run,value\n0,base,0,412.0\n0,base,1,398.125\n"
    assert run(live_server, "samples", str(session.pk), "case=fault", "--format", "csv") == USAGE
    assert "Known: fault-4k." in capsys.readouterr().err


def test_samples_come_as_a_file_that_other_programs_read(
    live_server: LiveServer, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    session = build_session(state=Session.State.DONE)
    build_measurement(session.boots.get(position=0), [412.0, 398.125])
    assert run(live_server, "samples", str(session.pk), "--format", "parquet", "--columns", "case,value") == OK
    sys.stdout.flush()
    read = parquet.read_table(io.BytesIO(capfdbinary.readouterr().out))
    assert read.to_pydict() == {"case": ["fault-4k"] * 2, "value": [412.0, 398.125]}


def test_what_boots_would_show_is_told_cell_by_cell(
    live_server: LiveServer, capsys: pytest.CaptureFixture[str]
) -> None:
    build_profile()
    words = ("--format", "csv", "--columns", "machine,boots,case,mde")
    assert run(live_server, "what-if", "zen3-1", "4", *words) == OK
    head, line = capsys.readouterr().out.splitlines()
    assert head == "machine,boots,case,mde"
    assert line.startswith("zen3-1,4,fault-4k,0.01")
    assert run(live_server, "what-if", "zen3-1", "1") == USAGE
    assert "boots: " in capsys.readouterr().err


def test_two_kernels_are_compared_cell_by_cell(live_server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    session = build_session(state=Session.State.DONE, boots_per_side=6)
    for boot in session.boots.all():
        level = (1.2 if boot.arm == "patched" else 1.0) * (1 + 0.001 * (boot.position % 3))
        build_measurement(boot, [100.0 * level * (1 + 0.0005 * run) for run in range(6)])
    pair = f"build:{session.base_build_id}..build:{session.patched_build_id}"
    words = ("--fail-on", "regressed", "--format", "csv", "--columns", "machine,verdict,shares_session")
    assert run(live_server, "compare", pair, *words) == MATCHED
    assert capsys.readouterr().out == "machine,verdict,shares_session\nvm-haswell,regressed,true\n"
    assert run(live_server, "compare", pair, "--fail-on", "split") == USAGE
    assert "--fail-on: split is none of" in capsys.readouterr().err
    assert run(live_server, "compare", "v6.1") == USAGE
    assert "BASE..PATCHED" in capsys.readouterr().err


def test_one_row_is_shown_whole_and_an_unknown_one_is_told(
    live_server: LiveServer, findings: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(live_server, "show", "findings", str(findings[0].pk)) == OK
    assert json.loads(capsys.readouterr().out)["headline"] == "mm: regressed"
    assert run(live_server, "show", "findings", "999999") == TROUBLE
    assert "(not-found)" in capsys.readouterr().err


def test_watch_ends_with_the_first_row_that_matters(
    live_server: LiveServer,
    findings: list[Finding],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kinds = [Finding.Kind.IMPROVED, Finding.Kind.REGRESSED]
    monkeypatch.setattr("tidemark.cli._sleep", lambda _: build_finding(build_series(), kind=kinds.pop(0)))
    assert run(live_server, "watch", "findings", "--fail-on", "regressed", "--columns", "kind") == MATCHED
    assert capsys.readouterr().out == "improved\nregressed\n"


def test_watch_may_begin_with_what_is_there(
    live_server: LiveServer, findings: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    """A CI may come to ask when all is over."""
    words = ("--fail-on", "split", "--columns", "kind", "--known")
    assert run(live_server, "watch", "findings", *words) == MATCHED
    assert capsys.readouterr().out == "regressed\nunchanged\nsplit\n"


def test_watch_looks_again_at_series_whose_finding_comes_later(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, newer = build_series(), build_series()
    steps: Iterator[Step] = iter(
        [lambda: build_finding(newer, kind="unchanged"), lambda: build_finding(old, kind="regressed")]
    )
    monkeypatch.setattr("tidemark.cli._sleep", lambda _: next(steps)())
    assert run(live_server, "watch", "series", "--fail-on", "regressed", "--columns", "id,finding.kind") == MATCHED
    assert capsys.readouterr().out == f"{newer.pk}  unchanged\n{old.pk}  regressed\n"


def test_watch_asks_for_what_is_no_longer_among_the_newest(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidemark.cli._USUAL_LIMIT", 1)
    old = build_series()
    later: list[Any] = []
    steps: Iterator[Step] = iter([lambda: later.append(build_series()), lambda: build_finding(old, kind="regressed")])
    monkeypatch.setattr("tidemark.cli._sleep", lambda _: next(steps)())
    assert run(live_server, "watch", "series", "--fail-on", "regressed", "--columns", "id,finding.kind") == MATCHED
    assert capsys.readouterr().out == f"{later[0].pk}  \n{old.pk}  regressed\n"


@pytest.mark.parametrize("form", ["table", "csv", "json", "ndjson"])
def test_a_reader_who_has_enough_does_not_change_what_a_script_is_told(
    live_server: LiveServer, findings: list[Finding], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("tidemark.cli._say_no_more", lambda: None)
    monkeypatch.setattr("sys.stdout", Closed())
    assert run(live_server, "findings", "--format", form, "--fail-on", "regressed") == MATCHED
    assert run(live_server, "findings", "--format", form, "--fail-on", "improved") == OK


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "token"
    user = User.objects.create_superuser("ada")
    path.write_text(issue_person_token(user, name="cli", scopes=PersonToken.Scope.values).secret + "\n")
    monkeypatch.setenv("TIDEMARK_TOKEN_FILE", str(path))
    return path


def test_series_is_handed_in_and_the_same_once_more_is_known(
    live_server: LiveServer, token: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    box = tmp_path / "series.mbox"
    box.write_bytes(mbox())
    assert run(live_server, "submit", str(box)) == OK
    assert "2 mails of <a-1@example.org>\n" in capsys.readouterr().out
    assert run(live_server, "submit", str(box)) == OK
    assert "handed in before" in capsys.readouterr().out
    assert run(live_server, "submit", str(tmp_path / "none")) == USAGE
    token.write_text("tmp_000000000000_" + "x" * 43)
    assert run(live_server, "submit", str(box)) == TROUBLE
    assert "revoked or expired" in capsys.readouterr().err


def test_series_is_approved_as_it_was_read_and_measured_again(
    live_server: LiveServer, token: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = build_series(state=Series.State.HELD)
    assert run(live_server, "approve", str(held.pk)) == OK
    mark = capsys.readouterr().out.partition("--seen ")[2].split()[0]
    assert run(live_server, "approve", str(held.pk), "--seen", mark) == USAGE
    assert run(live_server, "approve", str(held.pk), "--seen", mark, "--reason", "read") == OK
    assert f"series {held.pk} is ready" in capsys.readouterr().out
    session = build_session(state=Session.State.DONE)
    Trial.objects.update(state=Trial.State.DONE)
    assert run(live_server, "retest", str(session.series_id), "--reason", "seen twice") == OK
    assert "is measured again, by trial" in capsys.readouterr().out
    assert run(live_server, "retest", str(session.series_id), "--reason", "seen twice") == OK
    assert "already" in capsys.readouterr().out


def test_queue_is_watched(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build_build(state="wanted")
    steps: Iterator[Step] = iter([lambda: build_build(state="wanted")])
    monkeypatch.setattr("tidemark.cli._sleep", lambda _: next(steps, _interrupt)())
    assert run(live_server, "watch", "queue", "--columns", "kind") == 130
    assert capsys.readouterr().out == "build\n"


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_wrong_usage_is_not_mistaken_for_a_match(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["findigns"])
    assert ended.value.code == USAGE
    assert "findigns" in capsys.readouterr().err
    assert main(["findings"]) == USAGE
    assert "--server" in capsys.readouterr().err


def test_bash_completes_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion"]) == OK
    assert "complete -o default -F _tidemark tidemark" in capsys.readouterr().out
