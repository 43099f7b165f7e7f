"""A newer version replaces the older ones, whatever order they come in, unless it could be forged."""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from django.db import transaction
from django.utils import timezone

from server.core.errors import DomainError
from server.sources.mail.postings import REROLL_QUIET
from server.sources.messages.storage import store_message
from server.sources.models import MailingList, Message, Patch, Series, TrustedSender
from server.sources.series.formation import group_stale
from server.sources.series.requests import approve_series, sweep_series
from server.sources.supersession import supersede
from tests.builders import because
from tests.sources.posting import DIFF, deliver, mail

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
State = Series.State


def patch(version: int, subject: str = "mm: One", *, marks: str = "", **fields: str) -> bytes:
    """A series of one patch, sent as many days after the first as its version says."""
    mark = f"PATCH{marks} v{version}" if version > 1 else f"PATCH{marks}"
    fields.setdefault("date", format_datetime(NOON + timedelta(days=version)))
    fields.setdefault("message_id", f"v{version}@x")
    return mail(f"[{mark}] {subject}", fields.pop("body", DIFF), **fields)


def links() -> dict[str, str | None]:
    """Which series replaced which, by their Message-IDs."""
    rows = Series.objects.select_related("superseded_by")
    return {row.root_message_id: row.superseded_by.root_message_id if row.superseded_by else None for row in rows}


def states() -> dict[str, str]:
    return dict(Series.objects.values_list("root_message_id", "state"))


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))))
def test_each_version_is_linked_to_the_next_one(linux_mm: MailingList, order: tuple[int, ...]) -> None:
    for version in order:
        deliver(linux_mm, patch(version))
    assert links() == {"v1@x": "v2@x", "v2@x": "v3@x", "v3@x": None}
    assert states() == {"v1@x": State.SUPERSEDED, "v2@x": State.SUPERSEDED, "v3@x": State.READY}
    assert Series.objects.get(version=1).reason == "replaced by v2"


def test_title_may_name_the_version_too(linux_mm: MailingList) -> None:
    deliver(linux_mm, patch(1), patch(2, "mm: One (v2)"))
    assert links() == {"v1@x": "v2@x", "v2@x": None}


@pytest.mark.parametrize("marks", ["", " RESEND"])
def test_version_that_is_sent_again_replaces_the_first_posting(linux_mm: MailingList, marks: str) -> None:
    later = format_datetime(NOON + timedelta(days=9))
    deliver(linux_mm, patch(1), patch(1, marks=marks, message_id="again@x", date=later))
    assert states() == {"v1@x": State.SUPERSEDED, "again@x": State.READY}
    reason = Series.objects.get(root_message_id="v1@x").reason
    assert reason == "sent again: replaced by <again@x> of 2026-11-10 12:00 UTC"


def test_other_change_with_the_same_title_is_no_posting_again(linux_mm: MailingList) -> None:
    elsewhere = DIFF.replace("README", "Makefile")
    deliver(linux_mm, patch(1), patch(1, body=elsewhere, message_id="other@x"))
    assert states() == {"v1@x": State.READY, "other@x": State.READY}


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))))
def test_count_that_begins_anew_after_the_rfcs_is_newer(linux_mm: MailingList, order: tuple[int, ...]) -> None:
    """RFC v1, RFC v2, then v1: the highest number is not the last word."""
    last = format_datetime(NOON + timedelta(days=9))
    posted = {1: patch(1, marks=" RFC", message_id="r1@x"), 2: patch(2, marks=" RFC", message_id="r2@x")}
    posted[3] = patch(1, message_id="p1@x", date=last, body=DIFF.replace("README", "Makefile"))
    for number in order:
        deliver(linux_mm, posted[number])
    assert links() == {"r1@x": "r2@x", "r2@x": "p1@x", "p1@x": None}
    reason = "no RFC any more: replaced by v1, <p1@x> of 2026-11-10 12:00 UTC"
    assert Series.objects.get(root_message_id="r2@x").reason == reason


