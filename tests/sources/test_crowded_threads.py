"""What strangers can make a thread cost: work grows with its mails and no faster."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from server.sources.mail import postings
from server.sources.mail.postings import Posting, parse_subject
from server.sources.messages.storage import store_message
from server.sources.models import MailingList, Series, Thread
from server.sources.series.formation import group_stale
from server.sources.series.late_mails import Around
from server.sources.series.thread_rows import Answer, Followups
from server.sources.trust.series_check import check_series
from tests.builders import build_list
from tests.sources.posting import DIFF, mail

pytestmark = pytest.mark.django_db
State = Series.State
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
def public() -> MailingList:
    """Anybody writes to it."""
    return build_list()


def crowd(public: MailingList, total: int, name: str = "p") -> Series:
    """An unsigned series that was checked, so that others are asked for the places of all its patches."""
    for index in range(1, total + 1):
        parent = f"{name}.1@x" if index > 1 else ""
        raw = mail(f"[PATCH {index}/{total}] mm: {index}", DIFF, message_id=f"{name}.{index}@x", parent=parent)
        store_message(mailing_list=public, raw=raw)
    group_stale()
    series = Series.objects.get(root_message_id=f"{name}.1@x")
    check_series(series=series)
    series.refresh_from_db()
    assert (series.state, series.patches.filter(message__authentic=False).count()) == (State.HELD, total)
    return series


def counted_calls(monkeypatch: pytest.MonkeyPatch, place: str, real: Callable[..., Any]) -> list[object]:
    calls: list[object] = []

    def counts(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return real(*args, **kwargs)

    monkeypatch.setattr(place, counts)
    return calls


def test_subject_of_each_mail_is_read_equally_often_in_a_long_series(
    public: MailingList, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted_calls(monkeypatch, "server.sources.series.thread_rows.parse_subject", parse_subject)
    each = []
    for total in (5, 20):
        crowd(public, total, name=f"n{total}")
        calls.clear()
        group_stale()
        each.append(len(calls) / total)
    assert each[0] == each[1] >= 1
    assert not Thread.objects.filter(stale=True).exists()


@pytest.mark.parametrize("mark", ["[]", "[x]", "[1/2]", "[" * 90 + "]" * 90])
def test_marks_without_end_are_read_at_the_beginning_of_a_subject_only(
    monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    tried = counted_calls(monkeypatch, "server.sources.mail.postings._end_of_mark", postings._end_of_mark)
    marks = parse_subject(f"[PATCH v2 3/7] {mark * (7900 // len(mark))} mm: Do this")
    assert (marks.patch, marks.version, marks.title.endswith("mm: Do this")) == (True, 2, True)
    assert len(tried) <= 20


def test_few_words_of_marks_without_end_are_kept() -> None:
    words = "[" + "a," * 99 + "]"
    marks = parse_subject(f"[PATCH 1/1]{words * 38} mm: Do this")
    assert (marks.index, len(marks.tags)) == (1, 10)
    assert parse_subject("[RFC PATCH bpf-next v3 2/3] bpf: Do this").tags == ("bpf-next",)


def test_answers_to_a_cover_letter_are_gone_through_for_each_patch_only_as_far_as_they_count() -> None:
    answers = [Answer(("c@x",), tuple(f"Link: https://x/{n}/{i}" for i in range(200))) for n in range(40)]
    found = Followups(answers, {}, frozenset({"c@x"})).to("c@x")
    assert found[:500] == [trailer for answer in answers for trailer in answer.trailers][:500]
    assert len(found) < 1000


def posted(name: str, *above: str, minutes: int = 0) -> Posting:
    at = NOON + timedelta(minutes=minutes)
    return Posting(1, name, above, "ada@example.org", at, version=1, index=1, total=2)


def test_mail_stands_where_a_patch_does_by_its_id_by_its_parent_or_by_its_time() -> None:
    answer, root = posted("own@x", "cover@x"), posted("own@x")
    around = Around(Counter(["own@x", "other@x"]), [NOON, NOON + timedelta(hours=2)])
    assert around.takes(posted("own@x", "far@x"), answer)
    assert around.takes(posted("a@x", "cover@x", "far@x"), answer)
    assert around.takes(posted("a@x", "other@x"), answer)
    assert not around.takes(posted("a@x", "far@x", "cover@x"), answer)
    assert not around.takes(posted("a@x", "own@x", "cover@x"), answer)
    assert Around(Counter(["own@x", "own@x"]), [NOON]).takes(posted("a@x", "own@x"), answer)
    assert [around.takes(posted("a@x", minutes=m), root) for m in (-11, -10, 10, 11, 109, 110, 131)] == [
        *(False, True, True, False, False, True, False)
    ]
    assert not around.takes(posted("a@x"), answer)
