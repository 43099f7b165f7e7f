"""The status page: what fails is at its top, and everything that is watched is on it."""

from datetime import timedelta

import pytest

from server.core import clock
from server.core.access.tokens import issue_token
from server.core.models import ApiToken, Begun
from server.core.reasons import Because
from server.detection.models import MachineQuestion
from server.sources.models import Branch, Epoch, HeadMove, MailingList, Message, Series, Tree
from server.sources.series.formation import COPY
from tests.builders import build_list, build_machine, build_message, build_revision, build_series, build_tree
from tests.dashboard.conftest import Reader

pytestmark = pytest.mark.django_db


def build_branch(tree: Tree, name: str = "mm-new", **fields: object) -> Branch:
    fields.setdefault("head", build_revision(tree, subject=f"head of {name}"))
    return Branch.objects.create(tree=tree, name=name, head_at=clock.now(), **fields)


def alarms(text: str) -> str:
    return text[text.index('class="alarm"') :].split("</section>", maxsplit=1)[0] if 'class="alarm"' in text else ""


def test_status_of_an_empty_site_says_what_it_has_not(reader: Reader) -> None:
    text = reader.read("/status/")
    for sentence in (
        "No tree is watched yet.",
        "No list is watched yet.",
        "No series waits for a person.",
        "Every mail could be used.",
    ):
        assert sentence in text


def test_failing_tree_raises_an_alarm_with_error_and_next_try(reader: Reader) -> None:
    now = clock.now()
    tried = {"polled_at": now, "failing_since": now - timedelta(hours=5), "failures": 7}
    build_tree("mm", last_error="fatal: no route to host", **tried)
    text = alarms(reader.read("/status/"))
    for fact in ("tree mm", "failing", "fatal: no route to host", "7 tries", "asked again", "in "):
        assert fact in text
    home = reader.read("/")
    assert "The tree mm is failing: fatal: no route to host" in " ".join(home.split())
    assert 'href="/trees/mm/"' in home


def test_tree_that_is_read_in_part_says_what_is_missing(reader: Reader) -> None:
    build_tree("mm", polled_at=clock.now(), failing_since=clock.now(), last_error="no such branch: mm-nwe")
    text = alarms(reader.read("/status/"))
    assert "read in part" in text
    assert "no such branch: mm-nwe" in text
    assert "failing" not in text


def test_token_that_nobody_renewed_is_told_before_it_ends(reader: Reader) -> None:
    for name, days in (("late", 13), ("over", 1), ("well", 40), ("gone", 1), ("off", 1), ("renewed", 1)):
        build_machine(name, enabled=name != "off", health="retired" if name == "gone" else "good")
        issue_token(name=name, scope=ApiToken.Scope.MACHINE, subject=name, days=days)
    issue_token(name="renewed again", scope=ApiToken.Scope.MACHINE, subject="renewed")
    ApiToken.objects.filter(name="over").update(expires_at=clock.now() - timedelta(days=1))
    text = alarms(reader.read("/status/"))
    assert "machine late</strong> Its token ends" in text
    assert "machine over</strong> Its token ended" in text
    for name in ("well", "gone", "off", "renewed"):
        assert f"machine {name}<" not in text


def test_site_whose_sources_answer_has_no_alarm(reader: Reader) -> None:
    build_list(polled_at=clock.now())
    Tree.objects.update(polled_at=clock.now())
    text = reader.read("/status/")
    assert alarms(text) == ""
    assert "Every watched tree and list answers." in text
    assert "attention" not in reader.read("/")


def test_source_that_is_switched_off_or_only_imported_raises_no_alarm(reader: Reader) -> None:
    build_tree("mm", enabled=False, failing_since=clock.now(), last_error="fatal")
    build_list("imported", url="", tree=None)
    text = reader.read("/status/")
    assert alarms(text) == ""
    assert "switched off" in text
    assert "import only" in text


def test_credentials_in_errors_are_never_shown(reader: Reader) -> None:
    error = "fatal: repository 'https://bob:hunter2@git.example.org/mm.git?token=hunter2/' not found"
    url = "https://git.example.org/mm.git"
    tree = build_tree("mm", url=url, failing_since=clock.now(), last_error=error)
    build_list(url="https://lists.example.org/linux-mm", failing_since=clock.now(), last_error=error, tree=tree)
    series = build_series()
    for path in ("/", "/status/", "/trees/mm/", f"/series/{series.pk}/", f"/messages/{series.cover_id}/"):
        text = reader.read(path)
        assert "hunter2" not in text, path
    assert "https://git.example.org/mm.git" in reader.read("/status/")


