"""The command line against the running service: what people read, and what scripts read."""

import csv
import io
import json
import sys
from typing import Any

import pytest
from pyarrow import parquet
from pytest_django.live_server_helper import LiveServer
from tidemark import Tidemark
from tidemark.cli import MATCHED, OK, TROUBLE, USAGE, main
from tidemark.nouns import NOUNS

from server.detection.models import Finding, NoiseProfile
from server.lab.models import Session
from tests.builders import (
    EPOCH,
    build_case,
    build_finding,
    build_machine,
    build_measurement,
    build_metric,
    build_series,
    build_session,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def findings() -> list[Finding]:
    return [
        build_finding(build_series(), kind=kind, headline=f"mm: {kind}")
        for kind in (Finding.Kind.REGRESSED, Finding.Kind.UNCHANGED, Finding.Kind.SPLIT)
    ]


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
    assert run(live_server, "findings", "kind=slow") == TROUBLE
    assert "kind: " in capsys.readouterr().err
    assert run(live_server, "findings", "knid=split") == TROUBLE
    assert "knid: There is no such parameter here. Known: " in capsys.readouterr().err
    assert run(live_server, "findings", "regressed") == TROUBLE
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
    assert run(live_server, "findings", "--fail-on", "regresed") == TROUBLE
    assert "regresed" in capsys.readouterr().err


def test_columns_are_chosen_and_csv_keeps_them(
    live_server: LiveServer, findings: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(live_server, "findings", "--format", "csv", "--columns", "id,headline", "--limit", "1") == OK
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [
        ["id", "headline"],
        [str(findings[2].pk), "mm: split"],
    ]


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
    assert run(live_server, "samples", str(session.pk), "case=fault", "--format", "csv") == TROUBLE
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
    machine = build_machine("zen3-1")
    core_type, _ = machine.core_types.get_or_create(name="all")
    NoiseProfile.objects.create(
        machine=machine, case=build_case(), metric=build_metric(), core_type=core_type, comparisons=9, false_alarms=0,
        rejections=0, change_95=0.01, boot_sd=0.0, changes=[0.0] * 9, last_at=EPOCH,
    )  # fmt: skip
    words = ("--format", "csv", "--columns", "machine,boots,case,mde")
    assert run(live_server, "what-if", "zen3-1", "4", *words) == OK
    head, line = capsys.readouterr().out.splitlines()
    assert head == "machine,boots,case,mde"
    assert line.startswith("zen3-1,4,fault-4k,0.01")
    assert run(live_server, "what-if", "zen3-1", "1") == TROUBLE
    assert "boots: " in capsys.readouterr().err


def test_two_kernels_are_compared_cell_by_cell(live_server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    session = build_session(state=Session.State.DONE, boots_per_side=6)
    for boot in session.boots.all():
        level = (1.2 if boot.arm == "patched" else 1.0) * (1 + 0.001 * (boot.position % 3))
        build_measurement(boot, [100.0 * level * (1 + 0.0005 * run) for run in range(6)])
    pair = f"build:{session.base_build_id}..build:{session.patched_build_id}"
    words = ("--fail-on", "regressed", "--format", "csv", "--columns", "machine,verdict,shares_session")
    assert run(live_server, "compare", pair, *words) == MATCHED
    assert capsys.readouterr().out == "machine,verdict,shares_session\nvm-haswell,regressed,yes\n"
    assert run(live_server, "compare", pair, "--fail-on", "split") == TROUBLE
    assert "--fail-on: split is none of" in capsys.readouterr().err
    assert run(live_server, "compare", "v6.1") == TROUBLE
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
