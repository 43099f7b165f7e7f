"""Threads become series whole: whatever the order of the mails, and however often it is done."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from server.core.models import Begun
from server.sources.messages.storage import forget_message, store_message
from server.sources.models import MailingList, Message, Patch, Series, Thread, ThreadMember
from server.sources.series import formation
from server.sources.series.formation import group_stale, write_versions
from server.sources.series.requests import all_series_json, sweep_series
from server.sources.series.thread_rows import ThreadRows
from tests.builders import build_list
from tests.sources.posting import DIFF, deliver, mail

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
ARRIVED = NOON + timedelta(days=7)


def at(minutes: int) -> str:
    return format_datetime(NOON + timedelta(minutes=minutes))


def posting(total: int, version: int = 1, *, name: str = "a", threaded: bool = True) -> list[bytes]:
    """A cover letter and `total` patches, a second apart in their minute."""
    mark = f"PATCH v{version}" if version > 1 else "PATCH"
    cover = f"{name}{version}-0@x"
    mails = [mail(f"[{mark} 0/{total}] mm: Series {name}", message_id=cover, date=at(version))]
    for index in range(1, total + 1):
        subject, own = f"[{mark} {index}/{total}] mm: Part {index} of {name}", f"{name}{version}-{index}@x"
        mails.append(mail(subject, DIFF, message_id=own, parent=cover if threaded else "", date=at(version)))
    return mails


def facts() -> list[dict[str, object]]:
    """All series without what tells when they were made."""
    found = sorted(all_series_json(), key=lambda s: (s["message_id"], s["version"]))
    return [{name: value for name, value in s.items() if name not in {"transitions", "trust"}} for s in found]


def reasons() -> dict[str, str]:
    return dict(Message.objects.values_list("message_id", "reason"))


def store(mailing_list: MailingList, *mails: bytes) -> None:
    for raw in mails:
        store_message(mailing_list=mailing_list, raw=raw, received_at=ARRIVED)


def conversation() -> list[bytes]:
    """Two versions in one thread, an answer to each, a second try at one place, and a series without threading."""
    first, second = posting(3), posting(3, 2)
    second[0] = second[0].replace(b"\n\n", b"\nIn-Reply-To: <a1-0@x>\nReferences: <a1-0@x>\n\n", 1)
    answer = "Good.\n\nReviewed-by: Ada Author <ada@example.org>\n"
    return [
        *first,
        *second,
        mail("Re: [PATCH 2/3] mm: Part 2 of a", answer, message_id="r1@x", parent="a1-2@x", date=at(5)),
        mail("Re: [PATCH v2 0/3] mm: Series a", answer, message_id="r2@x", parent="a2-0@x", date=at(6)),
        mail("[PATCH 2/3] mm: Part 2 again", DIFF, message_id="again@x", parent="a1-0@x", date=at(7)),
        *posting(2, name="u", threaded=False),
    ]


def test_result_depends_neither_on_order_nor_on_how_often_it_is_made(linux_mm: MailingList) -> None:
    store(linux_mm, *conversation())
    group_stale()
    expected, told = facts(), reasons()
    assert [(s["message_id"], s["complete"]) for s in expected if s["complete"]] == [
        ("a1-0@x", True),
        ("a2-0@x", True),
        ("u1-0@x", True),
    ]
    assert expected[0]["trailers"] == ["Signed-off-by: Ada Author <ada@example.org>", *REVIEWED]
    assert expected[0]["superseded_by"] == "a2-0@x"
    for seed in range(4):
        Series.objects.update(superseded_by=None)
        for model in (Patch, Series, Message, ThreadMember, Thread):
            model.objects.all().delete()
        mails = conversation()
        chance = random.Random(seed)  # noqa: S311 (a shuffle that can be repeated)
        chance.shuffle(mails)
        # The second try at a place comes late, as the rule for whole series is that they keep their patches.
        mails.sort(key=lambda raw: b"again@x" in raw)
        for raw in mails:
            store(linux_mm, raw)
            if chance.random() < seed / 4:
                group_stale()
        group_stale()
        assert facts() == expected
        assert reasons() == told


REVIEWED = ["Reviewed-by: Ada Author <ada@example.org>"]


def test_patches_whose_thread_is_not_known_yet_join_when_the_parent_comes(linux_mm: MailingList) -> None:
    """They answer two letters that nobody has seen: only these say that they belong together."""
    one = mail("[PATCH 1/2] mm: One", DIFF, message_id="1@x", parent="left@x", date=at(0))
    two = mail("[PATCH 2/2] mm: Two", DIFF, message_id="2@x", parent="right@x", date=at(60))
    deliver(linux_mm, one, two)
    assert Thread.objects.count() == Series.objects.count() == 2
    deliver(linux_mm, mail("[PATCH 0/2] a plan", message_id="left@x", parent="plan@x"))
    deliver(linux_mm, mail("[PATCH 0/2] a plan", message_id="right@x", parent="plan@x"))
    assert Thread.objects.count() == 1
    assert set(Message.objects.values_list("thread", flat=True)) == set(Thread.objects.values_list("pk", flat=True))
    assert set(ThreadMember.objects.values_list("thread", flat=True)) == set(
        Thread.objects.values_list("pk", flat=True)
    )


def test_trailers_without_end_are_kept_up_to_some_kilobytes(linux_mm: MailingList) -> None:
    """A stranger's mail of 200 kB made a row of half a megabyte, which lists of 500 series read."""
    many = "".join(f"Acked-by: {'A' * 900} <a{number}@example.org>\n" for number in range(200))
    own = posting(2)[1].replace(b"Signed-off-by: Ada", many.encode() + b"Signed-off-by: Ada")
    answers = [
        mail(
            "Re: mm: Series a",
            f"Acked-by: {'B' * 900} <b{n}@x>\n",
            sender=f"{'B' * 900} <b{n}@x>",
            message_id=f"r{n}@x",
            parent="a1-0@x",
        )
        for n in range(40)
    ]
    store(linux_mm, posting(2)[0], own, posting(2)[2], *answers)
    group_stale()
    assert len(Message.objects.get(message_id="a1-1@x").trailers) == 8
    assert [sum(map(len, patch.trailers)) < 13_000 for patch in Patch.objects.all()] == [True, True]
    assert sum(map(len, Series.objects.get().trailers)) < 50_000