def test_rfc_of_a_higher_number_is_newer_than_what_was_none(linux_mm: MailingList) -> None:
    deliver(linux_mm, patch(1), patch(2, marks=" RFC"))
    assert links() == {"v1@x": "v2@x", "v2@x": None}


def test_dates_that_lie_leave_one_version_that_runs(linux_mm: MailingList) -> None:
    """By number RFC v3 is newer than RFC v2, by date v1 newer than RFC v3, and RFC v2 newer than v1."""
    days = {"r3@x": 1, "p1@x": 2, "r2@x": 3}
    dates = {name: format_datetime(NOON + timedelta(days=day)) for name, day in days.items()}
    mails = [
        patch(3, marks=" RFC", message_id="r3@x", date=dates["r3@x"]),
        patch(1, message_id="p1@x", date=dates["p1@x"]),
        patch(2, marks=" RFC", message_id="r2@x", date=dates["r2@x"]),
    ]
    for order in itertools.permutations(mails):
        Series.objects.update(superseded_by=None)
        Patch.objects.all().delete()
        Series.objects.all().delete()
        Message.objects.all().delete()
        for raw in order:
            deliver(linux_mm, raw)
        assert State.READY in states().values(), states()


@pytest.mark.parametrize("order", [(2, 5, 10), (10, 5, 2), (5, 10, 2)])
def test_numbers_after_the_point_count(linux_mm: MailingList, order: tuple[int, ...]) -> None:
    for minor in order:
        mark, date = f"[PATCH v2.{minor}]".encode(), format_datetime(NOON + timedelta(minutes=minor))
        body = DIFF.replace("README", f"README{minor}")
        deliver(linux_mm, patch(2, message_id=f"m{minor}@x", date=date, body=body).replace(b"[PATCH v2]", mark))
    assert links() == {"m2@x": "m5@x", "m5@x": "m10@x", "m10@x": None}
    assert Series.objects.get(minor=5).reason == "replaced by v2.10"


@pytest.mark.parametrize("covered", [1, 2])
@pytest.mark.parametrize("backwards", [False, True])
def test_cover_letter_that_only_one_version_has_hides_no_version(
    linux_mm: MailingList, covered: int, *, backwards: bool
) -> None:
    """The subject of a series without one is the title of its first patch."""

    def version(number: int) -> list[bytes]:
        mark, date = ("PATCH v2" if number > 1 else "PATCH"), format_datetime(NOON + timedelta(days=number))
        cover = mail(f"[{mark} 0/2] mm: Both", message_id=f"v{number}@x", date=date)
        names = [f"{number}-1@x", f"{number}-2@x"] if number == covered else [f"v{number}@x", f"{number}-2@x"]
        parents = [f"v{number}@x"] * 2 if number == covered else ["", f"v{number}@x"]
        patches = [
            mail(f"[{mark} {i}/2] mm: Part {i}", DIFF, message_id=names[i - 1], parent=parents[i - 1], date=date)
            for i in (1, 2)
        ]
        return [cover, *patches] if number == covered else patches

    for number in (2, 1) if backwards else (1, 2):
        deliver(linux_mm, *version(number))
    assert links() == {"v1@x": "v2@x", "v2@x": None}


def test_refused_version_is_linked_too(linux_mm: MailingList) -> None:
    deliver(linux_mm, patch(1))
    Series.objects.get().advance(State.REFUSED, because("does not apply"))
    deliver(linux_mm, patch(2))
    assert links() == {"v1@x": "v2@x", "v2@x": None}
    Series.objects.get(version=2).advance(State.REFUSED, because("does not apply"))
    deliver(linux_mm, patch(3))
    assert states() == {"v1@x": State.SUPERSEDED, "v2@x": State.SUPERSEDED, "v3@x": State.READY}


def unproved(linux_mm: MailingList) -> None:
    """From now on nothing proves who sent a mail."""
    MailingList.objects.filter(pk=linux_mm.pk).update(proof=MailingList.Proof.DKIM)
    linux_mm.refresh_from_db()


