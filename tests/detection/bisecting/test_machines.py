"""Bisections of one finding on several microarchitectures, in branches, and in the hands of workers that die."""

from pathlib import Path

import pytest

from server.builds.models import Build
from server.core.errors import DomainError
from server.core.programs.git import GitError
from server.detection.bisection import rounds, search
from server.detection.bisection.rounds import begin
from server.detection.models import Bisection, BisectionStep, Finding, FindingVerdict
from server.detection.sweep import tend_bisections
from server.sources.applying.git_am import revert_commit
from server.sources.models import Revision
from tests.detection.bisecting.world import World, judged, make_world, zen3, zen5

pytestmark = pytest.mark.django_db


def of_branch(world: World, finding: Finding, before: str, after: str) -> Finding:
    """The same verdicts as a finding of the branch between two of its commits."""
    rows = {row.sha: row for row in world.revisions()}
    verdicts = list(finding.verdicts.all())
    made = Finding.objects.create(
        branch=world.tree.branches.get(),
        before=rows[before],
        after=rows[after],
        state=Finding.State.CONFIRMED,
        kind=finding.kind,
        headline=finding.headline,
        virtual=False,
    ).record_creation()
    for row in verdicts:
        FindingVerdict.objects.create(
            finding=made, uarch=row.uarch, verdict=row.verdict, comparison=row.comparison, mde=row.mde
        )
    return made


def test_a_split_is_searched_on_both_machines_from_the_same_builds(tmp_path: Path) -> None:
    world = make_world(tmp_path, 6)
    one, other = zen3(), zen5()
    world.costs = {one.name: {"p4": 1.7}, other.name: {"p4": 0.6}}
    finding = judged(world, one, other)
    assert finding.kind == Finding.Kind.SPLIT
    world.run()
    finding.refresh_from_db()
    assert finding.culprit is not None
    assert finding.culprit.sha == world.shas[4]
    assert "1.7" in finding.reason
    assert "% faster in time of mm-basic/fault-4k on zen5" in finding.reason
    assert finding.reason.count("mm: Change 4") == 1
    # Base, head, patches 3 and 4, and the head without patch 4: each once for both machines.
    assert Build.objects.count() == 5
    asked = [list(row.steps.values_list("kind", "index")) for row in finding.bisections.order_by("pk")]
    assert asked[0] == asked[1]


def test_different_culprits_are_told_for_each_microarchitecture(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3)
    one, other = zen3(), zen5()
    world.costs = {one.name: {"p1": 1.7}, other.name: {"p3": 1.5}}
    finding = judged(world, one, other)
    world.run()
    finding.refresh_from_db()
    assert finding.state == Finding.State.CONFIRMED
    assert finding.culprit is None
    assert "zen3: made by patch 1 of 3" in finding.reason
    assert "zen5: made by patch 3 of 3" in finding.reason


def test_first_parent_history_is_searched_and_named_by_commit(tmp_path: Path) -> None:
    world = make_world(tmp_path, 4)
    machine = zen3()
    world.costs[machine.name] = {"p3": 1.7}
    source = judged(world, machine)
    source.bisections.all().delete()
    finding = of_branch(world, source, world.shas[0], world.shas[4])
    assert begin(finding) is True
    assert finding.bisections.get().revisions == world.shas
    world.run()
    finding.refresh_from_db()
    assert finding.culprit is not None
    assert finding.culprit.sha == world.shas[3]
    assert finding.reason.startswith(f"made by {world.shas[3][:12]}: mm: Change 3")


def test_heads_without_common_first_parents_are_not_bisected_and_say_so(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2)
    machine = zen3()
    world.costs[machine.name] = {"p2": 1.7}
    finding = of_branch(world, judged(world, machine), world.shas[2], world.shas[0])
    assert begin(finding) is False
    finding.refresh_from_db()
    assert finding.state == Finding.State.CONFIRMED
    text = f"not bisected: {world.shas[2][:12]} is no first-parent ancestor of {world.shas[0][:12]}"
    assert [row["text"] for row in finding.checks] == [text]


def test_what_begins_while_the_mirror_fails_begins_with_a_later_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, 2)
    machine = zen3()
    world.costs[machine.name] = {"p2": 1.7}

    def fails(_finding: Finding) -> None:
        raise GitError("git-timeout", "git log took longer than 60 s")

    with monkeypatch.context() as patched:
        patched.setattr(rounds, "between", fails)
        finding = judged(world, machine)
        assert finding.state == Finding.State.CONFIRMED
    tend_bisections()
    finding.refresh_from_db()
    assert finding.state == Finding.State.BISECTING


def test_a_bisection_that_is_interrupted_anywhere_comes_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, 4)
    machine = zen3()
    world.costs[machine.name] = {"p3": 1.7}
    finding = judged(world, machine)
    deaths = iter(range(100))
    real = revert_commit

    def dies(*, head: Revision, culprit: Revision) -> Revision | None:
        made = real(head=head, culprit=culprit)
        if next(deaths) < 2:
            raise DomainError("git-failed", "killed", permanent=False)
        return made

    monkeypatch.setattr(search, "revert_commit", dies)
    for _ in range(40):
        tend_bisections()
        # As often as a message may be lost or come twice.
        tend_bisections()
        if not world.work() and not Bisection.objects.exclude(state__in=Bisection.FINAL).exists():
            break
    bisection = finding.bisections.get()
    assert bisection.state == Bisection.State.FOUND
    assert bisection.culprit is not None
    assert bisection.culprit.sha == world.shas[3]
    numbers = list(bisection.steps.values_list("number", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))
    assert bisection.steps.filter(kind=BisectionStep.Kind.REVERT).count() == 1
