"""Regressions in a branch that a later revision mends: found by what commits say, and measured."""

from collections.abc import Collection
from types import SimpleNamespace

import pytest

from server.core.programs.git import Repository
from server.detection.findings.checks import CheckOutcome, Name, checks_named
from server.detection.lifecycle.fix import Mending, mendings
from server.detection.models import Finding
from server.detection.on_trial_over import answer_check
from server.detection.sweep import tend_life
from server.lab.models import Trial
from server.sources.mirror import mirror, record_revisions
from server.sources.trees.fetch import fetch_tree
from tests.builders import because
from tests.detection.lifecycle.findings import DOWN, SAME, UNSURE, UP, as_judged, judged
from tests.detection.lifecycle.mending import World

pytestmark = pytest.mark.django_db


def test_a_commit_that_names_the_culprit_is_measured_against_its_parent(world: World) -> None:
    fix = world.commit(f'mm: Be quick again\n\nFixes: {world.culprit[:12]} ("mm: Make it slow")')
    world.commit("Go on")
    world.look()
    (trial,) = world.fix_trials()
    assert (trial.base.sha, trial.patched.sha, trial.benchmarks) == (world.good, fix, ["mm-basic/fork"])
    assert world.outcomes() == ["pending"]
    world.look()
    assert len(world.fix_trials()) == 1


@pytest.mark.parametrize("verdict", [SAME, DOWN])
def test_measured_as_mended_the_finding_is_fixed(world: World, verdict: str) -> None:
    fix = world.commit(f'Revert "mm: Make it slow"\n\nThis reverts commit {world.culprit}.')
    world.look()
    world.measure(world.fix_trials()[0], verdict)
    assert (world.finding.state, world.outcomes()) == (Finding.State.FIXED, ["passed"])
    assert world.finding.fix is not None
    assert world.finding.fix.sha == fix
    (check,) = checks_named(world.finding, Name.FIX)
    assert check["text"] == f"{fix[:12]} mends this: no regression is left against {world.good[:12]}"
    assert world.finding.reason == f'mended by {fix[:12]} Revert "mm: Make it slow"'


@pytest.mark.parametrize(
    ("verdict", "outcome", "said"),
    [
        (UP, "failed", "does not mend this: on zen3 still regressed: time of fork"),
        (UNSURE, "not-checked", "mends this is not known: on zen3 time of fork could not be told"),
    ],
)
def test_what_does_not_mend_it_is_noted_and_the_next_one_tried(
    world: World, verdict: str, outcome: str, said: str
) -> None:
    world.commit(f"mm: Try\n\nFixes: {world.culprit[:12]}")
    world.look()
    world.measure(world.fix_trials()[0], verdict)
    assert (world.finding.state, world.outcomes()) == (Finding.State.CONFIRMED, [outcome])
    assert said in checks_named(world.finding, Name.FIX)[0]["text"]
    second = world.commit(f"mm: Try again\n\nFixes: {world.culprit[:12]}")
    world.look()
    assert [trial.patched.sha for trial in world.fix_trials()][1:] == [second]


def test_a_trial_that_fails_leaves_the_finding(world: World) -> None:
    world.commit(f"mm: Try\n\nFixes: {world.culprit[:12]}")
    world.look()
    trial = world.fix_trials()[0]
    trial.advance(Trial.State.FAILED, because("it does not build"))
    answer_check(trial)
    world.finding.refresh_from_db()
    assert (world.finding.state, world.outcomes()) == (Finding.State.CONFIRMED, ["not-checked"])
    assert "is not known: not measured: it does not build" in checks_named(world.finding, Name.FIX)[0]["text"]


def test_each_head_is_read_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    head = world.commit("Something else, see Fixes: 0123456789ab")
    world.look()
    (row,) = checks_named(world.finding, Name.FIX_SEARCH)
    assert (row["outcome"], row["revision"]) == (CheckOutcome.NOT_CHECKED, head)
    asked: list[str] = []

    def nothing(_mirror: Repository, _culprits: Collection[str], *, since: str, head: str) -> list[Mending]:
        asked.append(f"{since} {head}")
        return []

    monkeypatch.setattr("server.detection.lifecycle.fix.mendings", nothing)
    tend_life()
    assert asked == []
    later = world.commit("Go on")
    world.look()
    assert asked == [f"{head} {later}"]


def test_a_mending_commit_lands_with_the_merge_that_brings_it(world: World) -> None:
    head = world.upstream.git("rev-parse", "HEAD")
    world.upstream.git("checkout", "-q", "-b", "topic")
    fix = world.commit(f"mm: Be quick again\n\nFixes: {world.culprit[:13]}")
    world.upstream.git("checkout", "-q", "master")
    world.commit("Go on")
    world.upstream.git("merge", "-q", "--no-ff", "-m", "Merge topic", "topic")
    merge = world.upstream.git("rev-parse", "HEAD")
    last = world.commit("Go on")
    fetch_tree(tree=world.tree)
    (found,) = mendings(mirror(), {world.culprit}, since=head, head=last)
    assert (found.sha, found.landed) == (fix, merge)
    assert mendings(mirror(), {"f" * 40}, since=head, head=last) == []


def test_other_words_name_no_culprit(world: World) -> None:
    sha = world.culprit
    other = "0" if sha[12] != "0" else "1"
    for line in (
        f"Fixes: {sha[:11]}",
        f"This partly Fixes: {sha[:12]}",
        f"see {sha[:12]}",
        f"Fixes: {sha[:12]}{other}",
    ):
        world.commit(f"mm: Change\n\n{line}")
    world.look()
    assert world.fix_trials() == []


def test_findings_that_wait_for_a_trial_keep_no_other_from_being_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.detection.sweep._AT_ONCE", 1)
    world.commit(f"mm: Try\n\nFixes: {world.culprit[:12]}")
    world.look()
    world.commit(f"mm: Try again\n\nFixes: {world.culprit[:12]}")
    first = world.finding
    trial = judged(None, {world.machine: {"fork": UP}}, purpose=Trial.Purpose.CONFIRM)
    assert first.after is not None
    other = as_judged(
        trial, state=first.state, branch=first.branch, before=first.after, after=first.before, culprit=first.culprit
    )
    Finding.objects.filter(pk=other.pk).update(checks=[], after=first.after, before=first.culprit)
    world.look()
    assert {trial.key.split(":")[1] for trial in world.fix_trials()} == {str(first.pk), str(other.pk)}


def test_a_step_back_that_shows_after_its_head_was_read_is_measured(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = world.commit("Go on")
    world.look()
    assert world.fix_trials() == []
    back = record_revisions(tree=world.tree, shas=[head])[0]
    monkeypatch.setattr(
        "server.detection.lifecycle.fix.change_points_after", lambda _finding: [SimpleNamespace(revision=back)]
    )
    world.look()
    assert [trial.patched.sha for trial in world.fix_trials()] == [head]
