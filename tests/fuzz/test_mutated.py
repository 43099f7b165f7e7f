"""Spoiled mails and threads: few here, hundreds of thousands by `make fuzz`."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.mail.mailboxes import CORPUS, threads_in
from server.sources.mail.postings import Posting
from server.sources.models import Message, Series
from tests.fuzz.checks import LENGTHS, RECEIVED, check_together, check_versions, read_checked
from tests.fuzz.mails import OWN
from tests.fuzz.mutations import MUTATIONS, Mutation, chance_of, mutated

_SEEDS = st.integers(0, 2**32)
_STEPS = st.lists(st.tuples(st.sampled_from(MUTATIONS), st.sampled_from(OWN), _SEEDS), min_size=1, max_size=6)
_IDS = st.sampled_from(["a@x", "b@x", "c@x", "d@x", "missing@x"])


@st.composite
def postings(draw: st.DrawFn) -> list[Posting]:
    """Patches and covers whose parents may be missing, themselves, or each other."""
    kinds = st.tuples(_IDS, st.lists(_IDS, max_size=3), st.integers(0, 3), st.integers(1, 3), st.integers(0, 40))
    found = []
    for key, (own, ancestors, index, version, minutes) in enumerate(draw(st.lists(kinds, max_size=9))):
        total = draw(st.integers(max(index, 1), 3))
        sender = draw(st.sampled_from(["ada@example.org", "bob@example.org"]))
        sent = RECEIVED + timedelta(minutes=minutes)
        numbered = index != 1 or total != 1 or draw(st.booleans())
        found.append(Posting(key, own, tuple(ancestors), sender, sent, version, index, total, numbered))
    return found


@given(st.sampled_from(OWN), _STEPS)
@settings(max_examples=200)
def test_no_mutation_of_a_mail_breaks_its_reading(mail: bytes, steps: list[tuple[Mutation, bytes, int]]) -> None:
    for mutation, other, seed in steps:
        mail = mutation(mail, other, chance_of(seed))
    read_checked(mail)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_mail(raw: bytes) -> None:
    read_checked(raw)


@given(postings(), st.integers(0, 2**32))
@settings(max_examples=200)
def test_every_mail_is_in_one_version_whatever_names_what(found: list[Posting], seed: int) -> None:
    check_versions(found, chance_of(seed))


@given(st.lists(_SEEDS, min_size=2, max_size=12))
@settings(max_examples=30)
def test_threads_of_spoiled_mails_are_grouped(seeds: list[int]) -> None:
    check_together([read_checked(mutated(OWN, chance_of(seed))) for seed in seeds], chance_of(seeds[0]))


@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the repository")
def test_spoiled_real_mails_are_read() -> None:
    mails = [mail for thread in threads_in(CORPUS / "patchwork") for mail in thread]
    for seed in range(400):
        read_checked(mutated(mails, chance_of(seed)))


def test_a_date_of_an_impossible_time_zone_can_be_stored() -> None:
    parsed = read_checked(b"Date: Thu, 01 Jan 2015 00:00:00 +2359\nMessage-ID: <1@x>\n\n")
    assert parsed.sent_at.isoformat() == "2014-12-31T00:01:00+00:00"


def test_the_same_chance_spoils_a_mail_the_same_way() -> None:
    assert [mutated(OWN, chance_of(n)) for n in range(40)] == [mutated(OWN, chance_of(n)) for n in range(40)]


def test_every_mutation_changes_some_mail() -> None:
    for mutation in MUTATIONS:
        changed = [mutation(mail, OWN[0], chance_of(seed)) != mail for mail in OWN for seed in range(5)]
        assert any(changed), mutation.__name__


def test_lengths_are_those_of_the_columns() -> None:
    for name, longest in LENGTHS.items():
        field = (Series if name == "tags" else Message)._meta.get_field(name)
        one = getattr(field, "base_field", field)
        assert getattr(one, "max_length", None) == longest, name
