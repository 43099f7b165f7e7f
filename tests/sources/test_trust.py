"""From the mails of a held series to ready, or to a reason why a person must look."""

from datetime import timedelta

import pytest
import time_machine
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.programs.git import Repository
from server.sources.models import Branch, MailingList, Message, Patch, Series, TrustedSender
from server.sources.trust import senders, series_check
from server.sources.trust.series_check import (
    check_again,
    check_series,
    held_series_of,
    prove_mail,
    series_to_check,
    trust_sender,
)
from tests.builders import build_list, build_message, build_revision, build_series, build_tree
from tests.sources.posting import DIFF, Upstream, mail
from tests.sources.signing import SELECTOR, Names, posted, sign, signed, silent

pytestmark = pytest.mark.django_db
Sent = list[tuple[str, tuple[int | str, ...]]]
HELD, READY = Series.State.HELD, Series.State.READY


def check(series: Series, *domains: str) -> str:
    check_series(series=series, lookup=Names(*(domains or ("example.org",))))
    series.refresh_from_db()
    return series.reason


def test_trusted_sender_s_signed_series_may_run(sent_tasks: Sent, django_capture_on_commit_callbacks: object) -> None:
    TrustedSender.objects.create(address="Ada@Example.org")
    series = posted(signed(), signed())
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]  # (the fixture has no public type)
        reason = check(series)
    assert (series.state, reason) == (
        READY,
        "ada@example.org is on the list of trusted senders, signed by example.org (DKIM)",
    )
    assert series.checked_at
    assert sent_tasks == [("sources.apply_series", (series.pk,))]
    assert set(Message.objects.values_list("authentic", flat=True)) == {True}


@pytest.mark.parametrize(("days", "state"), [(1, READY), (-1, HELD)])
def test_trust_may_end(days: int, state: str) -> None:
    TrustedSender.objects.create(address="ada@example.org", expires_at=clock.now() + timedelta(days=days))
    series = posted(signed())
    check(series)
    assert series.state == state


def test_stranger_waits_however_well_signed() -> None:
    series = posted(signed())
    assert check(series) == (
        "ada@example.org is not a trusted sender: not on the list, no maintainer of mm/memory.c: a person must approve"
    )
    assert series.state == HELD
    assert Message.objects.get().authentic


def test_one_mail_without_proof_holds_the_whole_series() -> None:
    trust_sender(address="ada@example.org")
    unsigned = mail("[PATCH 2/2] mm: Clear pages", DIFF)
    series = posted(signed(), signed(), unsigned)
    assert check(series) == "1 of 3 mails of ada@example.org not proved: not signed (DKIM): a person must approve"
    assert series.state == HELD


def test_every_sender_must_be_trusted() -> None:
    trust_sender(address="ada@example.org")
    series = posted(signed())
    eve = build_message(
        raw=signed("evil.example", "Eve <eve@evil.example>"),
        sender_address="eve@evil.example",
        sender_name="Eve",
        paths=["mm/rmap.c"],
    )
    Patch.objects.create(series=series, index=2, message=eve, subject="x")
    reason = check(series, "example.org", "evil.example")
    assert series.state == HELD
    assert reason.startswith(
        "eve@evil.example is not a trusted sender: not on the list, no maintainer of mm/memory.c: a person"
    )


def test_archive_of_the_site_s_own_proves_its_senders() -> None:
    trust_sender(address="ada@example.org")
    build_list(proof=MailingList.Proof.ARCHIVE)
    series = posted(mail("[PATCH] x", DIFF))
    assert check(series).endswith("the archive linux-mm proves its senders")
    assert series.state == READY


def test_named_server_s_word_counts_and_others_do_not(settings: Settings) -> None:
    trust_sender(address="ada@example.org")
    raw = b"Authentication-Results: mx.example.net; dkim=pass header.d=example.org\n" + mail("[PATCH] x", DIFF)
    series = posted(raw)
    check(series)
    assert series.state == HELD
    settings.AUTHSERV_IDS = frozenset({"another=mx.example.net"})
    check_again(Series.objects.all())
    check(series)
    assert series.state == HELD
    settings.AUTHSERV_IDS = frozenset({f"{series.mailing_list.name}=mx.example.net"})
    check_again(Series.objects.all())
    assert check(series).endswith("signed by example.org (DKIM), mx.example.net says; its To is not signed")
    assert series.state == READY


