"""Mails by strangers that try to get into somebody's series, or to be taken for somebody else's."""

import base64
import io
import os
import sys
from datetime import timedelta
from email.utils import format_datetime

import pytest
import time_machine
from django.core.management import CommandError, call_command

from server.core import clock
from server.sources.applying.application import apply_series
from server.sources.mail.postings import REROLL_QUIET
from server.sources.messages.storage import store_message
from server.sources.mirror import mirror
from server.sources.models import MailingList, Message, Series, Tree, TrustedSender
from server.sources.series.formation import group_stale
from server.sources.series.requests import all_series_json, approve_series, sweep_series
from server.sources.trees.fetch import fetch_tree
from server.sources.trust.proofs import servers_for
from server.sources.trust.series_check import check_series, prove_loose
from tests.builders import build_list
from tests.sources.applying import applied, store
from tests.sources.posting import DIFF, Upstream, deliver, lines, mail
from tests.sources.signing import Names, sign

State = Series.State
Sent = list[tuple[str, tuple[int | str, ...]]]
EVE = "Eve <eve@evil.org>"
ENVELOPE = b"From ada@example.org  Mon Nov  2 10:00:00 2026\n"
SMUGGLED = b"\nFrom eve@evil.org  Mon Nov  2 10:00:01 2026\n" + mail("[PATCH] evil", DIFF, message_id="evil@x")
TWO_PARTS = """\
--b
Content-Type: text/plain

Do this.
---
diff --git a/README b/README
--- a/README
+++ b/README
@@ -1 +1 @@
-A small tree.
+A large tree.
--b
Content-Type: text/html

diff --git a/mm/memory.c b/mm/memory.c
--- a/mm/memory.c
+++ b/mm/memory.c
@@ -1,2 +1,2 @@
-line 1
+line one
 line 2
--b--
"""


def part(index: int, *, name: str = "", sender: str = "Ada Author <ada@example.org>") -> bytes:
    """A mail of a series of two patches, sent now."""
    return mail(
        f"[PATCH {index}/2] mm: Step {index}",
        DIFF if index else "What this is for.\n",
        message_id=name or f"{index}@x",
        parent="0@x" if index else "",
        sender=sender,
        date=format_datetime(clock.now()),
    )


def patches(series: Series) -> list[str]:
    return list(series.patches.order_by("index").values_list("message__message_id", flat=True))


def test_quick_stranger_does_not_take_the_place_of_a_patch_that_is_on_its_way(linux_mm: MailingList) -> None:
    deliver(linux_mm, part(0), part(1), part(2, name="evil@y", sender=EVE))
    series = Series.objects.get()
    assert series.state == State.INCOMPLETE
    assert "2 of 2 patches; others may follow until" in series.reason
    deliver(linux_mm, part(2))
    series.refresh_from_db()
    assert (series.state, patches(series)) == (State.READY, ["1@x", "2@x"])
    assert Message.objects.get(message_id="evil@y").kind == Message.Kind.PATCH


def forged(index: int) -> bytes:
    """By the name of the author, unsigned, and dated before all of hers."""
    date = format_datetime(clock.now() - timedelta(minutes=1))
    return part(index, name="evil@y").replace(format_datetime(clock.now()).encode(), date.encode())


