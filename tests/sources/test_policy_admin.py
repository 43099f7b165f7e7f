"""What people decide in the admin, and that what services write cannot be changed there."""

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from server.core import clock
from server.sources.models import HeadMove, MailingList, MeasureRule, Series, Tag, Thread, TrustedSender, WantedRevision
from tests.builders import build_case, build_list, build_revision, build_series, build_tree

pytestmark = pytest.mark.django_db
Sent = list[tuple[str, tuple[int | str, ...]]]
PAGE = "/admin/sources"


def test_trusted_sender_is_added_with_a_history_and_what_he_sent_is_checked_again(admin_client: Client) -> None:
    held = build_series(state=Series.State.HELD)
    answer = admin_client.post(f"{PAGE}/trustedsender/add/", {"address": "ada@example.org", "note": "met her"})
    assert answer.status_code == 302
    held.refresh_from_db()
    assert held.checked_at is None
    sender = TrustedSender.objects.get()
    assert LogEntry.objects.get().object_id == str(sender.pk)
    page = admin_client.get(f"{PAGE}/trustedsender/{sender.pk}/history/")
    assert "Added" in page.content.decode()
    assert admin_client.post(f"{PAGE}/trustedsender/{sender.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not TrustedSender.objects.exists()


def test_rule_that_asks_for_unknown_benchmarks_is_kept_with_a_warning(admin_client: Client) -> None:
    MeasureRule.objects.all().delete()
    build_case("fault-4k")
    fields = {"pattern": "mm/*.c", "benchmarks": "mm-basic/fault,gone", "enabled": "on"}
    page = admin_client.post(f"{PAGE}/measurerule/add/", fields, follow=True).content.decode()
    assert MeasureRule.objects.get().benchmarks == ["mm-basic/fault", "gone"]
    assert "No enabled case answers to gone" in page


def test_list_whose_proof_changes_has_its_held_series_checked_again(admin_client: Client) -> None:
    mailing_list = build_list()
    held = build_series(mailing_list, state=Series.State.HELD)
    fields = {"name": "linux-mm", "url": "", "address": "", "proof": "archive", "poll_seconds": "60", "enabled": "on"}
    assert admin_client.post(f"{PAGE}/mailinglist/{mailing_list.pk}/change/", fields).status_code == 302
    mailing_list.refresh_from_db()
    held.refresh_from_db()
    assert mailing_list.proof == MailingList.Proof.ARCHIVE
    assert held.checked_at is None


def test_senders_of_chosen_series_are_checked_again(admin_client: Client) -> None:
    held = build_series(state=Series.State.HELD)
    chosen = {"action": "check_senders", "_selected_action": [held.pk, build_series(subject="x").pk]}
    page = admin_client.post(f"{PAGE}/series/", chosen, follow=True)
    assert "1 are checked again" in page.content.decode()


def test_what_services_write_is_shown_and_cannot_be_changed(admin_client: Client) -> None:
    tree = build_tree()
    revision = build_revision(tree)
    branch = tree.branches.create(name="master", head=revision, head_at=clock.now())
    rows = [
        HeadMove.objects.create(branch=branch, kind="created", after=revision, decision="wanted: head"),
        Tag.objects.create(tree=tree, name="v6.1", revision=revision),
        WantedRevision.objects.create(tree=tree, revision=revision, why="tag"),
        Thread.objects.create(),
    ]
    for row in rows:
        name = row._meta.model_name
        assert admin_client.get(f"{PAGE}/{name}/").status_code == 200
        assert admin_client.get(f"{PAGE}/{name}/{row.pk}/change/").status_code == 200
        assert admin_client.post(f"{PAGE}/{name}/{row.pk}/change/", {}).status_code == 403
        assert admin_client.get(f"{PAGE}/{name}/add/").status_code == 403


def test_tree_is_edited_with_all_that_it_wants(admin_client: Client) -> None:
    tree = build_tree()
    tree.branches.create(name="master")
    fields = {
        "name": "stable",
        "url": "file:///x",
        "poll_seconds": "300",
        "priority": "3",
        "branch_patterns": "linux-*.y",
    }
    inline = {"branches-TOTAL_FORMS": "0", "branches-INITIAL_FORMS": "0"}
    assert admin_client.get(f"{PAGE}/tree/{tree.pk}/change/").status_code == 200
    assert admin_client.post(f"{PAGE}/tree/{tree.pk}/change/", fields | inline).status_code == 302
    tree.refresh_from_db()
    assert (tree.priority, tree.branch_patterns) == (3, ["linux-*.y"])