def test_nobody_s_word_counts_for_mails_that_came_through_no_server(settings: Settings) -> None:
    trust_sender(address="ada@example.org")
    settings.AUTHSERV_IDS = frozenset({"mx.example.net"})
    raw = b"Authentication-Results: mx.example.net; dkim=pass header.d=example.org\n" + mail("[PATCH] x", DIFF)
    series = posted(raw)
    assert "mx.example.net says" in check(series)
    # The same, but as one that a person hands in.
    MailingList.objects.filter(pk=series.mailing_list_id).update(name=MailingList.SUBMITTED)
    proof = prove_mail(Message.objects.select_related("mailing_list").get(), Names("example.org"))
    assert not proof.proved


def test_silent_name_servers_hold_a_series_and_are_asked_later_and_not_for_ever() -> None:
    trust_sender(address="ada@example.org")
    with time_machine.travel("2026-11-20 12:00Z", tick=False) as traveller:
        series = posted(signed())
        assert series_to_check() == [series.pk]
        check_series(series=series, lookup=silent)
        assert series.state == HELD
        assert series.reason.endswith("example.org: the check is repeated")
        for minutes in [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, *[360] * 10]:
            traveller.shift(timedelta(minutes=minutes, seconds=-1))
            assert series_to_check() == [], f"{minutes} minutes are not over"
            traveller.shift(timedelta(seconds=1))
            assert series_to_check() == [series.pk]
            check_series(series=series, lookup=silent)
            assert series.reason.endswith("the check is repeated")
        traveller.shift(timedelta(hours=6))
        check_series(series=series, lookup=silent)
        traveller.shift(timedelta(days=9))
        assert series_to_check() == []
        assert Message.objects.get().authentic is False
        assert series.reason.endswith("for 3 days: a person must approve")


def test_stranger_decides_for_how_long_nobody_is_asked_anything() -> None:
    """Each look-up takes seconds of a worker, and he may sign as often as he likes, with servers of his own."""
    asked: list[str] = []

    def silent_and_noted(name: str) -> bytes | None:
        asked.append(name)
        return silent(name)

    signature = signed()[: signed().index(b"From:")]
    series = posted(signature.replace(f"s={SELECTOR}".encode(), b"s=s9") + signed())
    check_series(series=series, lookup=silent_and_noted)
    assert len(asked) == 1
    assert Message.objects.get().authentic is False
    assert series.reason.endswith("and it is not asked again: a person must approve")
    assert series_to_check() == []


def test_name_servers_that_are_back_let_it_run() -> None:
    trust_sender(address="ada@example.org")
    series = posted(signed())
    check_series(series=series, lookup=silent)
    assert check(series).endswith("signed by example.org (DKIM)")
    assert series.state == READY


def test_series_that_is_not_held_is_left_alone() -> None:
    series = build_series(state=Series.State.SUPERSEDED)
    check(series)
    assert series.state == Series.State.SUPERSEDED
    assert series_to_check() == []


def test_sender_who_becomes_trusted_starts_what_was_sent_lately() -> None:
    old, new, other = posted(signed()), posted(signed()), posted(signed(), sender="eve@example.org")
    Series.objects.filter(pk=old.pk).update(received_at=clock.now() - timedelta(days=30))
    for series in (old, new, other):
        check(series)
    assert series_to_check() == []
    trust_sender(address="ADA@example.org", note="met in Prague")
    assert series_to_check() == [new.pk]
    trust_sender(address="ada@example.org", note="and in Vienna")
    assert TrustedSender.objects.get().note == "and in Vienna"
    assert list(held_series_of("eve@example.org")) == [other]


def test_mail_that_came_while_it_was_checked_is_checked_too() -> None:
    trust_sender(address="ada@example.org")
    series = posted(signed())
    late = build_message(raw=mail("[PATCH 0/1] x"), sender_address="eve@evil.example")

    def lookup(name: str) -> bytes | None:
        Series.objects.filter(pk=series.pk).update(cover=late)
        return Names("example.org")(name)

    check_series(series=series, lookup=lookup)
    series.refresh_from_db()
    assert (series.state, series.checked_at) == (HELD, None)
    check(series)
    assert series.state == HELD
    assert "eve@evil.example is not a trusted sender" in series.reason


# --- maintainers -----------------------------------------------------------------------

MAINTAINERS = "Maintainers List\n\nMEMORY\nM:\tAda <ada@example.org>\nF:\tmm/\n"


