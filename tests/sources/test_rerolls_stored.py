"""Partial re-rolls as rows: what the older version says counts on, whatever came first, and however it was grouped."""

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from server.core import clock
from server.sources.mail.postings import REROLL_QUIET
from server.sources.messages.storage import store_message
from server.sources.models import MailingList, Message, Patch, Series, Thread, ThreadMember
from server.sources.series.formation import group_stale
from server.sources.series.requests import all_series_json, sweep_series
from server.sources.trust.series_check import check_series
from tests.sources.posting import DIFF, mail

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
BASE = "a" * 40
WORDS = f"Text.\n\nbase-commit: {BASE}\nchange-id: 20261101-three\nprerequisite-message-id: <below@x>\n"
State = Series.State


def at(minutes: float) -> str:
    return format_datetime(NOON + timedelta(minutes=minutes))


def old_version(total: int = 3, *, mark: str = "PATCH") -> list[bytes]:
    """A cover letter that says all that a series stands on, and its patches."""
    cover = mail(f"[{mark} 0/{total}] mm: Three", WORDS, message_id="c@x", date=at(0))
    return [
        cover,
        *(
            mail(f"[{mark} {i}/{total}] mm: Part {i}", DIFF, message_id=f"p{i}@x", parent="c@x", date=at(i / 10))
            for i in range(1, total + 1)
        ),
    ]


def replacement(mark: str, index: int = 2, *, of: str = "p2@x", name: str = "new@x", minute: int = 90) -> bytes:
    """One patch of three anew, in answer to the old one; it changes another file."""
    body = DIFF.replace("README", f"Makefile{minute}")
    return mail(f"[{mark} {index}/3] mm: Part {index} anew", body, message_id=name, parent=of, date=at(minute))


def store(mailing_list: MailingList, *mails: bytes) -> None:
    for raw in mails:
        store_message(mailing_list=mailing_list, raw=raw, received_at=NOON)


def told() -> list[dict[str, object]]:
    """All that is known of all series but when each step was taken."""
    rows = sorted(all_series_json(), key=lambda row: (row["message_id"], row["version"], row["minor"]))
    return [{name: value for name, value in row.items() if name not in {"transitions", "trust"}} for row in rows]


def forget_all() -> None:
    Series.objects.update(superseded_by=None)
    for model in (Patch, Series, Message, ThreadMember, Thread):
        model.objects.all().delete()


MARKS = {"PATCH v2": "replaced by v2", "PATCH v1.1": "replaced by v1.1", "PATCH": "", "PATCH RESEND": ""}


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("grouped", ["mail by mail", "all at once"])
def test_replaced_patch_keeps_what_the_old_cover_letter_says(linux_mm: MailingList, mark: str, grouped: str) -> None:
    for raw in [*old_version(), replacement(mark)]:
        store(linux_mm, raw)
        if grouped == "mail by mail":
            group_stale()
    group_stale()
    old, new = Series.objects.get(root_message_id="c@x"), Series.objects.get(root_message_id="new@x")
    assert (new.subject, new.base_commit, new.change_id) == ("mm: Three", BASE, "20261101-three")
    assert new.prerequisites == ["message-id:below@x"]
    assert [p.message.message_id for p in new.patches.order_by("index")] == ["p1@x", "new@x", "p3@x"]
    assert (old.superseded_by, old.state) == (new, State.HELD), "what is not checked replaces nothing"
    check_series(series=new)
    old.refresh_from_db()
    again = "sent again in part: replaced by <new@x> of 2026-11-01 13:30 UTC"
    assert (old.superseded_by, old.state, old.reason) == (new, State.SUPERSEDED, MARKS[mark] or again)


def test_version_with_a_point_is_shown_so(linux_mm: MailingList) -> None:
    store(linux_mm, *old_version(mark="PATCH v11"), replacement("PATCH v11.1"))
    group_stale()
    assert sorted(map(str, Series.objects.all())) == ["v11 mm: Three", "v11.1 mm: Three"]


def rerolled_twice() -> list[bytes]:
    """Three patches; the second one anew, the first one of that anew, and a version of all at the end."""
    final = [raw.replace(b"c@x", b"c9@x") for raw in old_version(mark="PATCH v3")]
    final = [raw.replace(b"Message-ID: <p", b"Message-ID: <q") for raw in final]
    return [
        *old_version(),
        replacement("PATCH v2"),
        replacement("PATCH v2.1", 1, of="p1@x", name="first@x", minute=200),
        replacement("PATCH v2.2", 2, of="new@x", name="newer@x", minute=300),
        mail("Re: [PATCH 0/3] mm: Three", "Acked-by: Ada Author <ada@example.org>\n", message_id="r@x", parent="c@x"),
        *(raw.replace(b"01 Nov 2026 12:", b"01 Nov 2026 20:") for raw in final),
    ]


