import io
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from demo import watch
from demo.driver import TITLES, Demo, Options
from demo.postings import Posting
from demo.processes import Claim
from demo.progress import Display
from demo.watch import check_lines, mail_lines, time_lines, verdict_table
from demo.world import TREE_NAME, Times, open_world
from server.builds.models import Build
from server.core import clock
from server.lab.models import Boot, Session
from server.sources.models import Branch, Series, Tree
from tests.builders import build_list, build_message, build_revision, build_series, build_session, build_tree
from tests.demo.finished import finished_demo

pytestmark = pytest.mark.django_db
POSTING = Posting("slow", "0a", 1_795_000_000, "0" * 40, "linux-6.1.y")


def posted_series(**fields: Any) -> Series:
    cover = build_message(build_list(), kind="cover", message_id=POSTING.root_message_id)
    return build_series(cover.mailing_list, cover=cover, root_message_id=POSTING.root_message_id, **fields)


def test_archive_that_was_not_read_yet_is_told_with_the_reason() -> None:
    Tree.objects.filter(pk=build_tree().pk).update(failing_since=clock.now(), last_error="no route to host")
    view = watch.look(POSTING)
    assert view.series_id is None
    assert not view.ended
    assert view.trouble == "stable: no route to host"


def test_branch_head_is_empty_until_it_was_fetched() -> None:
    tree = build_tree(TREE_NAME)
    branch = Branch.objects.create(tree=tree, name="linux-6.1.y")
    assert watch.branch_head("linux-6.1.y") == ""
    branch.head = build_revision(tree)
    branch.save()
    assert watch.branch_head("linux-6.1.y") == branch.head.sha


@pytest.mark.parametrize(
    ("state", "ended"), [("incomplete", False), ("held", True), ("ready", False), ("refused", True)]
)
def test_series_ends_when_nothing_more_can_come(state: str, ended: bool) -> None:
    posted_series(state=state, reason="the reason")
    view = watch.look(POSTING)
    assert view.ended is ended
    if ended:
        assert "the reason" in view.reason
    assert watch.has_arrived(POSTING) is (state != "incomplete")


def test_demo_whose_series_cannot_be_measured_says_why_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = build_session(posted_series(state=Series.State.APPLIED), state=Session.State.FAILED)
    wrong = "mm/memory.c:4148:9: error: implicit declaration"
    Build.objects.filter(pk=session.patched_build.pk).update(state=Build.State.FAILED, build_id="", reason=wrong)
    out = io.StringIO()
    demo = Demo(Options(kind="broken", once=True), tmp_path, Claim(tmp_path / "claim"), out)
    monkeypatch.setattr(demo, "_reach_the_series", lambda *_: (POSTING, True))
    # The test's transaction is that of one connection.
    monkeypatch.setattr("demo.world.ask", lambda question: question())
    world = open_world(tmp_path, running=False)
    assert demo._to_the_end(world, Display(TITLES, {}, out), Times(tmp_path)) == 1
    assert "demo: the series is failed: " in out.getvalue()
    assert wrong in out.getvalue()


def test_pulse_changes_with_every_boot() -> None:
    session = build_session(posted_series(), state=Session.State.RUNNING)
    before = watch.look(POSTING).pulse
    assert watch.look(POSTING).pulse == before
    boot = session.boots.all()[0]
    boot.advance(Boot.State.MEASURED, boot_id="0", build_id="1")
    assert watch.look(POSTING).pulse != before


def test_running_machine_is_named() -> None:
    build_session(posted_series(), state=Session.State.RUNNING)
    stage = next(stage for stage in watch.look(POSTING).stages if stage.name == "sessions")
    assert "vm-haswell" in stage.detail


def test_kernel_built_for_an_earlier_series_costs_this_one_no_time() -> None:
    series = posted_series()
    session = build_session(series)
    for build in (session.base_build, session.patched_build):
        Build.objects.filter(pk=build.pk).update(
            created_at=series.created_at - timedelta(hours=2), state_since=series.created_at - timedelta(hours=1)
        )
    Build.objects.filter(pk=session.patched_build.pk).update(state_since=series.created_at + timedelta(seconds=30))
    stage = next(stage for stage in watch.look(POSTING).stages if stage.name == "builds")
    assert stage.seconds == 30.0


@pytest.fixture
def shown(tmp_path: Path, settings: Settings) -> Callable[[], list[str]]:
    settings.VIRTUAL_VERDICTS = settings.MAIL_ENABLED = True
    settings.MAIL_SINK = "127.0.0.1:2525"
    finished = finished_demo(tmp_path)
    return lambda: [
        *verdict_table(Series.objects.get(pk=finished.series.pk)),
        *mail_lines(finished.store.mails()),
        *check_lines(list(finished.checks().values())),
    ]


def test_summary_shows_verdicts_mail_and_checks(shown: Callable[[], list[str]]) -> None:
    text = "\n".join(shown())
    assert "haswell" in text
    assert "regressed  fault-4k 1.71x (5762 -> 9871 ns, 8 boots on vm-haswell)" in text
    assert "would have seen" in text
    assert "not evidence" in text
    assert "  | In-Reply-To: <" in text
    assert "  ok     two kernels built" in text


def test_times_are_listed_by_stage() -> None:
    assert time_lines({"tree": "the tree", "builds": "builds"}, {"tree": 61.0}, 70.0) == [
        "    1:01  the tree",
        "    1:10  in all",
    ]