def test_forged_version_is_linked_but_stops_nothing(linux_mm: MailingList) -> None:
    deliver(linux_mm, patch(1))
    unproved(linux_mm)
    deliver(linux_mm, patch(2))
    assert links() == {"v1@x": "v2@x", "v2@x": None}
    assert states() == {"v1@x": State.READY, "v2@x": State.HELD}
    approve_series(series=Series.objects.get(version=2), reason="she wrote it, says she")
    assert states() == {"v1@x": State.SUPERSEDED, "v2@x": State.READY}


def test_forged_versions_however_many_hide_no_true_one(linux_mm: MailingList) -> None:
    deliver(linux_mm, patch(1))
    unproved(linux_mm)
    deliver(linux_mm, *(patch(version) for version in range(2, 15)))
    MailingList.objects.filter(pk=linux_mm.pk).update(proof=MailingList.Proof.ARCHIVE)
    linux_mm.refresh_from_db()
    deliver(linux_mm, patch(20))
    assert (states()["v1@x"], states()["v20@x"]) == (State.SUPERSEDED, State.READY)


def test_version_that_waits_replaces_one_that_waits(linux_mm: MailingList) -> None:
    unproved(linux_mm)
    deliver(linux_mm, patch(1), patch(2))
    assert states() == {"v1@x": State.SUPERSEDED, "v2@x": State.HELD}


def test_forged_version_does_not_stop_later_ones_that_are_proved(linux_mm: MailingList) -> None:
    """Nor one that arrives in parts: whether it is proved is not known before it is all there and checked."""
    unproved(linux_mm)
    deliver(linux_mm, patch(99), patch(99, "mm: Half", message_id="h99@x"))
    MailingList.objects.filter(pk=linux_mm.pk).update(proof=MailingList.Proof.ARCHIVE)
    linux_mm.refresh_from_db()
    date = format_datetime(NOON)
    halves = [mail(f"[PATCH v3 {n}/2] mm: Half", DIFF, message_id=f"h{n}@x", date=date) for n in (1, 2)]
    halves[1] = mail("[PATCH v3 2/2] mm: Other", DIFF, message_id="h2@x", parent="h1@x", date=date)
    deliver(linux_mm, patch(2), halves[0])
    deliver(linux_mm, halves[1])
    assert states() == {"v99@x": State.HELD, "h99@x": State.HELD, "v2@x": State.READY, "h1@x": State.READY}


def test_person_may_let_run_what_something_unproved_has_replaced(linux_mm: MailingList) -> None:
    unproved(linux_mm)
    deliver(linux_mm, patch(1), patch(2), patch(3, "mm: Else", message_id="e3@x"), patch(4, "mm: Else"))
    approve_series(series=Series.objects.get(version=1), reason="v2 is not hers")
    assert states()["v1@x"] == State.READY
    approve_series(series=Series.objects.get(version=4), reason="she wrote it")
    with pytest.raises(DomainError, match="replaced by a newer version"):
        approve_series(series=Series.objects.get(version=3), reason="too late")


def test_proved_version_of_nobody_trusted_replaces_what_runs(linux_mm: MailingList) -> None:
    deliver(linux_mm, patch(1))
    TrustedSender.objects.all().delete()
    deliver(linux_mm, patch(2))
    assert states() == {"v1@x": State.SUPERSEDED, "v2@x": State.HELD}


def test_copied_change_id_links_nothing_before_a_person_approves(linux_mm: MailingList) -> None:
    body = DIFF + "\nchange-id: 20261101-page\n"
    deliver(linux_mm, patch(1, body=body), patch(2, "mm: Mine now", body=body, sender="Eve <eve@example.org>"))
    assert links() == {"v1@x": None, "v2@x": None}
    approve_series(series=Series.objects.get(version=2), reason="she took it over")
    assert states() == {"v1@x": State.SUPERSEDED, "v2@x": State.READY}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_trusted_author_who_copies_a_change_id_replaces_nothing_of_others(
    linux_mm: MailingList, order: tuple[int, ...]
) -> None:
    TrustedSender.objects.create(address="bob@example.org")
    body = DIFF + "\nchange-id: 20261101-page\n"
    mails = [patch(1, body=body), patch(9, "mm: Bob", body=body, sender="Bob <bob@example.org>")]
    for index in order:
        deliver(linux_mm, mails[index])
    assert (states(), links()) == ({"v1@x": State.READY, "v9@x": State.READY}, {"v1@x": None, "v9@x": None})