def test_forged_patch_of_an_earlier_date_does_not_take_the_place_of_what_came_before(linux_mm: MailingList) -> None:
    deliver(linux_mm, part(0), part(1), part(2), forged(2))
    series = Series.objects.get(state=State.READY)
    assert patches(series) == ["1@x", "2@x"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("late", [True, False])
def test_proved_patch_takes_its_place_back_from_a_forged_one_that_was_faster(sent_tasks: Sent, *, late: bool) -> None:
    TrustedSender.objects.create(address="ada@example.org")
    public, names = build_list(), Names("example.org")
    mails = [sign(part(0)), sign(part(1)), forged(2), sign(part(2))]
    for raw in mails[: 3 if late else 4]:
        store_message(mailing_list=public, raw=raw)
    group_stale()
    series = Series.objects.get(state=State.HELD)
    assert patches(series) == ["1@x", "evil@y"]
    check_series(series=series, lookup=names)
    if late:
        store_message(mailing_list=public, raw=mails[3])
    group_stale()
    own = Message.objects.get(message_id="2@x")
    assert ("sources.prove_mail", (own.pk,)) in sent_tasks
    prove_loose(mail=own, lookup=names)
    group_stale()
    series = Series.objects.get()
    assert (patches(series), series.checked_at, series.state) == (["1@x", "2@x"], None, State.HELD)
    assert sent_tasks[-1] == ("sources.check_series", (series.pk,))
    check_series(series=series, lookup=names)
    series.refresh_from_db()
    assert series.state == State.READY
    assert Message.objects.get(message_id="evil@y").reason == "its place in the series is taken by another mail"


@pytest.mark.django_db(transaction=True)
def test_place_is_left_to_nobody_who_is_not_proved_himself(sent_tasks: Sent) -> None:
    public, names = build_list(), Names("example.org")
    for raw in (sign(part(0)), sign(part(1)), part(2), part(2, name="evil@y")):
        store_message(mailing_list=public, raw=raw)
    group_stale()
    check_series(series=Series.objects.get(state=State.HELD), lookup=names)
    group_stale()
    prove_loose(mail=Message.objects.get(message_id="evil@y"), lookup=names)
    group_stale()
    assert patches(Series.objects.get(state=State.HELD)) == ["1@x", "2@x"]


def test_series_of_two_people_waits_for_an_hour_and_then_for_a_person(linux_mm: MailingList) -> None:
    deliver(linux_mm, part(0), part(1), part(2, name="bob@y", sender="Bob <bob@example.net>"))
    with time_machine.travel(clock.now() + REROLL_QUIET + timedelta(minutes=1), tick=False):
        sweep_series()
        deliver(linux_mm)
    series = Series.objects.get()
    assert (series.state, patches(series)) == (State.HELD, ["1@x", "bob@y"])
    assert "bob@example.net is not a trusted sender" in series.reason


def test_patch_beyond_the_last_one_stands_for_none_that_is_missing(linux_mm: MailingList) -> None:
    more = part(2, name="3@x").replace(b"[PATCH 2/2]", b"[PATCH 3/2]")
    deliver(linux_mm, part(0), part(2), more)
    series = Series.objects.get()
    assert (series.state, patches(series)) == (State.INCOMPLETE, ["2@x", "3@x"])
    assert [told["complete"] for told in all_series_json()] == [False]
    deliver(linux_mm, part(1))
    assert [told["complete"] for told in all_series_json()] == [True]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)])
def test_version_that_only_the_cover_letter_names_is_known_in_any_order(
    linux_mm: MailingList, order: tuple[int, ...]
) -> None:
    mails = [part(0).replace(b"[PATCH 0/2]", b"[PATCH v4 0/2]"), part(1), part(2)]
    for index in order:
        deliver(linux_mm, mails[index])
    series = Series.objects.get()
    assert (series.version, series.root_message_id, series.state) == (4, "0@x", State.READY)


def test_what_git_would_change_and_nobody_was_shown_is_left_out(fetched: object, linux_mm: MailingList) -> None:
    kind = 'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="b"\n'
    deliver(linux_mm, mail("[PATCH] README: Say more", TWO_PARTS, headers=kind))
    series = Series.objects.get()
    assert Message.objects.get().paths == ["README"]
    if series.state == State.HELD:
        approve_series(series=series, reason="by a person who saw README only")
    apply_series(series=series)
    series.refresh_from_db()
    assert series.state == State.APPLIED, series.reason
    assert changed_by(series) == ["README"]


@pytest.mark.parametrize("approved", [False, True])
def test_what_a_person_approved_is_merged_nowhere_else(
    fetched: Tree, linux_mm: MailingList, upstream: Upstream, *, approved: bool
) -> None:
    """Its lines are those of an older blob that it names; a merge would find them a new place."""
    old = upstream.git("rev-parse", "HEAD:mm/memory.c")
    shown = "@@ -7,3 +7,4 @@\n line 7\n line 8\n+more\n line 9\n"
    base = upstream.commit({"mm/memory.c": lines(line7="other")})
    fetch_tree(tree=fetched)
    head = FILE.replace("\n", f"\nindex {old}..{'1' * 40} 100644\n", 1)
    series = store(linux_mm, [mail("[PATCH] mm: More", f"More.\n---\n{head}{shown}\nbase-commit: {base}\n")])
    if approved:
        Series.objects.filter(pk=series.pk).update(approved_at=series.submitted_at)
    apply_series(series=series)
    series.refresh_from_db()
    assert series.state == State.APPLIED, series.reason
    # Of an approved one the base is that whose lines it shows, and not the one that it asks for.
    assert series.base is not None
    assert (series.base.sha != base) == approved


