"""Several processes read lists and make series at once: nothing gets mixed, and nobody waits for ever."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from server.sources.messages.storage import store_message
from server.sources.models import MailingList, Message, Series, Thread, ThreadMember
from server.sources.series.formation import group_stale
from tests.builders import build_list
from tests.sources.posting import DIFF, mail

SERIES, PATCHES = 6, 4


def posted(series: int) -> list[bytes]:
    """A series whose patches name only each other, so that storing joins threads all the time."""
    return [
        mail(
            f"[PATCH {index}/{PATCHES}] mm: Part {index} of {series}",
            DIFF,
            message_id=f"{series}-{index}@x",
            parent=f"{series}-{index - 1}@x",
        )
        for index in range(1, PATCHES + 1)
    ]


@pytest.mark.django_db(transaction=True)
def test_two_readers_and_two_groupers_at_once_make_what_one_makes() -> None:
    lists = [build_list(name) for name in ("linux-mm", "linux-kernel")]
    mails = [raw for series in range(SERIES) for raw in posted(series)]

    def read(mailing_list: MailingList, order: list[bytes]) -> None:
        try:
            for raw in order:
                store_message(mailing_list=mailing_list, raw=raw)
        finally:
            connection.close()

    def group() -> None:
        try:
            for _ in range(10):
                group_stale()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(read, lists[0], mails), pool.submit(read, lists[1], mails[::-1])]
        work += [pool.submit(group) for _ in range(2)]
        for done in work:
            done.result(timeout=60)
    group_stale()
    assert Message.objects.count() == 2 * len(mails)
    assert Thread.objects.count() == SERIES
    assert set(ThreadMember.objects.values_list("thread", flat=True)) == set(
        Thread.objects.values_list("pk", flat=True)
    )
    assert [series.patches.count() for series in Series.objects.all()] == [PATCHES] * SERIES
    assert set(Series.objects.values_list("state", flat=True)) == {Series.State.HELD}
    copies = Message.objects.filter(reason="another copy of a mail that is here already")
    assert copies.count() == len(mails)