def test_answers_make_a_thread_stale_only_with_trailers(linux_mm: MailingList) -> None:
    deliver(linux_mm, *posting(2))
    store(linux_mm, mail("Re: [PATCH 1/2] mm: Part 1 of a", "Hm.\n", message_id="r1@x", parent="a1-1@x"))
    assert not Thread.objects.filter(stale=True).exists()
    store(linux_mm, mail("Re: [PATCH 1/2] mm: Part 1 of a", f"{REVIEWED[0]}\n", message_id="r2@x", parent="r1@x"))
    assert Thread.objects.filter(stale=True).exists()
    group_stale()
    assert [p.trailers[1:] for p in Patch.objects.all()] == [REVIEWED, []]


def test_tag_in_somebody_elses_name_or_in_quoted_text_does_not_count(linux_mm: MailingList) -> None:
    body = "> Reviewed-by: Ada Author <ada@example.org>\n\nAcked-by: Somebody <some@example.org>\n"
    deliver(linux_mm, *posting(1), mail("Re: x", body, message_id="r@x", parent="a1-1@x"))
    assert Series.objects.get().trailers == ["Signed-off-by: Ada Author <ada@example.org>"]


def test_two_mails_with_one_message_id_are_both_kept_and_explained(linux_mm: MailingList) -> None:
    deliver(linux_mm, *posting(2))
    (other, foreign) = deliver(
        linux_mm,
        posting(2)[1].replace(b"Do this.", b"Do that."),
        posting(2)[1].replace(b"Part 1 of a", b"Another subject"),
    )
    assert Message.objects.filter(message_id="a1-1@x").count() == 3
    assert other.reason == "another mail with this Message-ID and subject was here first"
    assert Patch.objects.get(message=foreign).series.state == Series.State.INCOMPLETE
    series = Series.objects.get(state=Series.State.READY)
    assert [p.message.subject for p in series.patches.all()] == [f"[PATCH {i}/2] mm: Part {i} of a" for i in (1, 2)]


def test_parts_over_three_days_in_reverse_are_one_series(linux_mm: MailingList) -> None:
    for day, raw in enumerate(reversed(posting(6))):
        store_message(mailing_list=linux_mm, raw=raw, received_at=ARRIVED + timedelta(hours=12 * day))
        group_stale()
        assert Series.objects.count() == 1
    series = Series.objects.get()
    assert (series.state, series.received_at, series.patches.count()) == (Series.State.HELD, ARRIVED, 6)
    assert series.cover is not None


