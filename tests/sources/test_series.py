import io
import itertools

import pytest
from django.core.management import CommandError, call_command

from server.core.errors import DomainError
from server.core.models import Transition
from server.sources.messages.storage import forget_message
from server.sources.models import MailingList, Message, Patch, Series, TrustedSender
from server.sources.series.requests import approve_series, sweep_series
from tests.builders import build_list, build_message, build_series
from tests.sources.posting import DIFF, Upstream, deliver, mail, two_patches

Sent = list[tuple[str, tuple[int | str, ...]]]


@pytest.fixture
def mails(upstream: Upstream) -> list[bytes]:
    """A cover letter and two patches as git sends them."""
    return upstream.mails(two_patches(upstream), "--cover-letter")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_series_is_the_same_in_every_order_of_arrival(
    linux_mm: MailingList, mails: list[bytes], order: tuple[int, ...]
) -> None:
    deliver(linux_mm, *(mails[i] for i in order))
    series = Series.objects.get()
    patches = list(series.patches.all())
    assert (series.state, series.total, series.version) == (Series.State.READY, 2, 1)
    assert series.subject == "mm: Make things better"
    assert [p.subject for p in patches] == ["mm: Clear the page", "mm: Clear it twice"]
    assert series.cover is not None
    assert series.root_message_id == series.cover.message_id
    assert (series.author_name, series.author_address) == ("Ada Author", "ada@example.org")
    assert bytes(patches[0].message.raw) == mails[1]


@pytest.mark.django_db(transaction=True)
def test_complete_series_of_a_trusted_sender_wakes_its_applying(
    linux_mm: MailingList, mails: list[bytes], sent_tasks: Sent
) -> None:
    deliver(linux_mm, *mails[:2])
    series = Series.objects.get()
    assert (series.state, series.reason) == (Series.State.INCOMPLETE, "1 of 2 patches")
    assert sent_tasks == []
    deliver(linux_mm, mails[2])
    assert sent_tasks == [("sources.check_series", (series.pk,)), ("sources.apply_series", (series.pk,))]
    steps = Transition.objects.filter(trace=series.trace).values_list("before", "after")
    assert list(steps) == [("", "incomplete"), ("incomplete", "held"), ("held", "ready")]


def said_by(*words: str) -> str:
    out = io.StringIO()
    call_command("approve_series", *words, stdout=out)
    return out.getvalue()


def mark_for(name: str) -> str:
    """What the command says of this series, as it is for its next call."""
    return said_by(name).rpartition("--seen ")[2].split()[0]


def test_stranger_waits_for_a_person(linux_mm: MailingList, mails: list[bytes]) -> None:
    TrustedSender.objects.all().delete()
    deliver(linux_mm, *mails)
    series = Series.objects.get()
    assert series.state == Series.State.HELD
    assert "ada@example.org is not a trusted sender" in series.reason
    mark = mark_for(f"<{series.root_message_id}>")
    with pytest.raises(CommandError, match="say why"):
        call_command("approve_series", series.root_message_id, "--seen", mark, "--reason", " ")
    with pytest.raises(CommandError, match="nothing is approved yet"):
        call_command("approve_series", series.root_message_id, "--reason", "known author")
    series.refresh_from_db()
    assert series.state == Series.State.HELD
    call_command("approve_series", f"<{series.root_message_id}>", "--seen", mark, "--reason", "known author")
    series.refresh_from_db()
    assert series.state == Series.State.READY
    assert series.reason.endswith("on the command line: known author")
    with pytest.raises(CommandError, match="not held"):
        call_command("approve_series", str(series.pk), "--seen", mark, "--reason", "again")
    with pytest.raises(CommandError, match=r"no series holds <nothing@example\.org>"):
        call_command("approve_series", "nothing@example.org")
    for number in (series.pk + 1, 10**30):
        with pytest.raises(CommandError, match="series"):
            call_command("approve_series", str(number))


