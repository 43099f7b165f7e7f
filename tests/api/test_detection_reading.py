"""What scripts read of findings, timelines and the noise of machines."""

from typing import Any

import pytest
from django.test import Client

from server.core import clock
from server.detection.models import Finding, MachineQuestion, MeasuredHead, NoiseProfile, Timeline, TimelinePoint
from server.lab.models import CoreType, Machine
from tests.builders import (
    because,
    build_case,
    build_comparison,
    build_finding,
    build_machine,
    build_metric,
    build_revision,
    build_series,
    build_session,
    build_trial,
    build_trial_session,
)

pytestmark = pytest.mark.django_db


def read(client: Client, path: str, status: int = 200) -> Any:
    response = client.get(f"/api/v1/{path}")
    assert response.status_code == status, response.content
    return response.json()


@pytest.fixture
def machine() -> Machine:
    machine = build_machine("z3", "zen3", virtual=False)
    CoreType.objects.get_or_create(machine=machine, name="all")
    return machine


def test_finding_tells_what_it_rests_on(client: Client, machine: Machine) -> None:
    series = build_series()
    build_comparison(build_session(series, machine), "regressed")
    check = {"name": "layout", "outcome": "passed", "text": "shown by another layout too", "machine": "z3"}
    culprit = build_revision()
    finding = build_finding(series, checks=[check], culprit=culprit)
    told = read(client, f"findings/{finding.pk}/")
    assert told["culprit"] == culprit.sha
    assert told["checks"] == [check]
    assert (told["bisections"], told["walk"], told["acceptances"], told["branch"]) == ([], None, [], None)


def test_finding_tells_every_step_of_its_life_with_who_and_why(client: Client, machine: Machine) -> None:
    series = build_series()
    build_comparison(build_session(series, machine), "regressed")
    finding = build_finding(series)
    finding.advance(Finding.State.ACCEPTED, because("the price of a fix"), actor="ada")
    steps = read(client, f"findings/{finding.pk}/")["transitions"]
    told = {name: steps[-1][name] for name in ("before", "after", "reason", "actor")}
    assert told == {"before": "confirmed", "after": "accepted", "reason": "the price of a fix", "actor": "ada"}


def test_finding_of_a_branch_tells_its_boundary(client: Client, machine: Machine) -> None:
    series = build_series()
    build_comparison(build_session(series, machine), "regressed")
    finding = build_finding(series)
    assert series.base is not None
    branch = series.base.tree.branches.create(name="master")
    before, after = build_revision(), build_revision()
    Finding.objects.update(series=None, branch=branch, before=before, after=after)
    told = read(client, f"findings/{finding.pk}/")
    assert (told["series"], told["branch"], told["before"], told["after"]) == (None, "master", before.sha, after.sha)
    assert read(client, "findings/")["results"][0]["tree"] == branch.tree.name


def test_gap_of_a_finding_is_told_as_it_was_recorded(client: Client, machine: Machine) -> None:
    gap = {"machine": "z3", "uarch": "zen3", "reason": "panic at boot"}
    series = build_series()
    build_comparison(build_session(series, machine), "regressed")
    finding = build_finding(series, gaps=[gap])
    assert read(client, f"findings/{finding.pk}/")["gaps"] == [gap]


def test_cell_that_a_failed_check_took_away_is_told_as_it_is_heard(client: Client, machine: Machine) -> None:
    series = build_series()
    build_comparison(build_session(series, machine), "regressed")
    check = {"name": "machine", "outcome": "failed", "text": "the machine is not well", "machine": "z3"}
    told = read(client, f"findings/{build_finding(series, checks=[check]).pk}/")["comparisons"]
    assert [(cell["verdict"], cell["reason"]) for cell in told] == [("inconclusive", "the machine is not well")]


def test_noise_of_a_machine_is_data(client: Client, machine: Machine) -> None:
    NoiseProfile.objects.create(
        machine=machine, case=build_case(), metric=build_metric(), core_type=machine.core_types.get(),
        comparisons=40, false_alarms=1, rejections=2, change_95=0.013, boot_sd=0.004, mde=0.011,
        changes=[0.001], last_at=clock.now(),
    )  # fmt: skip
    told = read(client, "machines/z3/noise/")
    assert (told["machine"], told["uarch"]) == ("z3", "zen3")
    assert told["cells"][0]["change_95"] == 0.013
    assert told["alarms"]["comparisons"] == 40
    assert 0 < told["alarms"]["low"] < 1 / 40 < told["alarms"]["high"] < 0.2


def test_noise_of_an_unknown_machine_is_not_found(client: Client) -> None:
    read(client, "machines/nobody/noise/", status=404)


def test_open_questions_are_listed_by_machine(client: Client, machine: Machine) -> None:
    MachineQuestion.objects.create(
        key="event:1", kind="event", machine=machine, detail="38 of 40 timelines moved", state="open"
    )
    (told,) = read(client, "machine-questions/?machine=z3&state=open")["results"]
    assert (told["uarch"], told["detail"]) == ("zen3", "38 of 40 timelines moved")
    build_machine("other", "zen2")
    assert read(client, "machine-questions/?machine=other")["results"] == []


def test_timelines_are_listed_without_their_points(client: Client, machine: Machine) -> None:
    series = build_series()
    assert series.base is not None
    timeline = Timeline.objects.create(
        branch=series.base.tree.branches.create(name="master"), reference=series.base, machine=machine,
        case=build_case(), metric=build_metric(), core_type=machine.core_types.get(),
    )  # fmt: skip
    told = read(client, "timelines/?machine=z3")["results"][0]
    assert (told["id"], told["uarch"], told["branch"]) == (timeline.pk, "zen3", "master")
    assert (told["virtual"], told["evidence"]) == (False, True)
    assert read(client, f"timelines/{timeline.pk}/")["points"] == []


def test_timeline_of_a_case_is_one_request_and_several_are_told_apart(client: Client, machine: Machine) -> None:
    base = build_series().base
    assert base is not None
    branch = base.tree.branches.create(name="master")
    cell = {"branch": branch, "machine": machine, "case": build_case(), "core_type": machine.core_types.get()}
    rows = [
        Timeline.objects.create(reference=reference, metric=build_metric(metric), **cell)
        for reference, metric in ((base, "time"), (build_revision(base.tree), "time"), (base, "space"))
    ]
    assert read(client, "timeline/?case=fault-4k&metric=space")["id"] == rows[2].pk
    # Of one cell against two references the newer, or that which goes on.
    assert read(client, "timeline/?case=fault-4k&metric=time&core_type=all")["id"] == rows[1].pk
    for place, timeline in ((7, rows[0]), (5, rows[1])):
        trial = build_trial(base)
        head = MeasuredHead.objects.create(
            branch=branch, revision=trial.patched, reference=base, place=place, trial=trial
        )
        comparison = build_comparison(build_trial_session(trial, machine), metric=timeline.metric)
        TimelinePoint.objects.create(timeline=timeline, head=head, comparison=comparison, place=place, ratio=1.0)
    assert read(client, "timeline/?case=fault-4k&metric=time&core_type=all")["id"] == rows[0].pk
    refused = read(client, "timeline/?case=fault-4k", status=400)
    assert refused["errors"] == {"metric": ["Several are left. Say which: space, time."]}
    build_machine("other", "zen2")
    read(client, "timeline/?machine=other", status=404)