def test_mails_that_answer_each_other_in_a_circle_are_one_thread(linux_mm: MailingList) -> None:
    circle = [
        mail(f"[PATCH {i}/3] mm: Round {i}", DIFF, message_id=f"c{i}@x", parent=f"c{i % 3 + 1}@x", date=at(i))
        for i in (1, 2, 3)
    ]
    answers = [
        mail("Re: x", f"{REVIEWED[0]}\n", message_id=f"r{i}@x", parent=f"r{(i + 1) % 5}@x", date=at(9))
        for i in range(5)
    ]
    deliver(linux_mm, *circle, *answers)
    assert Thread.objects.filter(messages__message_id="c1@x").count() == 1
    assert Series.objects.get().patches.count() == 3
    assert set(reasons().values()) == {""}


def costs(work: Callable[[], object]) -> int:
    with CaptureQueriesContext(connection) as asked:
        work()
    return len(asked)


@pytest.mark.django_db
@pytest.mark.parametrize("shape", ["series", "reversed", "discussion"])
def test_work_grows_with_the_mails_and_no_faster(linux_mm: MailingList, shape: str) -> None:
    """The same queries for a mail of a long thread as of a short one, and nearly the same for a round of grouping."""

    def thread(size: int) -> list[bytes]:
        if shape == "discussion":
            root = mail(f"[PATCH] mm: Root {size}", DIFF, message_id=f"{size}@x")
            return [root, *(answer(i, size) for i in range(size))]
        mails = posting(size, name=f"n{size}-")
        return mails[::-1] if shape == "reversed" else mails

    def answer(number: int, size: int) -> bytes:
        parent = f"{size}-{number // 3}@x" if number > 2 else f"{size}@x"
        trailer = f"Tested-by: T{number} <ada@example.org>\n"
        return mail("Re: [PATCH] mm: Root", trailer, message_id=f"{size}-{number}@x", parent=parent)

    small, large = thread(20), thread(120)
    # The first one finds no thread, of which more would be asked.
    for mails in (small, large):
        store(linux_mm, mails[0])
    per_mail = [costs(lambda m=mails[1:]: store(linux_mm, *m)) / (len(mails) - 1) for mails in (small, large)]  # type: ignore[misc]
    # A cover letter, which has no paths to store, weighs more among few.
    assert per_mail[1] <= per_mail[0] + 1 / len(small)
    Thread.objects.update(stale=False)
    rounds = []
    for mails in (small, large):
        own = Message.objects.filter(raw=mails[0]).values("thread")
        Thread.objects.filter(pk__in=own).update(stale=True)
        rounds.append(costs(group_stale))
    assert rounds[1] <= rounds[0] + 2
    assert Series.objects.filter(state=Series.State.HELD).count() == 2


