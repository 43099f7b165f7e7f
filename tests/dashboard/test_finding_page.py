"""The page of one finding, and the list of all."""

import re

import pytest

from server.core import clock
from server.detection.models import Acceptance, Bisection, BisectionStep, Finding, MachineQuestion
from server.detection.models.finding import BisectionState
from server.lab.models import Trial
from server.sources.models import Series
from tests.builders import (
    because,
    build_comparison,
    build_finding,
    build_machine,
    build_revision,
    build_series,
    build_session,
)
from tests.dashboard.conftest import Reader

pytestmark = pytest.mark.django_db

WHY = "True of all machines that regressed and of none of the improved ones: no fsrm."


@pytest.fixture
def finding() -> Finding:
    series = build_series(subject="mm: Copy folios in batches")
    rows = [
        build_comparison(build_session(series, build_machine("z3", "zen3", virtual=False)), "regressed"),
        build_comparison(build_session(series, build_machine("z5", "zen5", virtual=False)), "improved"),
    ]
    found = build_finding(
        series,
        Finding.Kind.SPLIT,
        headline="Regressed on zen3 (1.71x time of fault-4k), improved on zen5 (0.80x time of fault-4k).",
        checks=[{"name": "layout", "outcome": "passed", "text": "another layout shows it too", "machine": "z3"}],
        counters=[
            {
                "machine": "z3", "uarch": "zen3", "benchmark": "mm-basic", "case": "fault-4k",
                "counter": "LLC-misses", "ratio": 2.5, "low": 2.4, "high": 2.6, "text": "",
            }
        ],
        explanations=[
            {
                "question": "regressed against improved", "outcome": "one", "text": WHY, "benchmark": "mm-basic",
                "case": "fault-4k", "metric": "time", "core_type": "all", "changed": ["z3"], "others": ["z5"],
                "conditions": ["no fsrm"], "chance": 0.5,
            }
        ],
    )  # fmt: skip
    assert rows[0].session.series == series
    return found


def page_of(finding: Finding) -> str:
    return f"/findings/{finding.pk}/"


def test_finding_says_what_why_and_how_it_was_checked(reader: Reader, finding: Finding) -> None:
    text = reader.read(page_of(finding))
    for sentence in ("Consistent with: no fsrm, true of zen3 and not of zen5", "another layout shows it too"):
        assert sentence in text
    assert re.search(r"<h1>Regressed on zen3 \(1.71x", text)
    told = reader.read(f"{page_of(finding)}why/")
    for sentence in (WHY, "LLC-misses", "2.500x"):
        assert sentence in told


def test_unknown_finding_is_not_found(reader: Reader) -> None:
    assert "404" in reader.read("/findings/123456/", status=404)


def test_finding_of_virtual_machines_has_no_page_where_they_are_not_judged(reader: Reader, finding: Finding) -> None:
    Finding.objects.update(virtual=True)
    reader.read(page_of(finding), status=404)
    assert "1.71x" not in reader.read("/findings/")


@pytest.mark.usefixtures("virtual_verdicts")
def test_finding_of_virtual_machines_is_marked(reader: Reader, finding: Finding) -> None:
    Finding.objects.update(virtual=True)
    assert "virtual, not evidence" in reader.read(page_of(finding))
    assert "virtual, not evidence" in reader.read("/findings/")


def test_bisection_shows_its_steps_its_cost_and_what_is_left(reader: Reader, finding: Finding) -> None:
    target = finding.verdicts.get(uarch__name="zen3").comparison
    assert target is not None
    revisions = [build_revision() for _ in range(9)]
    bisection = Bisection.objects.create(
        finding=finding,
        machine=target.session.machine,
        target=target,
        revisions=[one.sha for one in revisions],
        low=0,
        high=4,
        effect=0.53,
        state=BisectionState.SEARCHING,
    )
    trial = Trial.objects.create(
        key="bisection:1:1", purpose="bisect", base=revisions[0], patched=revisions[4], looks=[4], state="done"
    )
    BisectionStep.objects.create(bisection=bisection, number=1, kind="middle", index=4, trial=trial, answer="bad")
    text = reader.read(f"{page_of(finding)}bisection/")
    assert "Bisection on zen3" in text
    assert revisions[4].sha[:12] in text
    assert "Left: 4 revisions, about" in text
    assert 'aria-label="with it: 4 of 8 commits left"' in text


def test_life_names_who_accepted_it_and_until_when(reader: Reader, finding: Finding) -> None:
    Acceptance.objects.create(finding=finding, reason="the cost of a fix", person="akpm", uarchs=["zen3"])
    finding.advance(Finding.State.ACCEPTED, because("the cost of a fix"), actor="akpm")
    text = reader.read(page_of(finding))
    assert "<strong>akpm</strong>" in text
    assert "all metrics, zen3: the cost of a fix" in text


def test_finding_of_a_branch_names_the_boundary_and_the_culprit(reader: Reader, finding: Finding) -> None:
    series = Series.objects.get()
    assert series.base is not None
    branch = series.base.tree.branches.create(name="mm/unstable")
    before, after = build_revision(subject="mm: Before"), build_revision(subject="mm: The culprit")
    Finding.objects.update(series=None, branch=branch, before=before, after=after, culprit=after)
    text = reader.read(page_of(finding))
    assert f'href="/trees/{branch.tree.name}/branches/mm/unstable/">{branch.tree.name}/mm/unstable' in text
    assert "mm: The culprit" in text
    # Between the two may lie heads that were measured and do not tell.
    assert "<dt>measured without it</dt>" in text


def test_series_leads_to_what_its_finding_rests_on(reader: Reader, finding: Finding) -> None:
    assert f'href="{page_of(finding)}"' in reader.read(f"/series/{finding.series_id}/")


def test_page_of_a_finding_that_is_only_suspected_claims_nothing(reader: Reader, finding: Finding) -> None:
    Finding.objects.update(state=Finding.State.CANDIDATE, state_since=clock.now())
    assert "suspected; fresh boots or checks are under way" in reader.read(page_of(finding))


def test_check_of_a_machine_tells_what_is_open_about_it(reader: Reader, finding: Finding) -> None:
    check = {"name": "machine", "outcome": "passed", "text": "z3 is good", "machine": "z3"}
    Finding.objects.filter(pk=finding.pk).update(checks=[check])
    machine = build_machine("z3")
    asked = {"kind": "event", "machine": machine, "detail": "9 of its 9 timelines moved: a change of it?"}
    question = MachineQuestion.objects.create(key="1", state="open", **asked)
    text = reader.read(page_of(finding))
    assert "Open about this machine: 9 of its 9 timelines moved" in text
    MachineQuestion.objects.filter(pk=question.pk).update(state="answered")
    assert "Open about this machine" not in reader.read(page_of(finding))
