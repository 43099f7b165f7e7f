"""Two kernels compared from what is stored: in one session, across sessions, and what cannot be compared."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from server.lab.models import Boot, Session
from server.sources.models import Revision
from tests.builders import (
    build_case,
    build_comparison,
    build_machine,
    build_measurement,
    build_metric,
    build_session,
    tell_boots,
)

pytestmark = pytest.mark.django_db


def measured(factor: float = 1.0, boots_per_side: int = 6, **fields: Any) -> Session:
    """A session of which each boot gave six values; those of the patched kernel are `factor` times as large."""
    session = build_session(state=Session.State.DONE, boots_per_side=boots_per_side, **fields)
    for boot in session.boots.order_by("position"):
        level = (factor if boot.arm == Boot.Arm.PATCHED else 1.0) * (1 + 0.001 * (boot.position % 3))
        build_measurement(boot, [100.0 * level * (1 + 0.0005 * run) for run in range(6)])
    return session


def revisions(session: Session) -> tuple[Revision, Revision]:
    assert session.base_build is not None
    assert session.patched_build is not None
    return session.base_build.revision, session.patched_build.revision


def ask(client: Client, **query: Any) -> Any:
    return client.get(reverse("api-compare"), query)


def test_one_session_gives_the_comparison_of_the_service(client: Client) -> None:
    session = measured(1.1)
    base, patched = revisions(session)
    Revision.objects.filter(pk=patched.pk).update(sha="feed5" * 8)
    told = ask(client, base=base.sha, patched="feed5fe").json()
    assert (told["base"]["sha"], told["patched"]["sha"]) == (base.sha, "feed5" * 8)
    (machine,) = told["machines"]
    assert (machine["shares_session"], machine["statement"], machine["sessions"]) == (True, "", [session.pk])
    (cell,) = machine["comparisons"]
    assert (cell["verdict"], cell["benchmark"], cell["case"], cell["metric"]) == (
        "regressed", "mm-basic", "fault-4k", "time",
    )  # fmt: skip
    assert cell["ratio"] == pytest.approx(1.1, rel=1e-3)
    assert cell["ratio_low"] < 1.1 < cell["ratio_high"]


def test_later_session_of_fewer_cells_does_not_take_the_place_of_a_whole_one(client: Client) -> None:
    whole = measured(1.1)
    for case in ("fault-4k", "fault-2m"):
        build_comparison(whole, "regressed", case=build_case(case))
    searched = measured(
        1.1, machine=whole.machine, base_build=whole.base_build, patched_build=whole.patched_build, series=None
    )
    build_comparison(searched, "regressed")
    base, patched = revisions(whole)
    (machine,) = ask(client, base=base.sha, patched=patched.sha).json()["machines"]
    assert machine["sessions"] == [whole.pk]


def test_the_other_way_round_is_the_inverse(client: Client) -> None:
    base, patched = revisions(measured(1.1))
    (machine,) = ask(client, base=patched.sha, patched=base.sha).json()["machines"]
    assert machine["comparisons"][0]["verdict"] == "improved"
    assert machine["comparisons"][0]["ratio"] == pytest.approx(1 / 1.1, rel=1e-3)


def test_sessions_that_share_no_kernel_are_compared_with_a_statement(client: Client) -> None:
    machine = build_machine()
    first, second = measured(machine=machine), measured(1.2, machine=machine)
    (told,) = ask(client, base=revisions(first)[0].sha, patched=revisions(second)[1].sha).json()["machines"]
    assert told["shares_session"] is False
    assert told["sessions"] == [second.pk, first.pk]
    assert "different sessions" in told["statement"]
    (cell,) = told["comparisons"]
    assert cell["ratio"] == pytest.approx(1.2, rel=0.01)
    # Nothing tells the kernel's share of it from that of the day.
    assert (cell["verdict"], cell["reason"]) == ("inconclusive", told["statement"])
    # A machine may have drifted in between: less is certain than where boots alternate.
    (within,) = ask(client, base=revisions(second)[0].sha, patched=revisions(second)[1].sha).json()["machines"]
    width, narrow = (one["ratio_high"] / one["ratio_low"] for one in (cell, within["comparisons"][0]))
    assert width > narrow


def test_old_sessions_of_one_kernel_are_found_behind_many_of_the_other(client: Client) -> None:
    machine = build_machine()
    old = measured(machine=machine)
    newer = measured(1.2, boots_per_side=2, machine=machine)
    for _ in range(20):
        again = measured(boots_per_side=1, machine=machine)
        Session.objects.filter(pk=again.pk).update(patched_build=newer.patched_build)
    (told,) = ask(client, base=revisions(old)[0].sha, patched=revisions(newer)[1].sha).json()["machines"]
    assert old.pk in told["sessions"]


def test_the_newest_sessions_of_each_kernel_are_compared(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.detection.trials.pair.MOST_SESSIONS", 4)
    machine = build_machine()
    first, second = measured(machine=machine), measured(1.2, boots_per_side=2, machine=machine)
    again = [measured(boots_per_side=1, machine=machine) for _ in range(4)]
    # The reference kernel stands on either side.
    for place, one in enumerate(again):
        side = "patched_build" if place % 2 else "base_build"
        Session.objects.filter(pk=one.pk).update(**{side: first.base_build})
    again[3].boots.filter(arm="patched").update(state=Boot.State.FAILED)
    (told,) = ask(client, base=revisions(first)[0].sha, patched=revisions(second)[1].sha).json()["machines"]
    assert told["sessions"] == [again[2].pk, again[1].pk, second.pk]


def test_a_session_that_goes_on_is_not_compared(client: Client) -> None:
    session = measured(1.1)
    base, patched = revisions(session)
    Session.objects.filter(pk=session.pk).update(state=Session.State.RUNNING)
    assert ask(client, base=base.sha, patched=patched.sha).json()["machines"] == []


def test_another_machine_under_the_same_name_proves_no_change(client: Client) -> None:
    machine = build_machine()
    first, second = measured(machine=machine), measured(1.2, machine=machine)
    tell_boots(first.boots.all(), facts={"fingerprint": "1-aaaa"})
    tell_boots(second.boots.all(), facts={"fingerprint": "1-bbbb"})
    (told,) = ask(client, base=revisions(first)[0].sha, patched=revisions(second)[1].sha).json()["machines"]
    assert told["comparisons"][0]["verdict"] == "inconclusive"
    assert "changed between the sessions" in told["comparisons"][0]["reason"]


def test_a_hypervisor_that_a_probe_saw_marks_the_machine(client: Client) -> None:
    session = measured(1.1, machine=build_machine("zen3-1", virtual=False))
    base, patched = revisions(session)
    (told,) = ask(client, base=base.sha, patched=patched.sha).json()["machines"]
    assert (told["virtual"], told["evidence"]) == (False, True)
    tell_boots(session.boots.all()[:1], facts={"virtual": True})
    (told,) = ask(client, base=base.sha, patched=patched.sha).json()["machines"]
    assert (told["virtual"], told["evidence"]) == (True, False)


def test_a_machine_that_measured_one_of_them_is_left_out(client: Client) -> None:
    first, second = measured(machine=build_machine("a")), measured(machine=build_machine("b"))
    assert ask(client, base=revisions(first)[0].sha, patched=revisions(second)[1].sha).json()["machines"] == []


def test_builds_and_machines_can_be_named(client: Client) -> None:
    session = measured(1.1, machine=build_machine("zen3-1"))
    words = {"base": f"build:{session.base_build_id}", "patched": f"build:{session.patched_build_id}"}
    build_machine("zen3-2")
    assert len(ask(client, **words, machine=["zen3-1", "zen3-2"]).json()["machines"]) == 1
    assert ask(client, **words, machine="zen3-2").json()["machines"] == []
    assert ask(client, **words, machines="zen3-1").status_code == 400


@pytest.mark.parametrize(
    ("query", "name", "words"),
    [
        ({}, "base", "first digits"),
        ({"base": "abc"}, "base", "first digits"),
        ({"base": "g" * 40}, "base", "first digits"),
        ({"base": "0" * 40}, "base", "There is no commit"),
        ({"base": "build:999999"}, "base", "There is no build"),
        ({"base": "build:x"}, "base", "There is no build"),
        ({"base": "build:" + "9" * 40}, "base", "There is no build"),
        ({"machine": "zen9"}, "machine", "Known: vm-haswell"),
    ],
)
def test_what_cannot_be_asked_is_told(client: Client, query: dict[str, str], name: str, words: str) -> None:
    base, patched = revisions(measured())
    answer = ask(client, **{"base": base.sha, "patched": patched.sha, **query} if query else {})
    assert answer.status_code == 400
    assert words in answer.json()["errors"][name][0]


def test_a_short_sha_of_several_commits_names_them(client: Client) -> None:
    base, patched = revisions(measured())
    Revision.objects.filter(pk=base.pk).update(sha="abcdef0" + "1" * 33)
    Revision.objects.filter(pk=patched.pk).update(sha="abcdef0" + "2" * 33)
    problem = ask(client, base="abcdef0", patched="abcdef02").json()["errors"]["base"][0]
    assert "abcdef0" + "1" * 33 in problem
    assert "abcdef0" + "2" * 33 in problem


def test_one_kernel_is_not_compared_with_itself(client: Client) -> None:
    base, _ = revisions(measured())
    answer = ask(client, base=base.sha, patched=base.sha)
    assert answer.status_code == 400
    assert "one kernel" in answer.json()["errors"]["patched"][0]


def test_queries_do_not_grow_with_machines_and_cells(client: Client, django_assert_max_num_queries: Any) -> None:
    series = measured().series
    for name in "abc":
        session = build_session(series, build_machine(name), state=Session.State.DONE)
        for boot in session.boots.all():
            for case in ("x", "y", "z"):
                build_measurement(boot, [1.0, 2.0, 3.0], build_case(case), build_metric())
    base, patched = revisions(Session.objects.latest("pk"))
    with django_assert_max_num_queries(24):
        told = ask(client, base=base.sha, patched=patched.sha).json()
    assert [len(one["comparisons"]) for one in told["machines"]] == [3, 3, 3, 1]