def test_attributes_of_a_tree_steer_no_merge(fetched: Tree, linux_mm: MailingList, upstream: Upstream) -> None:
    """Where both sides changed a line, the driver `union` would take both."""
    old = upstream.git("rev-parse", "HEAD:mm/memory.c")
    base = upstream.commit({".gitattributes": "*.c merge=union\n", "mm/memory.c": lines(line7="other")})
    fetch_tree(tree=fetched)
    head = FILE.replace("\n", f"\nindex {old}..{'1' * 40} 100644\n", 1)
    shown = "@@ -6,3 +6,3 @@\n line 6\n-line 7\n+mine\n line 8\n"
    series = applied(linux_mm, [mail("[PATCH] mm: Mine", f"Mine.\n---\n{head}{shown}\nbase-commit: {base}\n")])
    assert series.base is not None
    assert (series.state, series.base.sha != base) == (State.APPLIED, True)
    assert content_of(series, "mm/memory.c") == lines(line7="mine")


FILE = "diff --git a/mm/memory.c b/mm/memory.c\n--- a/mm/memory.c\n+++ b/mm/memory.c\n"
SHOWN = f"Do this.\n---\n{FILE}@@ -1,2 +1,2 @@\n-line 1\n+line one\n line 2\n"
HIDDEN = f"{FILE}@@ -30,2 +30,3 @@\n line 30\n+evil\n line 31\n"


@pytest.mark.parametrize(
    ("kind", "coding", "content"),
    [
        ("application/pkcs7-signature", "base64", base64.encodebytes(HIDDEN.encode()).decode()),
        ("application/pgp-signature", "7bit", HIDDEN),
        ('application/pgp-signature; name="signature.diff"', "base64", base64.encodebytes(HIDDEN.encode()).decode()),
        ("application/octet-stream", "quoted-printable", HIDDEN.replace("+", "=2B")),
        ("text/html", "7bit", f"<!--\n{HIDDEN}-->\n"),
        ("image/png", "base64", base64.b64encode(b"From: Linus <torvalds@example.org>\n").decode()),
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_part_that_no_page_shows_is_not_applied(
    fetched: object, linux_mm: MailingList, kind: str, coding: str, content: str, *, first: bool
) -> None:
    text = f"Content-Type: text/plain\n\n{SHOWN}"
    hidden = f"Content-Type: {kind}\nContent-Transfer-Encoding: {coding}\n\n{content}"
    parts = [hidden, text] if first else [text, hidden]
    body = "".join(f"--b\n{part}\n" for part in parts) + "--b--\n"
    headers = 'MIME-Version: 1.0\nContent-Type: multipart/signed; boundary="b"\n'
    series = applied(linux_mm, [mail("[PATCH] mm: Say one", body, headers=headers)])
    assert series.state == State.APPLIED, series.reason
    assert content_of(series, "mm/memory.c") == lines(line1="line one")
    [patch] = series.patches.all()
    assert patch.revision is not None
    assert patch.revision.author == "Ada Author <ada@example.org>"
    assert (patch.message.insertions, patch.message.deletions) == (1, 1)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        # A mark of addition that a reader of flowed text sees behind a blank, as context.
        (
            "text/plain; format=flowed",
            DIFF.replace("@@ -1 +1 @@", "@@ -1 +1,2 @@").replace("+A large", " +evil\n+A large"),
        ),
        # No charset of mails: what is shown is what git takes as it stands.
        ("text/plain; charset=utf-7", DIFF.replace("+A large tree.", "+-A large tree.+AC0-")),
    ],
)
def test_text_that_git_reads_otherwise_is_not_applied_as_git_reads_it(
    fetched: object, linux_mm: MailingList, kind: str, body: str
) -> None:
    headers = f"MIME-Version: 1.0\nContent-Type: {kind}\n"
    series = applied(linux_mm, [mail("[PATCH] README: Grow", body, headers=headers)])
    if series.state == State.APPLIED:
        assert content_of(series, "README") == "-A large tree.+AC0-\n"
    else:
        assert series.state == State.REFUSED


