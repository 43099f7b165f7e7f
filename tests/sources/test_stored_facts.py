"""What a series needs to know of a mail is read when it comes, stored in bounds, and gone when its text must go."""

from typing import Any

import pytest

from server.sources.bases.candidates import clues_of
from server.sources.messages import storage
from server.sources.messages.storage import forget_message, read_mail, restore_message, store_message
from server.sources.models import ChangedPath, MailingList, Message, Patch, Series
from server.sources.series.formation import group_stale
from server.sources.series.requests import all_series_json, touching
from server.sources.trust.senders import Maintainers
from tests.builders import build_series
from tests.sources.posting import DIFF, deliver, mail

NEEDS = "\n\nbase-commit: 0123456789abcdef0123\nchange-id: 20261101-one-abc\nprerequisite-change-id: 20261001-two-def\n"
TWO_FILES = (
    "From: Bob Builder <bob@example.org>\n\n"
    + DIFF
    + "\n"
    + DIFF[DIFF.index("diff --git") :].replace("README", "mm/one.c")
)
LEARNED = ("author_name", "author_address", "files", "insertions", "deletions", "paths")
OF_SERIES = ("recipients", "base_commit", "change_id", "prerequisites")


def posted() -> list[bytes]:
    return [
        mail("[PATCH 0/1] mm: Both", f"Text.{NEEDS}", message_id="0@x", headers="Cc: Mm@Example.org\n"),
        mail("[PATCH 1/1] mm: One", TWO_FILES, message_id="1@x", parent="0@x"),
    ]


def learned(message_id: str, *names: str) -> dict[str, Any]:
    return dict(Message.objects.values(*(names or (*LEARNED, *OF_SERIES))).get(message_id=message_id))


def test_series_is_made_without_reading_any_text_again(linux_mm: MailingList) -> None:
    for raw in posted():
        store_message(mailing_list=linux_mm, raw=raw)
    Message.objects.update(raw=b"")
    group_stale()
    series = Series.objects.get()
    [told] = all_series_json()
    assert (told["base_commit"], told["change_id"]) == ("0123456789abcdef0123", "20261101-one-abc")
    assert told["prerequisites"] == ["change-id:20261001-two-def"]
    [patch] = told["patches"]
    assert patch["author"] == "Bob Builder <bob@example.org>"
    assert patch["diffstat"] == {"files": 2, "insertions": 2, "deletions": 2}
    assert Maintainers(series).paths == ["README", "mm/one.c"]
    assert clues_of(series, []).addresses == {"linux-mm@example.org", "mm@example.org"}


def test_mails_that_are_part_of_no_series_cost_no_more_than_they_did(linux_mm: MailingList) -> None:
    store_message(mailing_list=linux_mm, raw=mail("Re: [PATCH] mm: One", TWO_FILES + NEEDS, parent="1@x"))
    assert not any(learned("one@example.org").values())


@pytest.mark.parametrize("bound", ["_MOST_PATHS", "_LONGEST_PATH", "_MOST_OF_PATHS"])
def test_paths_beyond_any_bound_are_not_stored_in_part_and_nobody_maintains_them(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """Whoever maintains README must not be taken for one who maintains all."""
    monkeypatch.setattr(storage, bound, {"_MOST_PATHS": 1, "_LONGEST_PATH": 7, "_MOST_OF_PATHS": 13}[bound])
    deliver(linux_mm, *posted())
    assert learned("1@x", "files", "paths") == {"files": 2, "paths": []}
    assert Maintainers(Series.objects.get()).doubt("ada@example.org") == "what it changes is not known"
    monkeypatch.undo()
    deliver(linux_mm, *(raw.replace(b"@x>", b"@y>") for raw in posted()))
    assert learned("1@y", "files", "paths") == {"files": 2, "paths": ["README", "mm/one.c"]}


@pytest.mark.parametrize("known", [True, False])
def test_patches_of_which_nobody_knows_what_they_change_are_not_the_same(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    if not known:
        monkeypatch.setattr(storage, "_MOST_PATHS", 0)
    again = {"message_id": "again@x", "date": "Sun, 01 Nov 2026 18:00:00 +0000"}
    deliver(linux_mm, mail("[PATCH] mm: One", DIFF), mail("[PATCH] mm: One", DIFF, **again))
    first = Series.objects.get(root_message_id="one@example.org")
    assert (first.superseded_by is not None) is known


def test_recipients_are_stored_as_far_as_they_have_room(linux_mm: MailingList) -> None:
    many = ", ".join(f"{n}-{'x' * 200}@example.org" for n in range(400))
    longer = "\u0130" * 300 + "@example.org"
    store_message(mailing_list=linux_mm, raw=mail("[PATCH] mm: One", DIFF, headers=f"Cc: {longer}, {many}\n"))
    [stored] = learned("one@example.org", "recipients").values()
    assert stored[:2] == ["linux-mm@example.org", f"0-{'x' * 200}@example.org"]
    assert 15_000 < sum(map(len, stored)) <= 16 * 1024


def test_deleted_mail_leaves_nothing_of_what_it_said_and_has_it_again_when_it_is_restored(
    linux_mm: MailingList,
) -> None:
    raws = posted()
    deliver(linux_mm, *raws)
    before = {name: learned(name) for name in ("0@x", "1@x")}
    beginnings = set(ChangedPath.objects.values_list("message__message_id", "beginning"))
    assert beginnings == {("1@x", path) for path in before["1@x"]["paths"]} != set()
    Patch.objects.update(patch_id="ab" * 20)
    mails = list(Message.objects.order_by("pk"))
    for message in mails:
        forget_message(mailing_list=linux_mm, blob=message.blob)
    assert not any(learned("0@x").values())
    assert not ChangedPath.objects.exists()
    sender = {"author_name": "Ada Author", "author_address": "ada@example.org"}
    assert {name: value for name, value in learned("1@x").items() if value} == sender
    assert (Series.objects.get().change_id, Patch.objects.get().patch_id) == ("", "")
    for message, raw in zip(mails, raws, strict=True):
        restore_message(message=message, mail=read_mail(raw, blob=message.blob, received_at=message.received_at))
    assert {name: learned(name) for name in ("0@x", "1@x")} == before
    assert Series.objects.get().change_id == "20261101-one-abc"
    assert set(ChangedPath.objects.values_list("message__message_id", "beginning")) == beginnings


def test_a_long_path_is_found_by_all_of_it(linux_mm: MailingList) -> None:
    series = build_series(linux_mm, total=1)
    message = series.patches.get().message
    path = "mm/" + "\U0001f600" * 700
    Message.objects.filter(pk=message.pk).update(paths=[path])
    ChangedPath.objects.create(message=message, beginning=path[: ChangedPath.LONGEST])
    assert [len(list(touching(path[:end]))) for end in (3, 255, 300, 703)] == [1] * 4
    assert list(touching(path[:300] + "x")) == []


def test_what_commits_were_made_of_is_still_known_when_its_mail_is_deleted(linux_mm: MailingList) -> None:
    series = build_series(linux_mm, total=1)
    message = series.patches.get().message
    facts = {"author_name": "Bob", "files": 1, "insertions": 3, "paths": ["mm/one.c"]}
    Message.objects.filter(pk=message.pk).update(**facts, recipients=["a@x"], change_id="one", prerequisites=["x"])
    forget_message(mailing_list=linux_mm, blob=message.blob)
    assert {name: value for name, value in learned(message.message_id).items() if value} == facts
