"""The test mails of patchwork and b4, where they lie beside the repository: read as those projects expect."""

from collections.abc import Iterator
from datetime import UTC, datetime
from email import message_from_bytes
from email.utils import parseaddr
from pathlib import Path

import pytest

from bench.mail.ours import Collected, series_in
from server.sources.mail.parser import ParsedMail, parse_mail
from server.sources.messages.mailboxes import mails_of
from tests.sources.corpus_facts import B4, PATCHWORK_DIFFS, PATCHWORK_SERIES, Changed, Followed, Posted

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "mail-corpus"
NOW = datetime(2026, 11, 22, tzinfo=UTC)
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the mail corpus is not beside this repository")


def parsed(path: Path) -> list[ParsedMail]:
    return [parse_mail(raw, blob="ab" * 20, received_at=NOW) for raw in mails_of(path)]


def numbered(series: Collected, mails: list[ParsedMail]) -> Posted:
    number = {id(m): n for n, m in enumerate(mails)}
    version = series.version
    cover = number[id(series.cover)] if series.cover else None
    patches = tuple(number[id(p)] for p in series.patches)
    return Posted(version.version, version.total, cover, patches, version.complete)


def agreements() -> Iterator[tuple[str, bool]]:
    """Every single thing that the two projects say of their mails, and whether we see the same."""
    for name, wanted in PATCHWORK_SERIES.items():
        yield from _series_facts(name, CORPUS / "patchwork" / "series" / f"{name}.mbox", wanted)
    for name, diff in PATCHWORK_DIFFS.items():
        (mail,) = parsed(CORPUS / "patchwork" / "mail" / f"{name}.mbox")
        yield f"{name}: diff", _shows(mail, diff)
        yield f"{name}: is a patch", (mail.kind == "patch") == (diff is not None)
    for name, followed in B4.items():
        yield from _followed_facts(name, followed)
    for path in sorted((CORPUS / "patchwork" / "fuzz").glob("*.mbox")):
        yield f"{path.stem}: read", bool(parsed(path))


def _series_facts(name: str, path: Path, wanted: tuple[Posted, ...]) -> Iterator[tuple[str, bool]]:
    mails = parsed(path)
    found = [numbered(s, mails) for s in series_in(mails)]
    yield f"{name}: number of series", len(found) == len(wanted)
    for series in wanted:
        yield f"{name}: {series}", series in found
        for number in series.patches:
            yield f"{name}: diff of {number}", bool(mails[number].diff)
    senders = [parseaddr(message_from_bytes(raw)["From"])[1] for raw in mails_of(path)]
    for number, (mail, sender) in enumerate(zip(mails, senders, strict=True)):
        yield f"{name}: sender of {number}", mail.sender_address == sender


def _shows(mail: ParsedMail, wanted: Changed | None) -> bool:
    if wanted is None or not mail.diff:
        return wanted is None and not mail.diff
    diff, first = mail.diff, mail.diff.files[0]
    counts = ((wanted.files, len(diff.files)), (wanted.insertions, diff.insertions), (wanted.deletions, diff.deletions))
    same = all(said in {-1, seen} for said, seen in counts)
    return same and wanted.first in {first.old_path, first.new_path} and first.binary == wanted.binary


def _followed_facts(name: str, wanted: Followed) -> Iterator[tuple[str, bool]]:
    mails = parsed(CORPUS / "b4" / f"{name}.mbox")
    *_, newest = series_in(mails)
    yield f"{name}: {wanted.series}", numbered(newest, mails) == wanted.series
    yield f"{name}: files", tuple(p.diff.files[0].new_path for p in newest.patches) == wanted.files
    for number, count in wanted.replies.items():
        yield f"{name}: trailers of {number}", len(mails[number].trailers) == count


def test_mails_are_read_as_patchwork_and_b4_expect() -> None:
    found = list(agreements())
    differences = [fact for fact, same in found if not same]
    print(f"{len(found) - len(differences)} of {len(found)} facts agree")  # noqa: T201 (the figure is the result)
    assert not differences
