"""Spoiled mails go into PostgreSQL whole, and into series."""

from dataclasses import replace

import pytest

from server.sources.messages.storage import keep_parsed, read_mail, store_message
from server.sources.models import MailingList, Message, Patch, Series, Thread
from server.sources.series.formation import group_stale
from tests.builders import build_list
from tests.fuzz.mails import OWN
from tests.fuzz.mutations import chance_of, mutated

pytestmark = pytest.mark.django_db


@pytest.fixture
def target() -> MailingList:
    return build_list()


def test_spoiled_mails_are_stored_whole_and_each_is_in_a_series_or_says_why_not(target: MailingList) -> None:
    for seed in range(40):
        raw = mutated(OWN, chance_of(seed))
        message = Message.objects.get(pk=store_message(mailing_list=target, raw=raw).pk)
        assert bytes(message.raw) == raw
        assert message.reason or message.kind != Message.Kind.UNUSABLE
    group_stale()
    assert not Thread.objects.filter(stale=True).exists()
    placed = {*Patch.objects.values_list("message", flat=True), *Series.objects.values_list("cover", flat=True)}
    bare = Message.objects.filter(kind__in=[Message.Kind.PATCH, Message.Kind.COVER], reason="")
    assert bare.exists()
    assert set(bare.values_list("pk", flat=True)) <= placed


def test_a_mail_that_the_database_refuses_is_kept_with_the_reason(target: MailingList) -> None:
    mail = read_mail(OWN[1])
    spoiled = replace(mail, parsed=replace(mail.parsed, sender_name="no\0body"))
    stored = keep_parsed(mailing_list=target, mail=spoiled)
    message = Message.objects.get(pk=stored.message.pk)
    assert (bytes(message.raw), message.kind) == (OWN[1], Message.Kind.UNUSABLE)
    assert message.reason.startswith("the database does not take what was read of it: ")
    assert not keep_parsed(mailing_list=target, mail=spoiled).new
