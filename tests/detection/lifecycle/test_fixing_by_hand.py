"""A person has a revision measured that may mend a finding; and what is read when a head is gone."""

import io

import pytest
from django.core.management import CommandError, call_command

from server.core.models import Transition
from server.detection.findings.checks import Check, CheckOutcome, Name, add_check, checks_named, set_checks
from server.detection.models import Finding
from server.sources.trees.fetch import fetch_tree
from tests.builders import because, build_series
from tests.detection.lifecycle.findings import DOWN, SAME, UP, candidate
from tests.detection.lifecycle.mending import World

pytestmark = pytest.mark.django_db


def fix(finding: Finding, sha: str, by: str = "ada") -> str:
    out = io.StringIO()
    call_command("finding", "fix", str(finding.pk), sha, "--by", by, stdout=out)
    finding.refresh_from_db()
    return out.getvalue()


def test_a_person_has_a_fix_measured_after_five_wrong_ones(world: World) -> None:
    for number in range(5):
        told = Check(Name.FIX, CheckOutcome.FAILED, "does not mend this", revision=f"{number}" * 40)
        add_check(world.finding, told)
    world.commit(f"mm: Be quick again\n\nFixes: {world.culprit[:12]}")
    good = world.commit("Be quick again, without a word")
    world.look()
    assert world.fix_trials() == []
    assert f"{good[:12]} is measured against {world.good[:12]}" in fix(world.finding, good[:12].upper())
    (trial,) = world.fix_trials()
    assert (trial.base.sha, trial.patched.sha) == (world.good, good)
    line = Transition.objects.filter(subject="finding", subject_id=world.finding.pk).latest("id")
    assert (line.actor, line.before, line.after) == ("ada", "confirmed", "confirmed")
    assert good[:12] in line.reason
    world.measure(trial, SAME)
    assert world.finding.state == Finding.State.FIXED


def test_what_was_measured_before_is_measured_anew_when_a_person_asks(world: World) -> None:
    sha = world.commit(f"mm: Be quick again\n\nFixes: {world.culprit[:12]}")
    world.look()
    with pytest.raises(CommandError, match=f"{sha[:12]} is being measured already"):
        fix(world.finding, sha)
    world.measure(world.fix_trials()[0], UP)
    assert world.outcomes() == ["failed"]
    fix(world.finding, sha)
    assert [trial.key.rpartition(sha[:12])[2] for trial in world.fix_trials()] == ["", ":2"]
    assert world.outcomes() == ["pending"]
    with pytest.raises(CommandError, match="is being measured already"):
        fix(world.finding, sha)
    world.measure(world.fix_trials()[1], DOWN)
    assert (world.finding.state, world.outcomes()) == (Finding.State.FIXED, ["passed"])


def test_two_that_are_measured_at_once_are_both_answered(world: World) -> None:
    one, other = world.commit("Be quick again"), world.commit("Go on")
    fetch_tree(tree=world.tree)
    fix(world.finding, one)
    fix(world.finding, other)
    first, second = world.fix_trials()
    world.measure(first, SAME)
    world.measure(second, SAME)
    assert world.outcomes() == ["passed", "passed"]
    assert world.finding.fix is not None
    assert world.finding.fix.sha == one


def test_what_cannot_mend_it_is_refused_clearly(world: World) -> None:
    world.upstream.git("checkout", "-q", "-b", "aside", world.culprit)
    aside = world.commit("Be quick, elsewhere")
    world.upstream.git("checkout", "-q", "master")
    world.commit("Go on")
    world.tree.branch_patterns = ["master", "aside"]
    world.tree.save()
    fetch_tree(tree=world.tree)
    refused = {
        "f" * 40: "the mirror has no commit",
        "master": "the mirror has no commit 'master'; give its id",
        "HEAD~1": "the mirror has no commit",
        world.culprit: f"{world.culprit[:12]} does not come after {world.culprit[:12]}",
        world.good: "does not come after",
        aside: f"{aside[:12]} is not in",
    }
    for sha, said in refused.items():
        with pytest.raises(CommandError, match=said):
            fix(world.finding, sha)
    with pytest.raises(CommandError, match="who decides this is not said"):
        fix(world.finding, aside, by=" ")
    assert world.fix_trials() == []


def test_findings_that_are_not_to_be_mended_are_refused(world: World) -> None:
    sha = world.commit("Go on")
    fetch_tree(tree=world.tree)
    of_series = candidate({world.machine: {"fork": UP}}, build_series())
    with pytest.raises(CommandError, match="is of a series: its next version"):
        fix(of_series, sha)
    world.finding.advance(Finding.State.INVALID, because("noise: a fan"))
    with pytest.raises(CommandError, match="is withdrawn: nothing to mend"):
        fix(world.finding, sha)


def test_a_head_that_is_gone_from_the_mirror_is_read_from_here_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    gone = Check(Name.FIX_SEARCH, CheckOutcome.NOT_CHECKED, "nothing", revision="f" * 40)
    set_checks(world.finding, [Name.FIX_SEARCH], [gone])
    head = world.commit("Go on")
    world.look()
    (row,) = checks_named(world.finding, Name.FIX_SEARCH)
    assert row["revision"] == head
    assert "fix_search_begins_at_head" in caplog.text
    sha = world.commit(f"mm: Be quick again\n\nFixes: {world.culprit[:12]}")
    world.look()
    assert [trial.patched.sha for trial in world.fix_trials()] == [sha]