def test_series_is_not_approved_by_a_message_id_that_a_stranger_has_used(linux_mm: MailingList) -> None:
    TrustedSender.objects.all().delete()
    deliver(linux_mm, mail("[PATCH] mm: Do it", DIFF, message_id="one@x"))
    hers = Series.objects.get()
    mallory = "Mallory \x1b[2J <m@evil.org>"
    deliver(linux_mm, mail("[PATCH v2] mm: Do it", DIFF + "\n", message_id="one@x", sender=mallory))
    his = Series.objects.get(author_address="m@evil.org")
    out = io.StringIO()
    for more in ([], ["--reason", "hers is harmless"], ["--seen", mark_for(str(hers.pk)), "--reason", "harmless"]):
        with pytest.raises(CommandError, match="2 series hold one@x: name one of them by its number"):
            call_command("approve_series", "one@x", *more, stdout=out)
    assert f"series {his.pk}: v2 mm: Do it, of Mallory [U+001B][2J <m@evil.org>, waiting for approval" in out.getvalue()
    assert f"series {hers.pk}: mm: Do it, of Ada Author <ada@example.org>, waiting for approval" in out.getvalue()
    call_command("approve_series", str(hers.pk), "--seen", mark_for(str(hers.pk)), "--reason", "harmless")
    assert set(Series.objects.values_list("pk", "state")) == {(hers.pk, "ready"), (his.pk, "held")}


def test_what_is_approved_is_what_the_command_has_named(linux_mm: MailingList) -> None:
    TrustedSender.objects.all().delete()
    deliver(linux_mm, mail("[PATCH 1/1] mm: Do it", DIFF, message_id="1@x"))
    series = Series.objects.get()
    mark = mark_for("1@x")
    extra = build_message(
        mailing_list=linux_mm, message_id="2@x", subject="[PATCH 2/1] mm: More", sender_address="eve@evil.org"
    )
    Patch.objects.create(series=series, index=2, message=extra, subject="mm: More")
    with pytest.raises(CommandError, match="others came in between"):
        call_command("approve_series", "1@x", "--seen", mark, "--reason", "harmless")
    told = said_by("1@x")
    assert "patch 1/1 +1 -1 mm: Do it: <1@x>" in told
    assert "patch 2/1 (beyond the 1 that are announced)" in told
    assert f"<2@x> (message {extra.pk}) from eve@evil.org" in told


@pytest.mark.django_db
def test_patch_beyond_the_last_one_makes_no_series_whole() -> None:
    series = build_series(state=Series.State.HELD, total=2)
    series.patches.all().delete()
    for index in (1, 3):
        Patch.objects.create(series=series, index=index, message=build_message(), subject=f"mm: Step {index}")
    with pytest.raises(DomainError, match="is not whole"):
        approve_series(series=series, reason="counted two")


@pytest.mark.django_db
def test_person_lets_a_refused_series_try_again() -> None:
    series = build_series(state=Series.State.REFUSED, failures=3)
    approve_series(series=series, reason="the disk was full")
    series.refresh_from_db()
    assert (series.state, series.failures) == (Series.State.READY, 0)


