"""A newer version replaces the older ones, whatever order they come in, unless it could be forged."""

import itertools
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from django.utils import timezone

from server.sources.mail.threads import REROLL_QUIET
from server.sources.messages.storing import store_message
from server.sources.models import MailingList, Message, Series, TrustedSender
from server.sources.series.grouping import group_stale
from server.sources.series.services import approve_series, sweep_series
from server.sources.series.superseding import supersede
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


def test_refused_version_is_linked_too(linux_mm: MailingList) -> None:
    deliver(linux_mm, patch(1))
    Series.objects.get().advance(State.REFUSED, "does not apply")
    deliver(linux_mm, patch(2))
    assert links() == {"v1@x": "v2@x", "v2@x": None}
    Series.objects.get(version=2).advance(State.REFUSED, "does not apply")
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


def test_version_that_waits_replaces_one_that_waits(linux_mm: MailingList) -> None:
    unproved(linux_mm)
    deliver(linux_mm, patch(1), patch(2))
    assert states() == {"v1@x": State.SUPERSEDED, "v2@x": State.HELD}


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


def test_half_of_a_version_replaces_nothing_and_is_filled_when_it_is_replaced(linux_mm: MailingList) -> None:
    one = [patch(1, "mm: Half", message_id="c1@x").replace(b"[PATCH]", b"[PATCH 1/2]")]
    one.append(mail("[PATCH 2/2] mm: Other", DIFF, message_id="d1@x", parent="c1@x", date=format_datetime(NOON)))
    deliver(linux_mm, one[0])
    deliver(linux_mm, patch(2, "mm: Half"))
    assert states() == {"c1@x": State.SUPERSEDED, "v2@x": State.READY}
    deliver(linux_mm, one[1])
    assert Series.objects.get(version=1).patches.count() == 2
    assert states() == {"c1@x": State.SUPERSEDED, "v2@x": State.READY}


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
