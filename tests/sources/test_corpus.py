"""Real list mails, where the corpus lies beside the repository: nothing crashes, series as b4 sees them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from server.sources.imports import mails_of
from server.sources.messages import store_message
from server.sources.models import MailingList, Message, Series

_ROOT = Path(__file__).resolve().parents[2]
CORPUS = _ROOT.parent / "shared" / "mail-corpus"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the mail corpus is not beside this repository")

# Measured: 155 of 172. The others were looked at one by one: b4 mixes several postings of one version in a thread into
# one series, or ignores a version that only the cover letter names.
FLOOR = 150


@dataclass(frozen=True)
class Expected:
    """One version of a posting as b4 sees it."""

    file: str
    version: int
    total: int
    complete: bool
    message_ids: tuple[str, ...]


def oracle() -> Iterator[Expected]:
    views: dict[str, Any] = json.loads((CORPUS / "oracle-b4.json").read_bytes())
    for file, view in views.items():
        for version, series in view.get("series", {}).items():
            ids = tuple(patch["msgid"] for patch in series["patches"] if patch)
            yield Expected(file, int(version), series["expected"], series["complete"], ids)


def seen(file: str, series: Series) -> Expected:
    ids = tuple(p.message.message_id for p in series.patches.select_related("message").order_by("index"))
    complete = series.state != Series.State.INCOMPLETE
    return Expected(file, series.version, series.total, complete, ids)


class _Undo(Exception):  # noqa: N818 (ends a transaction)
    pass


def test_series_of_real_threads_are_those_that_b4_finds(linux_mm: MailingList) -> None:
    wanted = list(oracle())
    found: set[Expected] = set()
    for file in {e.file for e in wanted}:
        # Each file by itself: the corpus holds the same thread more than once.
        try:
            with transaction.atomic():
                for raw in mails_of(CORPUS / file):
                    store_message(mailing_list=linux_mm, raw=raw)
                found |= {seen(file, series) for series in Series.objects.all()}
                raise _Undo
        except _Undo:
            pass
    missing = [e for e in wanted if e not in found]
    print(f"{len(wanted) - len(missing)} of {len(wanted)} series as b4 sees them")  # noqa: T201
    assert len(wanted) - len(missing) >= FLOOR, missing


def test_every_mail_of_the_corpus_is_stored(linux_mm: MailingList) -> None:
    blobs = set()
    for file in sorted(CORPUS.rglob("*.mbox")):
        for raw in mails_of(file):
            message = store_message(mailing_list=linux_mm, raw=raw)
            assert bytes(message.raw) == raw
            blobs.add((message.message_id, message.blob))
    assert Message.objects.count() == len(blobs)
    assert not Message.objects.filter(reason__startswith="could not be made part of a series").exists()
    for message in Message.objects.filter(kind=Message.Kind.UNUSABLE):
        assert message.reason
    unplaced = Message.objects.filter(kind__in=["patch", "cover"], patches=None, reason="")
    assert not unplaced.exclude(pk__in=Series.objects.values("cover")).exists()