def test_killed_between_reading_and_writing_is_done_again(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(linux_mm, *conversation())
    real = write_versions

    def dies(*args: object) -> None:
        real(*args)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr("server.sources.series.formation.write_versions", dies)
    with pytest.raises(KeyboardInterrupt):
        group_stale()
    assert not Series.objects.exists()
    monkeypatch.setattr("server.sources.series.formation.write_versions", real)
    sweep_series()
    assert [s["complete"] for s in facts()].count(True) == 3
    assert not Thread.objects.filter(stale=True).exists()


def test_thread_that_no_rule_foresaw_stops_no_other(linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch) -> None:
    store(linux_mm, *posting(2), *posting(3, name="b"))
    real = write_versions

    def fails(*args: object) -> bool:
        if not Series.objects.exists():
            Series.objects.create(version=-1, total=1, submitted_at=NOON, mailing_list=linux_mm)
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("server.sources.series.formation.write_versions", fails)
    assert group_stale(limit=1) == 1
    monkeypatch.setattr("server.sources.series.formation.write_versions", real)
    group_stale()
    assert Series.objects.get().root_message_id == "b1-0@x"
    assert reasons()["a1-1@x"].startswith("could not be made part of a series: ")
    Thread.objects.update(stale=True)
    group_stale()
    assert set(reasons().values()) == {""}
    assert Series.objects.count() == 2


def threads_of() -> list[int | None]:
    """Of all mails, in the order in which they came: which threads are one."""
    found = list(Message.objects.order_by("pk").values_list("thread", flat=True))
    return [found.index(thread) for thread in found]


def test_mail_that_is_no_patch_connects_nothing(linux_mm: MailingList) -> None:
    one, other = posting(1), posting(1, 2, name="b")
    store(linux_mm, *one, *other)
    before = threads_of()
    store(linux_mm, mail("Re: both", "Hm.", message_id="both@x", headers="References: <a1-0@x> <b2-0@x>\n"))
    assert len(set(before)) == 2
    assert threads_of() == [*before, before[-1]]


def test_thread_that_is_longer_than_people_make_them_takes_no_more(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(linux_mm, *posting(3))
    monkeypatch.setattr("server.sources.messages.storage._LONGEST", 4)
    late = [
        mail(f"[PATCH v2 {n}/2] mm: {n}", DIFF, message_id=f"late{n}@x", parent=parent)
        for n, parent in ((1, "a1-0@x"), (2, "late1@x"))
    ]
    store(linux_mm, *late)
    assert threads_of() == [0, 0, 0, 0, 4, 4]
    group_stale()
    assert Series.objects.get(version=2).patches.count() == 2


def test_thread_whose_time_is_over_goes_on_when_its_turn_comes_again(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = mail("[PATCH] mm: 0", DIFF, message_id="p0@x")
    store(linux_mm, first, *(mail(f"[PATCH] mm: {n}", DIFF, message_id=f"p{n}@x", parent="p0@x") for n in range(1, 4)))
    real = formation._write

    def slowly(rows: ThreadRows, *about: Any) -> bool:
        done = real(rows, *about)
        rows.pause = 0.0
        return done

    monkeypatch.setattr(formation, "_write", slowly)
    made: list[int] = []
    while Thread.objects.filter(stale=True).exists():
        assert len(made) < 9
        group_stale(limit=1)
        made.append(Series.objects.exclude(state=Series.State.INCOMPLETE).count())
    assert made == [1, 2, 3, 4, 4]
    assert not Begun.objects.exists()


def test_late_cover_letter_is_taken_from_the_author_only(linux_mm: MailingList) -> None:
    cover, *patches = posting(2)
    deliver(linux_mm, *patches)
    series = Series.objects.get()
    assert (series.state, series.root_message_id) == (Series.State.READY, "a1-1@x")
    eve = cover.replace(b"Ada Author <ada@example.org>", b"Eve <eve@example.org>").replace(b"a1-0@x", b"eve@x")
    (forged,) = deliver(linux_mm, eve.replace(b"\n\n", b"\nIn-Reply-To: <a1-0@x>\n\n", 1))
    assert Series.objects.get(pk=series.pk).cover is None
    deliver(linux_mm, cover.replace(b"\n\nText.", b"\n\nText.\n\nchange-id: 20261101-late", 1))
    series.refresh_from_db()
    # It runs already: nobody proves the sender of the letter any more, so what it announces does not count.
    assert (series.root_message_id, series.subject, series.change_id) == ("a1-0@x", "mm: Series a", "")
    assert Message.objects.get(pk=forged.pk).kind == Message.Kind.COVER


def test_late_cover_letter_of_a_series_that_waits_is_believed_and_checked(linux_mm: MailingList) -> None:
    cover, *patches = posting(2)
    store(linux_mm, *patches)
    group_stale()
    Series.objects.update(checked_at=NOON)
    store(linux_mm, cover.replace(b"\n\nText.", b"\n\nText.\n\nchange-id: 20261101-late", 1))
    group_stale()
    series = Series.objects.get()
    assert (series.state, series.checked_at, series.change_id) == (Series.State.HELD, None, "20261101-late")


@pytest.mark.parametrize("grouped", [True, False], ids=["grouped before", "grouped after"])
def test_deleted_patch_counts_as_there_whenever_it_was_deleted(linux_mm: MailingList, *, grouped: bool) -> None:
    mails = posting(2)
    store(linux_mm, *mails[:2])
    if grouped:
        group_stale()
    forget_message(mailing_list=linux_mm, blob=Message.objects.get(message_id="a1-1@x").blob)
    group_stale()
    assert Series.objects.get().reason == "1 of 2 patches; the archive deleted <a1-1@x>"
    store(linux_mm, mails[2])
    group_stale()
    series = Series.objects.get()
    assert (series.state, series.reason) == (Series.State.REFUSED, "the archive deleted <a1-1@x>")
    assert [p.message.files for p in series.patches.order_by("index")] == [0, 1]


def test_series_over_two_lists_is_of_the_list_that_had_it_first(linux_mm: MailingList) -> None:
    other = build_list("linux-kernel", tree=linux_mm.tree, proof=MailingList.Proof.ARCHIVE)
    for raw in posting(2):
        store_message(mailing_list=other, raw=raw, received_at=ARRIVED + timedelta(seconds=9))
        store_message(mailing_list=linux_mm, raw=raw, received_at=ARRIVED)
    group_stale()
    assert Series.objects.get().mailing_list == linux_mm
    copies = Message.objects.filter(mailing_list=other)
    assert set(copies.values_list("reason", flat=True)) == {"another copy of a mail that is here already"}