def test_branches_show_where_they_stand_and_what_was_decided(reader: Reader) -> None:
    tree = build_tree("mm")
    branch = build_branch(tree)
    HeadMove.objects.create(branch=branch, kind="created", after=branch.head, decision="first head")
    HeadMove.objects.create(branch=branch, kind="advanced", after=branch.head, decision="3 heads in 24 hours already")
    build_branch(tree, "gone", deleted_at=clock.now())
    text = reader.read("/status/")
    for fact in ("mm-new", "head of mm-new", "moved forward", "3 heads in 24 hours already", "1 deleted branch"):
        assert fact in text
    assert "first head" not in text
    assert "head of gone" not in text


def test_forced_and_deleted_branches_stay_on_the_page_for_days(reader: Reader) -> None:
    branch = build_branch(build_tree("mm"))
    old = build_revision(branch.tree)
    HeadMove.objects.create(branch=branch, kind="forced", before=old, after=branch.head)
    text = reader.read("/status/")
    assert "Rewritten and deleted lately" in text
    assert old.sha[:12] in text
    HeadMove.objects.update(at=clock.now() - timedelta(days=15))
    assert "Rewritten and deleted lately" not in reader.read("/status/")


def test_tree_with_many_branches_shows_those_that_moved_last(reader: Reader) -> None:
    tree = build_tree("stable")
    for number in range(12):
        build_branch(tree, f"linux-6.{number}.y")
    text = reader.read("/status/")
    assert "linux-6.11.y" in text
    assert "linux-6.0.y" not in text
    assert ">4 more<" in text


def test_lists_show_their_epochs_and_last_mail(reader: Reader) -> None:
    mailing_list = build_list(polled_at=clock.now())
    Epoch.objects.create(mailing_list=mailing_list, number=3, last_commit="ab" * 20, rewritten_at=clock.now())
    build_message(mailing_list, subject="[PATCH] first")
    build_message(mailing_list, subject="[PATCH] last")
    lists = reader.read("/status/").split('id="lists"')[1]
    for fact in ("3 read to", "abababababab", "rewritten", "[PATCH] last"):
        assert fact in lists
    assert "[PATCH] first" not in lists


def test_series_that_wait_are_all_counted_and_those_that_are_over_for_some_days(reader: Reader) -> None:
    long_ago = clock.now() - timedelta(days=8)
    for state in (Series.State.HELD, Series.State.REFUSED):
        for _ in range(2):
            build_series(state=state)
        build_series(state=state, state_since=long_ago)
    text = " ".join(reader.read("/status/").split())
    assert 'waiting for approval</a> <span class="figure">3</span>' in text
    assert 'cannot be applied, in 7 days</a> <span class="figure">2</span>' in text


def test_held_series_wait_with_their_reason_but_not_those_still_checked(reader: Reader) -> None:
    build_series(subject="mm: Rework", state=Series.State.HELD, reason="bob@example.org is not proved")
    build_series(subject="mm: Fresh", state=Series.State.HELD, checked_at=None)
    text = reader.read("/status/")
    assert "bob@example.org is not proved" in text
    assert "mm: Fresh" not in text
    assert '?state=held">waiting for approval</a> <span class="figure">2</span>' in text


def test_open_questions_about_machines_wait_for_a_person_there(reader: Reader) -> None:
    machine = build_machine("z3", "zen3", virtual=False)
    asked = {"kind": "drift", "machine": machine}
    MachineQuestion.objects.create(key="1", detail="equal kernels differ 3.1 times as much", state="open", **asked)
    MachineQuestion.objects.create(key="2", detail="a fan that was mended", state="answered", **asked)
    text = reader.read("/status/")
    assert "equal kernels differ 3.1 times as much" in text
    assert '<a href="/machines/z3/">z3</a>' in text
    assert "a fan that was mended" not in text


def test_mails_that_were_not_used_show_why(reader: Reader) -> None:
    broken = Because.UNUSABLE("no mail: the headers end nowhere")
    build_message(kind=Message.Kind.UNUSABLE, subject="", reason=str(broken), reason_code=broken.code)
    build_message(subject="[PATCH] fine")
    MailingList.objects.update(polled_at=clock.now())
    build_message(reason=str(COPY), reason_code=COPY.code, subject="[PATCH] a copy")
    unused = reader.read("/status/").split('id="unused"')[1]
    assert f'<span class="figure">1</span> patch: {COPY}' in " ".join(unused.split())
    assert "[PATCH] a copy" not in unused
    assert "no mail: the headers end nowhere" in unused
    assert "no subject" in unused
    assert "[PATCH] fine" not in unused


def test_task_that_was_given_up_is_named_with_what_to_do(reader: Reader) -> None:
    for _ in range(3):
        Begun.objects.create(key="sources.apply_series 7", given_up=True)
    text = alarms(reader.read("/status/"))
    for fact in (
        "task sources.apply_series 7",
        "given up until",
        "3 processes of workers",
        "TIDEMARK_WORKER_MEMORY_MB",
    ):
        assert fact in text
