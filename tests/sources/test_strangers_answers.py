"""One mail of a stranger, under his own name or the author's, does not stop what the author has sent and proved."""

from collections.abc import Callable
from datetime import timedelta
from email.utils import format_datetime

import pytest

from server.core import clock
from server.dashboard.rows.postings import approval_of
from server.sources.messages.storage import store_message
from server.sources.models import MailingList, Message, Series, Thread, TrustedSender
from server.sources.series.formation import group_stale
from server.sources.series.requests import sweep_series
from server.sources.trust.series_check import check_series, prove_loose
from tests.builders import build_list
from tests.sources.posting import DIFF, mail
from tests.sources.signing import Names, sign

State = Series.State
Sent = list[tuple[str, tuple[int | str, ...]]]
Rounds = Callable[[], None]
ADA = "Ada Author <ada@example.org>"
EVE = "Eve <eve@evil.org>"
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def public() -> MailingList:
    TrustedSender.objects.create(address="ada@example.org")
    return build_list()


@pytest.fixture
def rounds(sent_tasks: Sent) -> Rounds:
    """What workers do until nothing is left to do."""
    names = Names("example.org")

    def run() -> None:
        for _ in range(5):
            group_stale()
            for series in Series.objects.filter(state=State.HELD, checked_at=None):
                check_series(series=series, lookup=names)
            for task, arguments in list(sent_tasks):
                if task == "sources.prove_mail":
                    prove_loose(mail=Message.objects.get(pk=arguments[0]), lookup=names)
            sent_tasks.clear()

    return run