def test_approval_that_dies_half_way_is_no_approval(
    linux_mm: MailingList, mails: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    TrustedSender.objects.all().delete()
    deliver(linux_mm, *mails)

    def killed(_series: Series) -> None:
        raise InterruptedError

    monkeypatch.setattr("server.sources.series.requests.supersede", killed)
    with pytest.raises(InterruptedError):
        approve_series(series=Series.objects.get(), reason="known author")
    assert Series.objects.get().state == Series.State.HELD


def test_one_strange_patch_holds_the_whole_series(linux_mm: MailingList, mails: list[bytes]) -> None:
    foreign = mails[2].replace(b"From: Ada Author <ada@example.org>", b"From: Eve <eve@example.org>")
    deliver(linux_mm, mails[0], mails[1], foreign)
    series = Series.objects.get()
    assert series.state == Series.State.HELD
    assert "eve@example.org" in series.reason


def test_same_mail_twice_is_stored_once(linux_mm: MailingList, mails: list[bytes]) -> None:
    deliver(linux_mm, *mails, *mails)
    assert Message.objects.count() == 3
    assert Series.objects.count() == 1


def test_copy_in_a_second_list_makes_no_second_series(linux_mm: MailingList, mails: list[bytes]) -> None:
    other = build_list("linux-kernel", tree=linux_mm.tree, proof=MailingList.Proof.ARCHIVE)
    deliver(linux_mm, *mails)
    copies = deliver(other, *(m + b"\n_____\nlist footer\n" for m in mails))
    assert Series.objects.count() == 1
    assert {m.reason for m in copies} == {"another copy of a mail that is here already"}


def test_series_whose_mails_came_through_two_lists_is_whole(linux_mm: MailingList, mails: list[bytes]) -> None:
    other = build_list("linux-kernel", tree=linux_mm.tree, proof=MailingList.Proof.ARCHIVE)
    deliver(other, mails[0], mails[2])
    deliver(linux_mm, mails[1])
    assert Series.objects.get().state == Series.State.READY


def test_base_commit_and_change_id_are_found_in_cover_or_first_patch(linux_mm: MailingList, upstream: Upstream) -> None:
    commits = two_patches(upstream)
    base = commits.split("..")[0]
    deliver(linux_mm, *upstream.mails(commits, "--cover-letter", f"--base={base}"))
    with_cover = Series.objects.get()
    without = upstream.mails(commits, f"--base={base}", "-v2", stamp=1_793_500_100)
    without[0] = without[0].replace(b"base-commit:", b"change-id: 20261101-twice\nbase-commit:")
    deliver(linux_mm, *without)
    no_cover = Series.objects.get(version=2)
    assert with_cover.base_commit == no_cover.base_commit == base
    assert no_cover.change_id == "20261101-twice"


def test_newer_version_supersedes_when_it_is_complete(linux_mm: MailingList, upstream: Upstream) -> None:
    commits = two_patches(upstream)
    deliver(linux_mm, *upstream.mails(commits, "--cover-letter"))
    first = Series.objects.get()
    second = upstream.mails(commits, "--cover-letter", "-v2", stamp=1_793_500_100)
    deliver(linux_mm, *second[:2])
    first.refresh_from_db()
    assert first.state == Series.State.READY
    deliver(linux_mm, second[2])
    first.refresh_from_db()
    assert (first.state, first.superseded_by) == (Series.State.SUPERSEDED, Series.objects.get(version=2))


def test_older_version_that_comes_late_is_superseded_at_once(linux_mm: MailingList, upstream: Upstream) -> None:
    commits = two_patches(upstream)
    deliver(linux_mm, *upstream.mails(commits, "--cover-letter", "-v2", stamp=1_793_500_100))
    deliver(linux_mm, *upstream.mails(commits, "--cover-letter"))
    first, second = Series.objects.order_by("version")
    assert (first.state, second.state) == (Series.State.SUPERSEDED, Series.State.READY)
    assert first.superseded_by == second


def test_versions_with_the_same_message_ids_stay_apart(linux_mm: MailingList, upstream: Upstream) -> None:
    """Git makes equal Message-IDs for an unchanged patch of two versions that are formatted in one second."""
    commits = two_patches(upstream)
    first, second = upstream.mails(commits, "--cover-letter"), upstream.mails(commits, "--cover-letter", "-v2")
    deliver(linux_mm, *first, *second)
    assert [len(s.patches.all()) for s in Series.objects.all()] == [2, 2]
    older, newer = Series.objects.order_by("version")
    assert (older.state, newer.state) == (Series.State.SUPERSEDED, Series.State.READY)
    assert newer.cover is not None


def test_change_id_of_a_stranger_supersedes_nothing(linux_mm: MailingList) -> None:
    body = DIFF + "\nchange-id: 20261101-page\n"
    deliver(linux_mm, mail("[PATCH] mm: One", body, message_id="v1@x"))
    deliver(linux_mm, mail("[PATCH v2] mm: Two", body, message_id="v2@x", sender="Eve <eve@example.org>"))
    first, second = Series.objects.order_by("version")
    assert (first.state, second.state) == (Series.State.READY, Series.State.HELD)
    deliver(linux_mm, mail("[PATCH v3] mm: Another name", body, message_id="v3@x"))
    first.refresh_from_db()
    assert first.state == Series.State.SUPERSEDED


def test_reply_that_quotes_a_patch_is_stored_and_makes_no_series(linux_mm: MailingList) -> None:
    (reply,) = deliver(linux_mm, mail("Re: [PATCH] x", "> " + DIFF.replace("\n", "\n> "), parent="p@x"))
    assert reply.kind == Message.Kind.OTHER
    assert not Series.objects.exists()


def test_own_report_never_becomes_a_series(linux_mm: MailingList) -> None:
    (report,) = deliver(linux_mm, mail("[PATCH] x", DIFF, headers="X-Tidemark: report\n"))
    assert (report.kind, report.reason) == (Message.Kind.OTHER, "sent by a program: never a patch")
    assert not Series.objects.exists()


def test_second_mail_for_a_taken_place_is_kept_with_its_reason(linux_mm: MailingList, mails: list[bytes]) -> None:
    deliver(linux_mm, *mails)
    again = mails[2].replace(b"Message-Id: <", b"Message-Id: <again").replace(b"Clear it", b"Clear IT")
    (extra,) = deliver(linux_mm, again)
    assert extra.kind == Message.Kind.PATCH
    series = Series.objects.get(state=Series.State.READY)
    assert series.patches.count() == 2
    assert not Patch.objects.filter(series=series, message=extra).exists()


def test_hostile_mails_are_all_stored_with_a_reason(linux_mm: MailingList) -> None:
    hostile = [
        b"",
        b"\0\0\0",
        b"From: a\0@b\nSubject: \xff\xfe\n\n\0",
        b"Subject: [PATCH 1/2] x\nMessage-ID: <x@y>\n\n" + DIFF.encode(),
        mail("[PATCH 9999/9999] x", DIFF, message_id="big@x"),
        mail("[PATCH 0/0] x", "nothing", message_id="zero@x"),
        mail("[PATCH v999 1/2] " + "x" * 5000, DIFF, message_id="long@x"),
        mail("[PATCH] x", DIFF, message_id="long-id" * 200),
        mail("[PATCH] x", DIFF, message_id="refs@x", headers="References: " + "<r@x> " * 5000 + "\n"),
        mail("[PATCH] x", DIFF, message_id="sender@x", sender="a" * 5000 + "@example.org"),
        mail("x", message_id="2077@x", date="Fri, 31 Dec 9999 23:59:59 -2359"),
    ]
    stored = deliver(linux_mm, *hostile)
    assert Message.objects.count() == len(hostile)
    for raw, message in zip(hostile, stored, strict=True):
        assert bytes(Message.objects.get(pk=message.pk).raw) == raw
    assert {m.reason for m in stored if m.kind == Message.Kind.UNUSABLE} == {
        "no usable From address",
        "header From is longer than 4000 characters",
    }


def test_deleted_mail_loses_its_content_and_refuses_its_series(linux_mm: MailingList, mails: list[bytes]) -> None:
    stored = deliver(linux_mm, *mails)
    forget_message(mailing_list=linux_mm, blob=stored[1].blob)
    gone = Message.objects.get(pk=stored[1].pk)
    assert (gone.kind, bytes(gone.raw), gone.subject) == (Message.Kind.DELETED, b"", stored[1].subject)
    series = Series.objects.get()
    assert (series.state, series.reason) == (
        Series.State.REFUSED,
        f"the archive deleted <{gone.message_id}>",
    )
    deliver(linux_mm, *mails)
    assert Message.objects.get(pk=gone.pk).kind == Message.Kind.DELETED


@pytest.mark.django_db(transaction=True)
def test_sweep_wakes_ready_series_whose_message_was_lost(
    linux_mm: MailingList, mails: list[bytes], sent_tasks: Sent
) -> None:
    deliver(linux_mm, *mails)
    series = Series.objects.get()
    sent_tasks.clear()
    sweep_series()
    assert sent_tasks == [("sources.apply_series", (series.pk,))]


@pytest.mark.django_db(transaction=True)
def test_sweep_settles_a_complete_series_that_was_left(
    linux_mm: MailingList, mails: list[bytes], sent_tasks: Sent
) -> None:
    deliver(linux_mm, *mails)
    Series.objects.update(state=Series.State.INCOMPLETE, checked_at=None)
    sent_tasks.clear()
    sweep_series()
    series = Series.objects.get()
    assert series.state == Series.State.HELD
    assert ("sources.check_series", (series.pk,)) in sent_tasks
