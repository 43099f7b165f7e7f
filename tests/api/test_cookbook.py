"""Every line of docs/api/cookbook.md, as it stands, by a shell against the real web process."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from pytest_django import DjangoDbBlocker

from server.core.access.people import issue_person_token
from server.core.models import PersonToken, Transition
from server.detection.models import (
    Acceptance,
    ChangePoint,
    Finding,
    MeasuredHead,
    NoiseProfile,
    Timeline,
    TimelinePoint,
)
from server.lab.models import Boot, Session, Trial
from server.reports.models import Delivery, Report
from server.sources.models import ChangedPath, Message, Revision, Series
from tests.api.test_submissions import mbox
from tests.builders import (
    EPOCH,
    build_build,
    build_case,
    build_comparison,
    build_finding,
    build_health_session,
    build_list,
    build_machine,
    build_measurement,
    build_message,
    build_metric,
    build_revision,
    build_series,
    build_session,
    build_tree,
    build_trial,
)
from tests.web.conftest import Web, launch  # noqa: F401 (a fixture)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/api/cookbook.md"
HOW_MANY = 30
PAGING, AGAIN, STREAM, GATE = 8, 11, 20, 28
DAY = EPOCH + timedelta(days=2)

# Rows are made once and seen by another process; each test looks at them by way of it.
pytestmark = [pytest.mark.real(minutes=0.7), pytest.mark.django_db]


@dataclass(frozen=True)
class Recipe:
    """One question: its lines by the program that they begin with, what each answers and ends with."""

    number: int
    title: str
    lines: dict[str, str]
    answers: dict[str, str]
    ends: dict[str, int]

    def parts(self, program: str) -> list[str]:
        """What has to stand in an answer: each line, or of the table that the client makes of it, each word."""
        lines = self.answers.get(program, "").splitlines()
        if lines:
            return [squeezed(line).strip() for line in lines]
        head, *rows = self.answers["tidemark"].splitlines()
        if head.startswith('"'):
            return [squeezed(line).strip() for line in (head, *rows)]
        words = [word for row in rows or [head] for word in row.replace(",", " ").split()]
        return [{"yes": "true", "no": "false"}.get(word, word) for word in words]


_QUESTION = re.compile(r"^### (\d+)\. (.+)$", re.MULTILINE)
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ENDS = re.compile(r"`(curl|tidemark)` ends with (\d+)")


def recipes() -> list[Recipe]:
    _, *parts = _QUESTION.split(PAGE.read_text(encoding="utf-8"))
    return [_recipe(int(number), title, text) for number, title, text in zip(*[iter(parts)] * 3, strict=True)]


def _recipe(number: int, title: str, text: str) -> Recipe:
    lines: dict[str, str] = {}
    answers: dict[str, str] = {}
    program = ""
    for kind, found in _FENCED.findall(text):
        if kind == "sh":
            program = "tidemark" if found.startswith("tidemark ") else "curl"
            assert program not in lines, f"{number} has two lines of {program}"
            assert found.count("\n") == 1, f"{number}: a line is one line"
            lines[program] = found.rstrip("\n")
        else:
            answers[program] = found
    return Recipe(number, title, lines, answers, {name: int(code) for name, code in _ENDS.findall(text)})


def squeezed(text: str) -> str:
    """Without the blanks by which a document or a table is set."""
    return re.sub(r"[ \r]+", " ", re.sub(r'(?<=[":,\[{])\s+(?=[\["{\w])', "", text))


RECIPES = recipes()


@dataclass(frozen=True)
class Kitchen:
    """Where lines are run."""

    folder: Path
    environment: dict[str, str]
    web: Web

    def asked(self) -> list[str]:
        """What the web process was asked so far."""
        return [line for line in self.web.said().splitlines() if '"event": "request"' in line]

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False,
            timeout=60,
        )  # fmt: skip


@pytest.fixture(scope="module")
def kitchen(
    launch: Callable[..., Web],  # noqa: F811
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Kitchen]:
    folder = tmp_path_factory.mktemp("cookbook")
    (folder / "series.mbox").write_bytes(mbox())
    command = folder / "bin" / "tidemark"
    command.parent.mkdir()
    client, python = shlex.quote(str(ROOT / "client")), shlex.quote(sys.executable)
    command.write_text(
        f"#!/bin/sh\nPYTHONPATH={client} exec {python} -c 'import tidemark.cli as c; c.entry()' \"$@\"\n"
    )
    command.chmod(0o755)
    with django_db_blocker.unblock():
        try:
            token = _served()
            web = launch()
            path = os.pathsep.join([str(command.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
            given = {"TIDEMARK_SERVER": web.address, "API": f"{web.address}/api/v1", "TIDEMARK_TOKEN": token}
            yield Kitchen(folder, {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", **given}, web)
        finally:
            call_command("flush", verbosity=0, interactive=False)


def _served() -> str:
    """The rows of which the cookbook speaks; the secret of somebody who may act."""
    with connection.cursor() as cursor:
        # Those that it names by their numbers, no other row of this database may take.
        cursor.execute(
            "SELECT setval(format('%I.%I', schemaname, sequencename), greatest(1000, last_value)) FROM pg_sequences"
        )
    case, metric = build_case("fault-4k", parameters={"size": "4k"}), build_metric("time")
    copy = build_case("copy-64k", parameters={"size": "64k"})
    zen3, haswell = build_machine("zen3-1", "zen3"), build_machine("haswell-1", "haswell")
    mm = build_list("linux-mm", tree=build_tree("mm"))

    def series(number: int, message_id: str, subject: str, **fields: Any) -> Series:
        cover = build_message(mm, kind=Message.Kind.COVER, message_id=message_id, subject=f"[PATCH 0/2] {subject}")
        return build_series(mm, pk=number, cover=cover, root_message_id=message_id, subject=subject, **fields)

    base = build_revision(mm.tree, sha="3f2a9bc".ljust(40, "0"))
    head = build_revision(mm.tree, base, sha="90ab12e".ljust(40, "0"), foreign=True)
    slower = series(12, "20261101120000.1-1-ada@example.org", "mm: Clear pages twice", base=base, head=head)
    ChangedPath.objects.create(message=slower.patches.get(index=1).message, beginning="mm/memory.c")
    build_build(base, pk=21)
    build_build(head, pk=22)
    build_health_session(zen3, pk=40, state="failed", reason="2 of 4 boots were measured", reason_code="too-few-boots")
    measured = build_session(slower, zen3, pk=41, state=Session.State.DONE, boots_per_side=6)
    for boot in measured.boots.all():
        level = (1.1234 if boot.arm == Boot.Arm.PATCHED else 1.0) * (1 + 0.001 * (boot.position % 3))
        build_measurement(boot, [100.0 * level * (1 + 0.0005 * run) for run in range(6)], case, metric)
    ratio = {"ratio": 1.1234, "ratio_low": 1.1122, "ratio_high": 1.1346, "patched_mean": 1123.4}
    build_comparison(measured, "regressed", case=case, metric=metric, **ratio)
    build_comparison(build_session(slower, haswell, pk=42, state=Session.State.DONE), "improved", case=copy)
    text = "Split: regressed on zen3 (1.12x time of fault-4k), improved on haswell (0.80x time of copy-64k)."
    build_finding(slower, Finding.Kind.SPLIT, pk=7, headline=text)
    Trial.objects.update(state=Trial.State.DONE)

    same = series(14, "20261102090000.7-1-bob@example.org", "mm: Fault around once")
    build_comparison(build_session(same, zen3, pk=44, state=Session.State.DONE), case=case, mde=0.0123)
    build_finding(same, Finding.Kind.UNCHANGED, pk=8, headline="Unchanged.")
    build_session(series(13, "20261102080000.3-1-eve@example.org", "mm: Keep the zone lock"), zen3, pk=43)
    Finding.objects.update(created_at=DAY)
    _branch(zen3.name)
    _told()
    user = User.objects.create_superuser("ada")
    return issue_person_token(user, name="ci", scopes=PersonToken.Scope.values).secret


def _branch(name: str) -> None:
    """A branch that got slower, seen in a timeline, with its culprit; what its machine shows by itself."""
    machine, case, metric = build_machine(name), build_case("fault-4k"), build_metric("time")
    reference = Revision.objects.get(sha__startswith="3f2a9bc")
    branch = reference.tree.branches.create(name="master")
    cell = {"machine": machine, "case": case, "metric": metric, "core_type": machine.core_types.get()}
    timeline = Timeline.objects.create(branch=branch, reference=reference, points_seen=2, **cell)
    before = reference
    for place, sha, ratio in ((4, "a4c1e0795b3d", 1.0012), (7, "5c0ffee31b7a", 1.2345)):
        at = DAY.replace(hour=8) + timedelta(days=-1 if place == 4 else 0)
        revision = build_revision(reference.tree, before, sha=sha.ljust(40, "0"), committed_at=at)
        trial = build_trial(reference, revision)
        head = MeasuredHead.objects.create(
            branch=branch, revision=revision, reference=reference, place=place, trial=trial
        )
        series = build_series(base=before, head=revision, pk=100 + place)
        session = build_session(series, machine)
        spread = {"ratio": ratio, "ratio_low": round(ratio - 0.0123, 4), "ratio_high": round(ratio + 0.0123, 4)}
        verdict = "regressed" if place == 7 else "unchanged"
        comparison = build_comparison(session, verdict, case=case, metric=metric, **spread)
        TimelinePoint.objects.create(timeline=timeline, head=head, comparison=comparison, place=place, **spread)
        before = revision
    ChangePoint.objects.create(
        timeline=timeline, first_place=7, place=7, before_place=4, effect=0.21, score=6.0, state="settled"
    )
    build_finding(series, pk=9, headline="Regressed on zen3 (1.23x time of fault-4k).", culprit=before)
    Finding.objects.filter(pk=9).update(
        series=None, branch=branch, before=before.parent, after=before, created_at=DAY + timedelta(hours=1)
    )
    NoiseProfile.objects.create(
        comparisons=40, false_alarms=1, rejections=2, change_95=0.0132, boot_sd=0.004, mde=0.011, changes=[0.001] * 40,
        last_at=EPOCH, **cell,
    )  # fmt: skip


def _told() -> None:
    """Mails, a trade-off, a machine that was out of service for a while."""
    for number, finding, state, subject in (
        (3, 7, "sent", "Re: [PATCH 0/2] mm: Clear pages twice"),
        (4, 9, "queued", "[tidemark] mm: slower on zen3"),
    ):
        report = Report.objects.create(
            finding_id=finding,
            first_of_id=finding,
            state="approved",
            subject=subject,
            body="text",
            in_reply_to="m@x",
            to=["ada@example.org"],
        )
        sent_at = DAY if state == "sent" else None
        Delivery.objects.create(pk=number, report=report, message_id=f"r{number}@x", state=state, sent_at=sent_at)
    Acceptance.objects.create(finding_id=9, uarchs=["zen3"], reason="the price of a fix", person="ada")
    machine = build_machine("zen3-1")
    for before, after, reason, actor in (
        ("good", "quarantined", "3 boots lost", ""),
        ("quarantined", "good", "new memory", "ada"),
    ):
        Transition.objects.create(
            trace="t", subject="machine-health", subject_id=machine.pk, before=before, after=after, reason=reason,
            actor=actor,
        )  # fmt: skip


def test_there_are_thirty_questions_of_two_lines_each() -> None:
    assert [one.number for one in RECIPES] == list(range(1, HOW_MANY + 1))
    for one in RECIPES:
        assert list(one.lines) == ["curl", "tidemark"], one.title
        # One request, but where all pages are read; a list in braces would be several.
        assert one.lines["curl"].count("curl ") == 1, one.title
        assert one.number == PAGING or not re.search(r"\b(for|while)\b|\{[\w-]+,", one.lines["curl"]), one.title


def test_both_programs_are_told_of_one_service() -> None:
    ((_, line),) = _FENCED.findall(_QUESTION.split(PAGE.read_text(encoding="utf-8"))[0])
    done = subprocess.run(["bash", "-c", f'{line}echo "$TIDEMARK_SERVER/api/v1 $API"'], capture_output=True, check=True)
    server, api = done.stdout.split()
    assert server == api


@pytest.mark.parametrize("recipe", RECIPES, ids=[str(one.number) for one in RECIPES])
def test_lines_answer_what_the_cookbook_says(kitchen: Kitchen, recipe: Recipe) -> None:
    told = {}
    for program, line in recipe.lines.items():
        if recipe.number == AGAIN:
            assert kitchen.run(line).returncode == 0
        # On a busy host the two seconds of a stream may be over before it begins.
        for _ in range(3 if recipe.number == STREAM else 1):
            asked = kitchen.asked()
            done = kitchen.run(line)
            if done.stdout:
                break
        told[program] = done.stdout + done.stderr
        assert done.returncode == recipe.ends.get(program, 0), told[program]
        requests = kitchen.asked()[len(asked) :]
        if recipe.number != PAGING and (recipe.number, program) != (GATE, "tidemark"):
            assert len(requests) == 1, requests
        for words in recipe.parts(program):
            assert words in squeezed(told[program]), f"{words!r} is not in:\n{told[program]}"
    if recipe.number == AGAIN:
        # What the first time brought stays.
        assert json.loads((kitchen.folder / "findings.json").read_text())["results"]
    head, *rows = told["tidemark"].splitlines()
    if head.split()[0] == "id" and told["curl"].startswith('{"next"'):
        found = [one["id"] for one in json.loads(told["curl"])["results"]]
        assert found == [int(row.split()[0]) for row in rows]