def changed_by(series: Series) -> list[str]:
    assert series.base is not None
    assert series.head is not None
    return mirror().output("diff", "--name-only", series.base.sha, series.head.sha).decode().split()


def content_of(series: Series, path: str) -> str:
    assert series.head is not None
    return mirror().output("show", f"{series.head.sha}:{path}").decode()


@pytest.mark.django_db(transaction=True)
def test_forged_cover_letter_is_not_put_before_proved_patches_that_wait(sent_tasks: Sent) -> None:
    """Who approves patches that are all proved does not ask where a change-id and a base come from."""
    public, names = build_list(), Names("example.org")
    for index in (1, 2):
        store_message(mailing_list=public, raw=sign(part(index)))
    group_stale()
    series = Series.objects.get()
    check_series(series=series, lookup=names)
    series.refresh_from_db()
    assert (series.state, series.patches.filter(message__authentic=True).count()) == (State.HELD, 2)
    forged = part(0).replace(b"What this is for.", b"change-id: 20261101-of-somebody-else")
    cover = store_message(mailing_list=public, raw=forged)
    group_stale()
    assert sent_tasks[-1] == ("sources.prove_mail", (cover.pk,))
    series.refresh_from_db()
    assert (series.cover, series.change_id) == (None, "")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("signed", [False, True])
def test_late_cover_letter_renames_a_series_that_runs_only_when_it_is_proved(sent_tasks: Sent, *, signed: bool) -> None:
    TrustedSender.objects.create(address="ada@example.org")
    public, names = build_list(), Names("example.org")
    for index in (1, 2):
        store_message(mailing_list=public, raw=sign(part(index)))
    group_stale()
    series = Series.objects.get()
    check_series(series=series, lookup=names)
    assert series.state == State.READY
    cover = store_message(mailing_list=public, raw=sign(part(0)) if signed else part(0))
    group_stale()
    assert sent_tasks[-1] == ("sources.prove_mail", (cover.pk,))
    series.refresh_from_db()
    cover.refresh_from_db()
    assert (series.cover, series.subject) == (None, "mm: Step 1")
    assert cover.reason == "came when its series had been checked already, and its sender is not proved"
    prove_loose(mail=cover, lookup=names)
    group_stale()
    series.refresh_from_db()
    cover.refresh_from_db()
    assert (series.subject, cover.reason == "") == (("mm: Step 0", True) if signed else ("mm: Step 1", False))


def piped(monkeypatch: pytest.MonkeyPatch, content: bytes, *options: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    call_command("import_mail", "-", *options)


def test_address_of_a_list_that_proves_its_senders_is_no_way_in(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = mail("[PATCH] mm: evil", DIFF, headers="List-Id: <linux-mm.example.org>\n")
    piped(monkeypatch, forged)
    assert Message.objects.get().mailing_list.name == "imported"
    piped(monkeypatch, forged, "--list", linux_mm.name)
    assert set(Message.objects.values_list("mailing_list__name", flat=True)) == {"imported", linux_mm.name}


@pytest.mark.parametrize("envelope", [b"", ENVELOPE])
def test_mail_server_s_pipe_holds_one_mail_whatever_its_lines_say(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch, envelope: bytes
) -> None:
    whole = mail("Re: Hello", message_id="one@x") + SMUGGLED
    piped(monkeypatch, envelope + whole, "--one", "--list", linux_mm.name)
    stored = Message.objects.get()
    assert (stored.message_id, stored.kind, bytes(stored.raw)) == ("one@x", "other", whole)


def test_one_mail_is_asked_of_the_pipe_only_and_must_be_there(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    with pytest.raises(CommandError, match="standard input"):
        call_command("import_mail", "box", "--one")
    with pytest.raises(CommandError, match="holds no mail") as raised:
        piped(monkeypatch, ENVELOPE, "--one")
    assert raised.value.returncode == os.EX_DATAERR


def test_server_named_for_one_list_says_nothing_about_another() -> None:
    named = {"linux-mm=mx.example.net", "mx.example.org"}
    assert servers_for("linux-mm", named) == {"mx.example.net", "mx.example.org"}
    assert servers_for("Linux-MM", named) == {"mx.example.net", "mx.example.org"}
    assert servers_for("netdev", named) == {"mx.example.org"}
