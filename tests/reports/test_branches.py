"""A regression of a branch: to whom it is told, and on which thread."""

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from server.detection.models import Finding
from server.lab.models import Trial
from server.reports.models import Report
from server.sources.mirror import mirror, record_revisions
from server.sources.models import Branch, Message, Patch, Revision, Tree
from server.sources.trees.fetch import fetch_tree
from tests.builders import build_list, build_machine, build_message, build_series
from tests.detection.lifecycle.findings import as_judged, judged
from tests.reports.tellable import last, news, searched, send, told, withdraw
from tests.sources.posting import Upstream, git

pytestmark = pytest.mark.django_db

MAINTAINERS = """\
Maintainers List
----------------

MEMORY MANAGEMENT
M:\tMia Maintainer <mia@example.org>
R:\tRon Reviewer <ron@example.org>
L:\tlinux-mm@example.org
L:\tmm-private@example.org (subscribers-only)
F:\tmm/

SLEEPING
M:\tSue Sleep <sue@example.org>
F:\tkernel/sleep/

THE REST
M:\tLin Root <root@example.org>
L:\tlinux-kernel@example.org
F:\t*
F:\t*/
"""


@pytest.fixture(autouse=True)
def open_site(settings: Settings) -> None:
    settings.MAIL_ENABLED = True
    settings.MAIL_FROM = "Tidemark <tidemark@perf.example.org>"
    settings.MAIL_SINK = ""
    settings.BISECT_HOURS = 0


def regressed(where: Path, *, message: str = "mm: Make it slow", known: bool = True) -> Finding:
    """A confirmed finding of a real branch whose MAINTAINERS says whose its files are."""
    upstream = Upstream.create(where / "upstream")
    before = upstream.commit({"MAINTAINERS": MAINTAINERS, "mm/slow.c": "fast\n"}, "Begin")
    (upstream.path / "mm/slow.c").write_text("slow\n")
    upstream.git("add", "-A")
    author = ("--author", "Ada Author <ada@example.org>")
    git(upstream.path, "commit", "-q", *author, "-m", message, GIT_COMMITTER_EMAIL="kim@example.org")
    culprit = upstream.git("rev-parse", "HEAD")
    after = upstream.commit({"README": "more"}, "Say more")
    tree = Tree.objects.create(name="linus", url=str(upstream.path), branch_patterns=["master"])
    fetch_tree(tree=tree)
    first, made, newest = record_revisions(tree=tree, shas=[before, culprit, after])
    trial = judged(
        None, {build_machine("m1", "zen3"): {"fork": "regressed"}}, purpose=Trial.Purpose.CONFIRM, base=first,
        patched=newest,
    )  # fmt: skip
    branch = Branch.objects.get(tree=tree)
    fields = {"branch": branch, "before": first, "after": newest, "culprit": made if known else None}
    finding = as_judged(trial, state=Finding.State.CONFIRMED, **fields)
    if known:
        searched(finding, made)
    return finding


def test_culprit_s_author_committer_and_those_whose_files_it_touches_are_told(tmp_path: Path) -> None:
    finding = regressed(tmp_path)
    news(finding)
    report = Report.objects.get(first_of=finding)
    assert (report.kind, report.state) == (Report.Kind.TREE, Report.State.DRAFT), "a person releases it"
    assert report.to == ["ada@example.org"]
    lists = ["linux-mm@example.org", "linux-kernel@example.org"]
    assert report.cc == ["kim@example.org", *lists, "mia@example.org", "ron@example.org"]
    letter = send(report)
    assert letter["In-Reply-To"] is None
    assert letter["References"] is None
    assert "mm: Make it slow" in " ".join(letter["Subject"].split())
    finding.refresh_from_db()
    assert finding.state == Finding.State.REPORTED


