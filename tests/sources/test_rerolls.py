"""Versions that are posted in other ways than as one whole thread."""

from dataclasses import replace
from datetime import timedelta

from server.sources.mail.postings import REROLL_QUIET, Posting
from server.sources.mail.series_shape import versions_of
from tests.sources.test_threads import NOON, posting

V1 = (
    posting(0, 3, id="c"),
    posting(1, 3, id="p1", parent="c", minute=0.1),
    posting(2, 3, id="p2", parent="c", minute=0.2),
    posting(3, 3, id="p3", parent="c", minute=0.3),
)


def ids(postings: tuple[Posting, ...]) -> list[str]:
    return [p.message_id for p in postings]


def test_one_replaced_patch_makes_a_version_with_the_others_of_the_old_one() -> None:
    new = posting(2, 3, id="new", parent="p2 c", version=2, minute=90)
    old, found = versions_of([*V1, new])
    assert (found.version, found.total, found.complete, found.cover) == (2, 3, True, None)
    assert (ids(found.patches), ids(found.carried), ids(found.replaced)) == (["p1", "new", "p3"], ["p1", "p3"], ["p2"])
    assert (found.root, found.postings, found.own) == (new, (new,), (new,))
    assert ids(old.postings) == ["c", "p1", "p2", "p3"]
    assert found.settles_at == new.sent_at + REROLL_QUIET
    assert old.settles_at is None


def test_replaced_patch_without_a_version_is_a_posting_of_the_same_version() -> None:
    _, found = versions_of([*V1, posting(2, 3, id="new", parent="p2 c", minute=90)])
    assert (found.version, found.complete, ids(found.patches)) == (1, True, ["p1", "new", "p3"])


def test_replaced_patch_may_answer_a_reviewer() -> None:
    new = posting(2, 3, id="new", parent="review", version=2, minute=90)
    assert not versions_of([*V1, new])[1].complete
    assert versions_of([*V1, new], {"review": "p2", "p2": "c"})[1].complete


def test_reroll_of_a_reroll_builds_on_it() -> None:
    second = posting(2, 3, id="q2", parent="p2 c", version=2, minute=90)
    third = posting(3, 3, id="r3", parent="p3 c", version=3, minute=180)
    other = posting(2, 3, id="r2", parent="q2 p2 c", version=3, minute=181)
    *_, found = versions_of([*V1, second, other])
    assert ids(found.patches) == ["p1", "r2", "p3"]
    # Of two old versions nobody knows which one the rest is to be taken from.
    assert not versions_of([*V1, second, third, other])[-1].complete


def test_patch_that_answers_another_number_is_no_reroll() -> None:
    assert not versions_of([*V1, posting(2, 3, parent="p3 c", version=2, minute=90)])[1].complete
    assert not versions_of([*V1, posting(2, 3, parent="p2 c", version=2, sender="eve@example.org")])[1].complete
    deep = [posting(1, 3, id="q1", parent="p3 p2 p1 c", version=2), posting(2, 3, parent="q1 p3 p2 p1 c", version=2)]
    assert not versions_of([*V1, *deep])[1].complete


def test_copies_that_rerolls_make_are_bounded() -> None:
    old = [posting(n, 100, id=f"p{n}", parent="c") for n in range(1, 101)]
    new = [posting(1, 100, parent="p1 c", minute=90 + n) for n in range(300)]
    copied = sum(len(v.carried) for v in versions_of([*old, *new]))
    assert 99 * 50 < copied <= 20 * 400


def test_patches_that_lost_their_numbers_fill_the_free_places() -> None:
    loose = [replace(posting(1, 1, id=n, parent="c", minute=0.2), numbered=False) for n in ("p10", "p2", "p3")]
    mails = [posting(0, 4, id="c"), posting(1, 4, id="p1", parent="c", minute=0.1), *loose]
    (found,) = versions_of(mails)
    assert [(p.message_id, p.index) for p in found.patches] == [("p1", 1), ("p2", 2), ("p3", 3), ("p10", 4)]
    assert len(versions_of(mails[:-1])) == 3
    assert len(versions_of([*mails[:-1], replace(loose[-1], marked=False)])) == 4
    assert len(versions_of([*mails[:-1], replace(loose[-1], sent_at=NOON + timedelta(hours=1))])) == 4


def test_cover_letter_that_nothing_marks_is_found_by_its_place() -> None:
    naked = replace(posting(0, 1, id="n"), numbered=False, naked=True)
    single = replace(posting(1, 1, parent="n"), numbered=False)
    assert versions_of([naked, single])[0].cover == naked
    pair = [posting(1, 2, id="p1", parent="n"), posting(2, 2, parent="p1 n")]
    assert versions_of([naked, *pair])[0].root == naked
    assert versions_of([naked]) == ()
    assert versions_of([replace(naked, sender="eve@example.org"), single])[0].cover is None
    assert (
        versions_of([naked, posting(0, 2, id="c", parent="n"), posting(1, 2, parent="c n")])[0].root.message_id == "c"
    )


def test_cover_letter_of_the_wrong_version_is_that_of_the_patches_below_it() -> None:
    mails = [posting(0, id="c"), posting(1, version=2, parent="c"), posting(2, version=2, parent="c")]
    (found,) = versions_of(mails)
    assert (found.version, found.root.message_id, found.complete) == (2, "c", True)
    # Neither do all count their patches right.
    (found,) = versions_of([posting(0, 3, id="c"), *mails[1:]])
    assert (found.version, found.total, found.root.message_id, found.complete) == (2, 2, "c", True)


def test_patch_of_an_unmarked_second_posting_does_not_fill_the_gap_of_the_first() -> None:
    first = [posting(0, id="c"), posting(1, id="p1", parent="c", minute=0.1)]
    second = [posting(1, id="q1", parent="p1 c", minute=90), posting(2, id="q2", parent="q1 p1 c", minute=90.1)]
    found = versions_of([*first, *second])
    assert [ids(v.patches) for v in found] == [["p1"], ["q1", "q2"]]


def test_version_marked_on_the_first_patch_only_counts_for_those_below_it() -> None:
    mails = [posting(1, 3, version=2, id="p1"), posting(2, 3, id="p2", parent="p1"), posting(3, 3, parent="p2 p1")]
    (found,) = versions_of(mails)
    assert (found.version, found.complete) == (2, True)


def test_forgotten_patch_joins_its_series() -> None:
    (found,) = versions_of([*V1, posting(4, 3, id="p4", parent="c", minute=5)])
    assert (found.total, found.complete, ids(found.patches)) == (3, True, ["p1", "p2", "p3", "p4"])
    assert not versions_of([*V1[:3], posting(4, 3, parent="c")])[0].complete


def test_series_reposted_many_times_are_kept_apart() -> None:
    """Two thousand times the same marks: the n-th patch 2 belongs to the n-th patch 1, by what it answers."""
    mails = [posting(1, 2, id=f"a{n}", minute=n) for n in range(1000)]
    mails += [posting(2, 2, id=f"b{n}", parent=f"a{n}", minute=n + 0.1) for n in range(1000)]
    found = versions_of(mails)
    assert [ids(v.patches) for v in found] == [[f"a{n}", f"b{n}"] for n in range(1000)]
