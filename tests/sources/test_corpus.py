"""Real list mails, where the corpus lies beside the repository: nothing crashes, series as b4 sees them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bench.mail.ours import series_in
from server.sources.mail.parser import parse_mail
from server.sources.messages.mailboxes import mails_of
from server.sources.messages.storage import store_message
from server.sources.models import MailingList, Message, Series
from server.sources.series.formation import group_stale

_ROOT = Path(__file__).resolve().parents[2]
CORPUS = _ROOT.parent / "shared" / "mail-corpus"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the mail corpus is not beside this repository")

# Measured: 152 of 172. The others were looked at one by one: b4 mixes several postings of one version in a thread into
# one series, ignores a version that only the cover letter names, does not find the numbers that patches lost, and makes
# series of mails without a sender.
FLOOR = 152


@dataclass(frozen=True)
class Expected:
    """One version of a posting as b4 sees it."""

    file: str
    version: int
    total: int
    complete: bool
    message_ids: tuple[str, ...]
    base_commit: str


def oracle() -> Iterator[Expected]:
    views: dict[str, Any] = json.loads((CORPUS / "oracle-b4.json").read_bytes())
    for file, view in views.items():
        for version, series in view.get("series", {}).items():
            ids = tuple(patch["msgid"] for patch in series["patches"] if patch)
            base = series["base_commit"] or ""
            yield Expected(file, int(version), series["expected"], series["complete"], ids, base)


def seen(file: str) -> Iterator[Expected]:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    mails = [parse_mail(raw, blob="ab" * 20, received_at=now) for raw in mails_of(CORPUS / file)]
    for found in series_in(mails):
        ids = tuple(p.message_id for p in found.patches)
        base = next((m.base_commit for m in [found.cover, *found.patches] if m and m.base_commit), "")
        version = found.version
        yield Expected(file, version.version, version.total, version.complete, ids, base)


def test_series_of_real_threads_are_those_that_b4_finds() -> None:
    wanted = list(oracle())
    found = {series for file in {e.file for e in wanted} for series in seen(file)}
    missing = [e for e in wanted if e not in found]
    print(f"{len(wanted) - len(missing)} of {len(wanted)} series as b4 sees them")  # noqa: T201
    assert len(wanted) - len(missing) >= FLOOR, missing


@pytest.mark.real
@pytest.mark.django_db
def test_every_test_mail_of_other_projects_is_stored(linux_mm: MailingList) -> None:
    blobs = set()
    # The lists' mails are many: bench/mail/__main__.py stores them.
    for file in sorted([*CORPUS.glob("patchwork/*/*.mbox"), *CORPUS.glob("b4/*.mbox")]):
        for raw in mails_of(file):
            message = store_message(mailing_list=linux_mm, raw=raw)
            assert bytes(message.raw) == raw
            blobs.add((message.message_id, message.blob))
    group_stale()
    assert Message.objects.count() == len(blobs)
    for message in Message.objects.filter(kind=Message.Kind.UNUSABLE):
        assert message.reason
    unplaced = Message.objects.filter(kind__in=["patch", "cover"], patches=None, reason="")
    assert not unplaced.exclude(pk__in=Series.objects.values("cover")).exists()