def test_few_enough_are_told(tmp_path: Path, settings: Settings) -> None:
    settings.MAIL_MAX_RECIPIENTS = 3
    finding = regressed(tmp_path)
    news(finding)
    report = Report.objects.get()
    assert len(report.to) + len(report.cc) == 3
    assert "linux-mm@example.org" in report.cc


def test_tree_may_want_no_moderation(tmp_path: Path) -> None:
    finding = regressed(tmp_path)
    Tree.objects.update(moderated=False)
    news(finding)
    assert Report.objects.get().state == Report.State.APPROVED


def test_regression_without_a_culprit_is_mailed_to_nobody_until_it_has_one(tmp_path: Path) -> None:
    finding = regressed(tmp_path, known=False)
    news(finding)
    assert not Report.objects.exists()
    finding.advance(Finding.State.BISECTING)
    culprit = finding.after
    finding.advance(Finding.State.CONFIRMED, culprit=culprit)
    news(finding)
    assert Report.objects.get().kind == Report.Kind.TREE


def test_culprit_that_is_gone_from_the_mirror_is_said_and_asked_for_once(tmp_path: Path) -> None:
    finding = regressed(tmp_path)
    assert finding.culprit is not None
    Revision.objects.filter(pk=finding.culprit.pk).update(sha="f" * 40)
    news(finding)
    report = Report.objects.get()
    assert report.state == Report.State.REFUSED
    assert "the mirror does not hold ffffffffffff" in report.reason
    assert not finding.news


@pytest.mark.parametrize(
    "trailer",
    [
        "Link: https://lore.kernel.org/r/20261101.1-ada@example.org",
        "Link: https://lore.kernel.org/linux-mm/20261101.1-ada@example.org/",
        "Link: https://patch.msgid.link/20261101.1-ada@example.org",
    ],
)
def test_patch_whose_posting_is_linked_is_answered(tmp_path: Path, trailer: str) -> None:
    message = f"mm: Make it slow\n\nReported-by: X <x@example.org>\nLink: https://lore.kernel.org/r/bug@example.org\n{trailer}\n"
    finding = regressed(tmp_path, message=message)
    letter = send(told_draft(finding))
    assert letter["In-Reply-To"] == "<20261101.1-ada@example.org>"


def told_draft(finding: Finding) -> Report:
    news(finding)
    return Report.objects.get(first_of=finding)


@pytest.mark.parametrize("link", ["https://lore.kernel.org/r/report@example.org", "https://example.org/r/a@b"])
def test_link_to_something_else_than_the_patch_is_not_answered(tmp_path: Path, link: str) -> None:
    build_message(message_id="report@example.org", kind=Message.Kind.OTHER)
    finding = regressed(tmp_path, message=f"mm: Make it slow\n\nLink: {link}\n")
    assert told_draft(finding).in_reply_to == ""


def test_patch_that_the_archive_has_is_answered_with_its_whole_thread(tmp_path: Path) -> None:
    finding = regressed(tmp_path)
    assert finding.culprit is not None
    diff = mirror().output("diff-tree", "-p", "--root", "--no-commit-id", finding.culprit.sha)
    patch_id = mirror().output("patch-id", "--stable", stdin=diff).decode().split()[0]
    series = build_series(build_list())
    patch = Patch.objects.filter(series=series).latest("index")
    Patch.objects.filter(pk=patch.pk).update(patch_id=patch_id)
    Message.objects.filter(pk=patch.message_id).update(references=["cover@example.org"])
    report = told_draft(finding)
    assert report.in_reply_to == patch.message.message_id
    assert report.references == ["cover@example.org", patch.message.message_id]


def test_retraction_of_a_branch_s_regression_goes_to_all_who_were_told(tmp_path: Path) -> None:
    finding = regressed(tmp_path)
    report = told(finding)
    withdraw(finding)
    news(finding)
    retraction = last(Report.Kind.RETRACTION)
    assert (retraction.to, retraction.cc) == (report.to, report.cc)
    assert send(retraction)["In-Reply-To"] == f"<{report.delivery.message_id}>"