@pytest.fixture
def later(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> Rounds:
    """The same two hours later."""

    def run() -> None:
        real = clock.now
        monkeypatch.setattr(clock, "now", lambda: real() + timedelta(hours=2))
        Thread.objects.update(stale=True)
        sweep_series()
        rounds()

    return run


def ours(mark: str, name: str, *, parent: str = "", body: str = DIFF) -> bytes:
    return sign(theirs(mark, name, parent=parent, sender=ADA, body=body))


def theirs(mark: str, name: str, *, parent: str = "", sender: str = EVE, body: str = DIFF) -> bytes:
    text = "What this is for.\n" if " 0/" in mark else body
    subject = f"[{mark}] mm: Do {mark[-3:]}"
    return mail(subject, text, message_id=name, parent=parent, sender=sender, date=format_datetime(clock.now()))


def store(mailing_list: MailingList, *mails: bytes) -> None:
    for raw in mails:
        store_message(mailing_list=mailing_list, raw=raw)


def shown(**of: object) -> list[tuple[str, str, list[str]]]:
    rows = Series.objects.filter(author_address="ada@example.org", **of).order_by("version", "pk")
    return [
        (row.mark, row.state, list(row.patches.order_by("index").values_list("message__message_id", flat=True)))
        for row in rows
    ]


def pair() -> list[bytes]:
    patches = [ours(f"PATCH {index}/2", f"{index}@x", parent="0@x") for index in (1, 2)]
    return [ours("PATCH 0/2", "0@x"), *patches]


@pytest.mark.parametrize("sender", [EVE, ADA], ids=["own name", "forged"])
def test_patch_beyond_the_last_one_is_no_part_of_it(public: MailingList, rounds: Rounds, sender: str) -> None:
    store(public, *pair(), theirs("PATCH 3/2", "evil@y", parent="0@x", sender=sender))
    rounds()
    assert shown(state=State.READY) == [("", State.READY, ["1@x", "2@x"])]
    assert Series.objects.filter(patches__message__message_id="evil@y").count() == (sender == EVE)
    told = Message.objects.get(message_id="evil@y").reason
    assert told == (
        "" if sender == EVE else "its sender is not proved, but others of that sender are: it may be anybody's"
    )


def test_next_forged_mail_does_not_take_the_place_of_the_first(public: MailingList, rounds: Rounds) -> None:
    store(public, *pair(), theirs("PATCH 3/2", "evil@y", parent="0@x", sender=ADA))
    group_stale()
    check_series(series=Series.objects.get(), lookup=Names("example.org"))
    store(public, theirs("PATCH 3/2", "evil@z", parent="0@x", sender=ADA))
    rounds()
    assert shown(state=State.READY) == [("", State.READY, ["1@x", "2@x"])]


def test_authors_own_patch_beyond_the_last_one_still_counts(public: MailingList, rounds: Rounds) -> None:
    store(public, *pair(), ours("PATCH 3/2", "3@x", parent="0@x"))
    rounds()
    assert shown() == [("", State.READY, ["1@x", "2@x", "3@x"])]


def test_series_with_a_patch_more_than_announced_can_be_approved(public: MailingList, rounds: Rounds) -> None:
    TrustedSender.objects.all().delete()
    store(public, *pair(), ours("PATCH 3/2", "3@x", parent="0@x"))
    rounds()
    (series,) = Series.objects.all()
    approval = approval_of(series)
    assert (series.state, approval is not None) == (State.HELD, True)


def test_forged_second_patch_does_not_make_a_whole_one_the_first_of_two(public: MailingList, rounds: Rounds) -> None:
    store(public, ours("PATCH", "1@x"), theirs("PATCH 2/2", "evil@y", parent="1@x", sender=ADA))
    rounds()
    assert shown() == [("", State.READY, ["1@x"])]
    assert Series.objects.get().total == 1


@pytest.mark.parametrize("sender", [EVE, ADA], ids=["own name", "forged"])
@pytest.mark.parametrize("together", [True, False])
def test_answer_to_a_partial_reroll_is_no_part_of_it(
    public: MailingList, rounds: Rounds, later: Rounds, sender: str, *, together: bool
) -> None:
    store(public, *pair())
    rounds()
    store(public, ours("PATCH v2 2/2", "q@x", parent="2@x", body=DIFF.replace("large", "larger")))
    if not together:
        rounds()
    store(public, theirs("PATCH v2 1/2", "evil@y", parent="q@x", sender=sender))
    rounds()
    assert shown(state=State.READY) == [("", State.READY, ["1@x", "2@x"])]
    later()
    assert shown() == [("", State.SUPERSEDED, ["1@x", "2@x"]), ("v2", State.READY, ["1@x", "q@x"])]


def test_letter_of_a_stranger_is_none_of_patches_that_are_whole(public: MailingList, rounds: Rounds) -> None:
    """She answers a report with her patches; anybody can give his mail the Message-ID of that."""
    one, two = ours("PATCH 1/2", "1@x", parent="report@y"), ours("PATCH 2/2", "2@x", parent="1@x")
    store(public, theirs("PATCH 0/2", "report@y"), one, two)
    rounds()
    assert shown() == [("", State.READY, ["1@x", "2@x"])]


def test_colleague_s_patch_still_fills_the_place_that_is_free(
    public: MailingList, rounds: Rounds, later: Rounds
) -> None:
    store(public, *pair()[:2], theirs("PATCH 2/2", "bob@y", parent="0@x"))
    rounds()
    later()
    assert shown() == [("", State.HELD, ["1@x", "bob@y"])]


def test_mail_that_broke_on_its_way_stays_in_its_place(public: MailingList, rounds: Rounds) -> None:
    store(public, *pair()[:2], theirs("PATCH 2/2", "2@x", parent="0@x", sender=ADA))
    rounds()
    assert shown() == [("", State.HELD, ["1@x", "2@x"])]


@pytest.mark.parametrize("subject", ["PATCH", "PATCH 0/2"])
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_mail_with_the_message_id_of_the_first_one_keeps_nothing_out(
    public: MailingList, rounds: Rounds, subject: str, *, first: bool
) -> None:
    date = format_datetime(clock.now() - timedelta(hours=1))
    evil = theirs(subject, "0@x").replace(format_datetime(clock.now()).encode(), date.encode())
    evil = evil.replace(b"mm: Do", b"mm: Else")
    store(public, *([evil, *pair()] if first else [*pair(), evil]))
    rounds()
    assert shown() == [("", State.READY, ["1@x", "2@x"])]
    assert Series.objects.get(state=State.READY).first_message_id == "0@x"
    assert not Message.objects.exclude(reason="").exists()
    Thread.objects.update(stale=True)
    rounds()
    assert Series.objects.count() == 2


def test_single_patch_with_the_same_message_id_does_not_keep_the_other_out(public: MailingList, rounds: Rounds) -> None:
    store(public, theirs("PATCH", "1@x").replace(b"mm: Do", b"mm: Else"), ours("PATCH", "1@x"))
    rounds()
    assert shown() == [("", State.READY, ["1@x"])]


@pytest.mark.parametrize("name", ["0@x", "1@x"])
def test_mail_of_another_sender_in_another_list_is_no_copy(public: MailingList, rounds: Rounds, name: str) -> None:
    other = build_list("other")
    mark = "PATCH 0/2" if name == "0@x" else "PATCH 1/2"
    evil = theirs(mark, name, parent="" if name == "0@x" else "0@x")
    store_message(mailing_list=other, raw=evil, received_at=clock.now() - timedelta(seconds=30))
    group_stale()
    store(public, *pair())
    rounds()
    assert shown(state=State.READY) == [("", State.READY, ["1@x", "2@x"])]
    assert Series.objects.get(state=State.READY).cover is not None


def test_single_patch_of_another_sender_in_another_list_is_no_copy(public: MailingList, rounds: Rounds) -> None:
    store(build_list("other"), theirs("PATCH", "1@x"))
    group_stale()
    store_message(mailing_list=public, raw=ours("PATCH", "1@x"), received_at=clock.now() - timedelta(seconds=30))
    rounds()
    assert shown() == [("", State.READY, ["1@x"])]


def test_copy_whose_sender_a_list_rewrote_is_a_copy(public: MailingList, rounds: Rounds) -> None:
    other = build_list("other", address="other@lists.example.org")
    raw = ours("PATCH", "1@x")
    store(public, raw)
    store(other, raw.replace(ADA.encode(), b"Ada Author via other <other@lists.example.org>"))
    rounds()
    assert shown() == [("", State.READY, ["1@x"])]
    assert Series.objects.count() == 1
    assert Message.objects.get(mailing_list=other).reason == "another copy of a mail that is here already"