@pytest.fixture
def maintained(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Upstream:
    """The list's tree, whose head makes Ada the maintainer of mm/."""
    sha = upstream.commit({"MAINTAINERS": MAINTAINERS})
    Branch.objects.create(tree=build_tree(), name="master", head=build_revision(sha=sha), head_at=clock.now())
    monkeypatch.setattr(senders, "mirror", lambda: Repository(upstream.path / ".git"))
    return upstream


def test_maintainer_of_all_changed_paths_may_run(maintained: Upstream) -> None:
    series = posted(signed(), paths=("mm/memory.c", "mm/kasan/report.c"))
    assert check(series) == ("ada@example.org is maintainer of all that is changed, signed by example.org (DKIM)")
    assert series.state == READY


@pytest.mark.parametrize(
    ("paths", "missing"),
    [
        (("mm/memory.c", "kernel/fork.c"), "no maintainer of kernel/fork.c"),
        (("a", "b", "mm/x"), "no maintainer of a"),
        ((), "what it changes is not known"),
    ],
)
def test_maintainer_of_some_of_them_waits(maintained: Upstream, paths: tuple[str, ...], missing: str) -> None:
    series = posted(signed(), paths=paths)
    assert missing in check(series)
    assert series.state == HELD


@pytest.mark.parametrize(("signed_one", "state"), [(False, READY), (True, HELD)])
def test_copies_without_a_signature_neither_hold_a_series_nor_hide_another_form(signed_one: bool, state: str) -> None:
    TrustedSender.objects.create(address="ada@example.org")
    raw = sign(mail("[PATCH] mm: Clear pages", DIFF), canonicalize=(b"relaxed", b"relaxed"))
    series = posted(raw)
    first = series.patches.get().message
    other = raw.replace(b"+A large tree.", b"+A  large tree.")
    bare = other.partition(b"From:")[1] + other.partition(b"From:")[2]
    for copy in [*([bare] * 40), *([other] if signed_one else [])]:
        build_message(first.mailing_list, raw=copy, message_id=first.message_id, sender_address="ada@example.org")
    check(series)
    assert series.state == state, series.reason


def test_maintainer_is_not_asked_about_more_files_than_can_be_compared(maintained: Upstream) -> None:
    series = posted(signed(), paths=tuple(f"mm/{number}.c" for number in range(2001)))
    assert "it changes more than 2000 files" in check(series)
    assert series.state == HELD


@pytest.mark.parametrize(
    ("kind", "change", "state"),
    [
        (b"relaxed", (b"+A large tree.", b"+A  large tree."), HELD),
        (b"relaxed", (b"+A large tree.", b"+A large tree. "), HELD),
        (b"relaxed", (b"+A large tree.", b"+A small tree."), READY),
        (b"relaxed", (b"Date:", b"X-Other: 1\nDate:"), READY),
        (b"simple", (b"+A large tree.", b"+A  large tree."), READY),
    ],
)
def test_mail_that_came_with_other_blanks_waits_for_a_person(
    kind: bytes, change: tuple[bytes, bytes], state: str
) -> None:
    """A signature that counts blanks once holds for both; which of them the author wrote it does not tell."""
    TrustedSender.objects.create(address="ada@example.org")
    raw = sign(mail("[PATCH] mm: Clear pages", DIFF), canonicalize=(b"relaxed", kind))
    series = posted(raw)
    first = series.patches.get().message
    assert raw.replace(*change) != raw
    build_message(
        first.mailing_list, raw=raw.replace(*change), message_id=first.message_id, sender_address="Ada@example.org"
    )
    check(series)
    assert series.state == state, series.reason


def test_maintainer_must_be_proved_too(maintained: Upstream) -> None:
    series = posted(mail("[PATCH] x", DIFF))
    assert "not signed" in check(series)
    assert series.state == HELD


def test_list_without_a_tree_takes_the_tree_of_the_paths(maintained: Upstream) -> None:
    build_tree("net", paths=["net/"], priority=9)
    MailingList.objects.update(tree=None)
    tree = build_tree()
    tree.paths = ["mm/"]
    tree.save()
    series = posted(signed())
    MailingList.objects.update(tree=None)
    check(series)
    assert series.state == READY


def test_mirror_that_cannot_be_read_trusts_nobody(maintained: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "mirror", lambda: Repository(maintained.path / "gone"))
    series = posted(signed())
    assert "MAINTAINERS cannot be read" in check(series)
    assert series.state == HELD


def test_sweep_asks_for_some_checks_at_a_time_and_the_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_check, "_MOST_AT_ONCE", 2)
    keys = [posted(mail("[PATCH] x", f"{DIFF}{n}\n", message_id=f"{n}@x")).pk for n in range(3)]
    assert series_to_check() == [keys[2], keys[1]]
    for key in keys[1:]:
        check(Series.objects.get(pk=key))
    assert series_to_check() == [keys[0]]