def test_series_are_the_same_in_one_pass_mail_by_mail_and_in_any_order(linux_mm: MailingList) -> None:
    mails = rerolled_twice()
    store(linux_mm, *mails)
    sweep_series()
    expected = told()
    assert [(row["message_id"], row["subject"], row["base_commit"], row["superseded_by"]) for row in expected] == [
        ("c9@x", "mm: Three", BASE, None),
        ("c@x", "mm: Three", BASE, "new@x"),
        ("first@x", "mm: Three", BASE, "newer@x"),
        ("new@x", "mm: Three", BASE, "first@x"),
        ("newer@x", "mm: Three", BASE, "c9@x"),
    ]
    for seed in range(6):
        forget_all()
        chance = random.Random(seed)  # noqa: S311 (a shuffle that can be repeated)
        if seed:
            chance.shuffle(mails)
        for raw in mails:
            store(linux_mm, raw)
            if chance.random() < (1, 0.3, 1)[seed % 3]:
                group_stale()
        sweep_series()
        assert told() == expected, seed


def test_answer_to_the_old_cover_letter_counts_for_what_was_carried_over(linux_mm: MailingList) -> None:
    answer = mail(
        "Re: [PATCH 0/3] mm: Three", "Acked-by: Ada Author <ada@example.org>\n", message_id="r@x", parent="c@x"
    )
    store(linux_mm, *old_version(), replacement("PATCH v2"), answer)
    group_stale()
    new = Series.objects.get(root_message_id="new@x")
    acked = ["Acked-by" in " ".join(patch.trailers) for patch in new.patches.order_by("index")]
    assert acked == [True, False, True]


def test_late_cover_letter_counts_for_the_rerolls_that_wait(linux_mm: MailingList) -> None:
    cover, *patches = old_version()
    store(linux_mm, *patches, replacement("PATCH v2"))
    group_stale()
    new = Series.objects.get(root_message_id="new@x")
    assert (new.state, new.base_commit) == (State.HELD, "")
    Series.objects.update(checked_at=NOON)
    store(linux_mm, cover)
    group_stale()
    new.refresh_from_db()
    assert (new.subject, new.base_commit, new.checked_at) == ("mm: Three", BASE, None)


def test_words_of_a_letter_that_somebody_forged_hold_the_reroll(linux_mm: MailingList) -> None:
    """The letter is none of the re-roll's own mails, but its base and change-id would be believed."""
    MailingList.objects.update(proof=MailingList.Proof.DKIM)
    linux_mm.refresh_from_db()
    store(linux_mm, *old_version(), replacement("PATCH v2"))
    group_stale()
    Message.objects.exclude(message_id="c@x").update(authentic=True, authenticity="signed")
    Message.objects.filter(message_id="c@x").update(authentic=False, authenticity="not signed")
    new = Series.objects.get(root_message_id="new@x")
    check_series(series=new)
    new.refresh_from_db()
    assert (new.state, "1 of 4 mails of ada@example.org not proved" in new.reason) == (State.HELD, True), new.reason


@pytest.mark.parametrize("live", [True, False], ids=["as they come", "after an outage"])
def test_patches_without_numbers_wait_for_each_other(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch, *, live: bool
) -> None:
    cover, *patches = old_version()
    loose = [raw.replace(f"[PATCH {i}/3]".encode(), b"[PATCH]") for i, raw in enumerate(patches, start=1)]
    now = [NOON]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    for minute, raw in enumerate([cover, *loose]):
        now[0] = NOON + timedelta(minutes=minute / 10)
        store(linux_mm, raw)
        if live:
            group_stale()
    now[0] = NOON + REROLL_QUIET * 2
    sweep_series()
    series = Series.objects.get()
    assert [p.message.message_id for p in series.patches.order_by("index")] == ["p1@x", "p2@x", "p3@x"]


def test_single_patch_beside_an_incomplete_series_is_one_after_an_hour(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch
) -> None:
    cover, *patches = old_version()
    now = [NOON + timedelta(minutes=1)]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    store(linux_mm, cover, patches[0].replace(b"[PATCH 1/3]", b"[PATCH]"))
    group_stale()
    single = Series.objects.get(total=1)
    assert single.reason == "1 of 1 patches; others may follow until 2026-11-01 13:00 UTC"
    now[0] += REROLL_QUIET
    sweep_series()
    single.refresh_from_db()
    assert single.state == State.HELD
