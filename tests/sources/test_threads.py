from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.sources.mail.postings import Posting
from server.sources.mail.series_shape import versions_of

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
_keys = count(1)


def posting(
    index: int, total: int = 2, *, minute: float = 0, parent: str = "", version: int = 1, **more: str
) -> Posting:
    key = next(_keys)
    return Posting(
        key=key,
        message_id=more.get("id", f"m{key}"),
        ancestors=tuple(parent.split()),
        sender=more.get("sender", "ada@example.org"),
        sent_at=NOON + timedelta(minutes=minute),
        version=version,
        index=index,
        total=total,
    )


def shapes(*postings: Posting) -> list[tuple[int, int, bool, list[int], bool]]:
    return [
        (v.version, v.total, v.cover is not None, [p.index for p in v.patches], v.complete)
        for v in versions_of(postings)
    ]


SERIES = (posting(0, id="c"), posting(1, parent="c", minute=0.1), posting(2, parent="c", minute=0.2))


@given(st.permutations(SERIES))
def test_order_of_arrival_does_not_matter(mails: list[Posting]) -> None:
    (found,) = versions_of(mails)
    assert [p.key for p in found.postings] == [p.key for p in SERIES]
    assert found.complete


def test_deep_threads_are_one_version() -> None:
    mails = [posting(0, 3, id="c"), posting(1, 3, id="p1", parent="c"), posting(2, 3, id="p2", parent="p1 c")]
    assert shapes(*mails, posting(3, 3, parent="p2 p1 c")) == [(1, 3, True, [1, 2, 3], True)]


def test_patches_without_cover_are_one_version() -> None:
    assert shapes(posting(1, id="p1"), posting(2, parent="p1")) == [(1, 2, False, [1, 2], True)]


def test_missing_patch_leaves_it_incomplete() -> None:
    assert shapes(*SERIES[:2]) == [(1, 2, True, [1], False)]


def test_patches_whose_cover_is_missing_find_each_other() -> None:
    assert shapes(*SERIES[1:]) == [(1, 2, False, [1, 2], True)]


def test_second_version_in_the_same_thread_is_its_own() -> None:
    second = [
        posting(0, version=2, id="c2", parent="c", minute=60),
        posting(1, version=2, parent="c2 c", minute=60.1),
        posting(2, version=2, parent="c2 c", minute=60.2),
    ]
    assert shapes(*SERIES, *second) == [(1, 2, True, [1, 2], True), (2, 2, True, [1, 2], True)]


def test_patches_of_second_version_may_answer_those_of_the_first() -> None:
    second = [posting(1, version=2, parent="p1", minute=60), posting(2, version=2, parent="p2 p1", minute=60.1)]
    first = [posting(1, id="p1"), posting(2, id="p2", parent="p1")]
    assert shapes(*first, *second) == [(1, 2, False, [1, 2], True), (2, 2, False, [1, 2], True)]


def test_unlabelled_second_version_is_not_mixed_with_the_first() -> None:
    second = [posting(0, id="d", parent="c", minute=60), posting(1, parent="d c", minute=61)]
    late = posting(2, parent="d c", minute=62)
    assert shapes(*SERIES, *second, late) == [(1, 2, True, [1, 2], True)] * 2


def test_version_marked_on_the_cover_only_counts_for_its_patches() -> None:
    mails = [posting(0, version=7, id="c"), posting(1, parent="c"), posting(2, parent="c")]
    assert shapes(*mails) == [(7, 2, True, [1, 2], True)]


def test_unthreaded_mails_join_by_sender_marks_and_time() -> None:
    assert shapes(posting(1), posting(2, minute=1)) == [(1, 2, False, [1, 2], True)]
    assert len(shapes(posting(1), posting(2, minute=11))) == 2
    assert len(shapes(posting(1), posting(2, sender="eve@example.org"))) == 2
    assert len(shapes(posting(1), posting(2, total=3))) == 2


def test_threaded_patch_never_joins_another_series_by_time() -> None:
    """Of two series sent in the same minutes, one lacks its last patch: it must not take the other's."""
    other = [posting(0, id="d", minute=1), posting(2, parent="d", minute=1.2)]
    assert shapes(*SERIES[:2], *other) == [(1, 2, True, [1], False), (1, 2, True, [2], False)]


def test_foreign_patch_counts_only_where_the_posters_own_is_missing() -> None:
    foreign = posting(2, parent="c", sender="eve@example.org", minute=0.05)
    (first, *_) = versions_of([*SERIES, foreign])
    assert [p.sender for p in first.postings] == ["ada@example.org"] * 3
    (only,) = versions_of([*SERIES[:2], foreign])
    assert only.complete


@pytest.mark.parametrize("parent", ["c", ""])
def test_who_writes_an_earlier_date_takes_no_place_of_what_arrived_before(parent: str) -> None:
    def arrived(second: int, mail: Posting) -> Posting:
        return replace(mail, received_at=NOON + timedelta(hours=1, seconds=second))

    one = arrived(1, posting(1, parent=parent, minute=0.1))
    two = arrived(2, posting(2, parent=parent, minute=0.2))
    forged = arrived(3, posting(2, parent=parent, minute=0.15))
    first, *others = versions_of([one, two, forged])
    assert [p.key for p in first.patches] == [one.key, two.key]
    assert [p.key for version in others for p in version.patches] == [forged.key]


def test_single_patches_are_never_joined() -> None:
    one = replace(posting(1, 1, id="a"), numbered=False)
    two = replace(posting(1, 1, parent="a"), numbered=False)
    assert len(versions_of([one, two])) == 2


_ANY = st.builds(
    posting,
    st.integers(0, 3),
    st.integers(3, 4),
    minute=st.integers(0, 30),
    parent=st.sampled_from(["", "a", "b a", "c"]),
    version=st.integers(1, 2),
    id=st.sampled_from(["a", "b", "c", "d"]),
    sender=st.sampled_from(["ada@example.org", "eve@example.org"]),
).flatmap(lambda p: st.sampled_from([p, p, p, replace(p, numbered=False, index=1, total=1)]))


@given(st.lists(_ANY, max_size=12))
def test_every_mail_is_in_exactly_one_version(mails: list[Posting]) -> None:
    found = versions_of(mails)
    assert sorted(p.key for v in found for p in v.postings) == sorted(p.key for p in mails)
    for version in found:
        indexes = [p.index for p in version.patches]
        assert indexes == sorted(set(indexes))


@given(st.lists(_ANY, max_size=12).flatmap(lambda mails: st.tuples(st.just(mails), st.permutations(mails))))
def test_versions_do_not_depend_on_the_order_of_arrival(orders: tuple[list[Posting], list[Posting]]) -> None:
    one, other = orders
    assert versions_of(one) == versions_of(other)