def test_half_of_a_version_replaces_nothing_and_is_filled_when_it_is_replaced(linux_mm: MailingList) -> None:
    one = [patch(1, "mm: Half", message_id="c1@x").replace(b"[PATCH]", b"[PATCH 1/2]")]
    one.append(mail("[PATCH 2/2] mm: Other", DIFF, message_id="d1@x", parent="c1@x", date=format_datetime(NOON)))
    deliver(linux_mm, one[0])
    deliver(linux_mm, patch(2, "mm: Half"))
    assert states() == {"c1@x": State.SUPERSEDED, "v2@x": State.READY}
    deliver(linux_mm, one[1])
    assert Series.objects.get(version=1).patches.count() == 2
    assert states() == {"c1@x": State.SUPERSEDED, "v2@x": State.READY}


@pytest.mark.parametrize("kind", ["sent again", "others of the same title"])
def test_hundreds_of_one_title_cost_no_more_each_than_a_few(
    linux_mm: MailingList, kind: str, django_assert_max_num_queries: Callable[[int], AbstractContextManager[object]]
) -> None:
    unproved(linux_mm)
    for number in range(14):
        date = format_datetime(NOON + timedelta(minutes=number))
        body = DIFF if kind == "sent again" else DIFF.replace("README", f"file{number}")
        deliver(linux_mm, patch(1, body=body, message_id=f"n{number}@x", date=date))
    for name in ("n13@x", "n0@x", "n7@x"):
        with django_assert_max_num_queries(40), transaction.atomic():
            supersede(Series.objects.get(root_message_id=name))


def test_superseding_again_changes_nothing(linux_mm: MailingList) -> None:
    deliver(linux_mm, patch(1), patch(2), patch(3))
    before = list(Series.objects.values())
    for series in Series.objects.all():
        supersede(series)
    assert list(Series.objects.values()) == before


def test_patch_that_replaces_one_of_its_thread_makes_a_new_version(linux_mm: MailingList) -> None:
    """The others are carried over once nobody sends more of them; the cover letter's words count on."""
    sent = timezone.now() - REROLL_QUIET
    date = format_datetime(sent - timedelta(days=1))
    cover = mail("[PATCH 0/3] mm: Three", "Text.\n\nbase-commit: " + "a" * 40 + "\n", message_id="c@x", date=date)
    patches = [
        mail(f"[PATCH {i}/3] mm: Part {i}", DIFF, message_id=f"p{i}@x", parent="c@x", date=date) for i in (1, 2, 3)
    ]
    deliver(linux_mm, cover, *patches)
    just_now = format_datetime(sent + timedelta(minutes=5))
    new = mail("[PATCH v2 2/3] mm: Part 2", DIFF, message_id="new@x", parent="p2@x", date=just_now)
    store_message(mailing_list=linux_mm, raw=new)
    group_stale()
    second = Series.objects.get(version=2)
    assert second.state == State.INCOMPLETE
    assert second.reason.startswith("3 of 3 patches; others may follow until ")
    assert [p.message.message_id for p in second.patches.order_by("index")] == ["p1@x", "new@x", "p3@x"]
    Message.objects.filter(message_id="new@x").update(sent_at=sent - timedelta(minutes=5))
    sweep_series()
    second.refresh_from_db()
    assert (second.state, second.subject, second.base_commit) == (State.HELD, "mm: Three", "a" * 40)
    assert links() == {"c@x": "new@x", "new@x": None}
