"""Series that need other patches below them: found, proved, in order, waited for, and refused in a circle."""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import pytest

from server.core import clock
from server.sources.applying import prerequisites
from server.sources.applying.application import apply_series
from server.sources.applying.prerequisites import find_needs, patch_ids
from server.sources.mirror import mirror, ref_of, series_ref
from server.sources.models import MailingList, Message, Patch, Series, Tree
from server.sources.trees.fetch import fetch_tree
from tests.builders import because, build_list, build_series
from tests.sources.applying import applied, base_of, commits_of, full_am, store, trees_of, with_trailer
from tests.sources.posting import DIFF, Upstream, git, lines, mail, two_patches

S = Series.State


@pytest.fixture
def ready(fetched: Tree, linux_mm: MailingList) -> MailingList:
    return linux_mm


def posted(upstream: Upstream, files: dict[str, str], subject: str, *, on: str, stamp: int) -> list[bytes]:
    """One patch on commit `on`, left as branch `subject`."""
    upstream.git("checkout", "-q", "-B", subject, on)
    upstream.commit(files, f"mm: {subject}")
    mails = upstream.mails("HEAD~1..HEAD", stamp=stamp)
    upstream.git("checkout", "-q", "master")
    return mails


@pytest.fixture
def first(upstream: Upstream) -> list[bytes]:
    return posted(upstream, {"mm/memory.c": lines(line7="first")}, "First", on="master", stamp=1_793_500_001)


@pytest.fixture
def second(upstream: Upstream, first: list[bytes]) -> list[bytes]:
    """Applies only where `first` is."""
    changed = {"mm/memory.c": lines(line7="first and second")}
    return posted(upstream, changed, "Second", on="First", stamp=1_793_500_002)


def id_of(raw: bytes) -> str:
    return raw.partition(b"Message-Id: <")[2].partition(b">")[0].decode()


def patch_id(upstream: Upstream, branch: str) -> str:
    return git(upstream.path, "patch-id", "--stable", stdin=upstream.git("show", branch).encode()).split()[0]


def test_prerequisite_lies_below_and_the_series_is_measured_alone(
    ready: MailingList, upstream: Upstream, first: list[bytes], second: list[bytes]
) -> None:
    below = applied(ready, first)
    series = applied(ready, with_trailer(second, f"prerequisite-message-id: <{id_of(first[0])}>"))
    assert series.state == S.APPLIED, series.reason
    assert base_of(series) == commits_of(below)[0]
    assert series.base_how.endswith("; 1 prerequisite patch below it")
    assert trees_of(series) == full_am(upstream, "master", [*first, *second])[1:]
    # Its base is code of the author of the prerequisite, and called so for the builders.
    assert mirror().resolve(series_ref(series.pk, 0)) == base_of(series)
    Patch.objects.filter(series=below).update(revision=None)
    mirror().output("update-ref", "-d", series_ref(below.pk, 1))
    assert series.base is not None
    assert ref_of(series.base) == series_ref(series.pk, 0)


def test_patch_id_and_change_id_name_prerequisites_too(
    ready: MailingList, upstream: Upstream, first: list[bytes], second: list[bytes]
) -> None:
    store(ready, with_trailer(first, "change-id: 20261101-first-abc"))
    for number, line in enumerate(
        [f"prerequisite-patch-id: {patch_id(upstream, 'First')}", "prerequisite-change-id: 20261101-first-abc:v1"]
    ):
        other = [second[0].replace(b"Message-Id: <", b"Message-Id: <%d" % number)]
        series = applied(ready, with_trailer(other, line))
        assert (series.state, series.prerequisites != []) == (S.APPLIED, True), series.reason
        assert "1 prerequisite patch below it" in series.base_how
        Series.objects.filter(pk=series.pk).update(state=S.SUPERSEDED)


@pytest.mark.parametrize(("named", "state"), [("v2.1", S.APPLIED), ("v2", S.READY), ("v2.2", S.READY)])
def test_version_with_a_point_is_named_by_its_change_id_too(
    ready: MailingList, first: list[bytes], second: list[bytes], named: str, state: str
) -> None:
    below = first[0].replace(b"[PATCH]", b"[PATCH v2.1]", 1)
    store(ready, with_trailer([below], "change-id: 20261101-first-abc"))
    series = applied(ready, with_trailer(second, f"prerequisite-change-id: 20261101-first-abc:{named}"))
    assert series.state == state, series.reason


def test_applied_patches_have_the_id_that_git_gives_them(
    ready: MailingList, upstream: Upstream, first: list[bytes]
) -> None:
    series = applied(ready, first)
    assert series.patches.get().patch_id == patch_id(upstream, "First")


def test_prerequisites_of_prerequisites_come_first(
    ready: MailingList, upstream: Upstream, first: list[bytes], second: list[bytes]
) -> None:
    changed = {"mm/memory.c": lines(line7="first, second and third")}
    third = posted(upstream, changed, "Third", on="Second", stamp=1_793_500_003)
    store(ready, first)
    store(ready, with_trailer(second, f"prerequisite-message-id: <{id_of(first[0])}>"))
    series = applied(ready, with_trailer(third, f"prerequisite-message-id: <{id_of(second[0])}>"))
    assert series.state == S.APPLIED, series.reason
    assert trees_of(series) == full_am(upstream, "master", [*first, *second, *third])[2:]


def test_prerequisite_that_the_base_holds_already_counts_as_applied(
    ready: MailingList, upstream: Upstream, first: list[bytes], second: list[bytes]
) -> None:
    """Also one that was never posted here."""
    upstream.git("merge", "-q", "--ff-only", "First")
    head = upstream.commit({"README": "Further.\n"})
    fetch_tree(tree=Tree.objects.get())
    named = f"prerequisite-patch-id: {patch_id(upstream, 'First')}"
    series = applied(ready, with_trailer(second, named))
    assert (series.state, base_of(series)) == (S.APPLIED, head), series.reason
    assert "prerequisite" not in series.base_how


def test_series_waits_for_what_is_missing_and_goes_on_when_it_comes(
    ready: MailingList, first: list[bytes], second: list[bytes]
) -> None:
    name = id_of(first[0])
    series = applied(ready, with_trailer(second, f"prerequisite-message-id: <{name}>"))
    assert (series.state, series.reason) == (S.READY, f"waits for prerequisite message-id:{name}")
    store(ready, first)
    apply_series(series=series)
    assert series.state == S.READY, "it is not tried at each look"
    Series.objects.filter(pk=series.pk).update(tried_at=clock.now() - timedelta(minutes=2))
    Series.objects.exclude(pk=series.pk).update(state_since=clock.now())
    apply_series(series=series)
    assert series.state == S.APPLIED, series.reason


def test_nothing_new_leaves_a_waiting_series_alone(ready: MailingList, second: list[bytes]) -> None:
    series = applied(ready, with_trailer(second, "prerequisite-message-id: <nobody@x>"))
    tried = clock.now() - timedelta(minutes=30)
    Series.objects.update(tried_at=tried, state_since=tried)
    Tree.objects.get().branches.update(head_at=tried - timedelta(minutes=1))
    apply_series(series=series)
    series.refresh_from_db()
    assert series.tried_at == tried


def test_after_two_weeks_nobody_waits_any_more(ready: MailingList, second: list[bytes]) -> None:
    series = store(ready, with_trailer(second, "prerequisite-message-id: <nobody@x>"))
    Series.objects.update(state_since=clock.now() - timedelta(days=15))
    apply_series(series=series)
    assert series.state == S.REFUSED
    assert series.reason == "waits for prerequisite message-id:nobody@x; it did not come in 14 days"


def test_prerequisite_must_be_allowed_to_run_itself(
    ready: MailingList, first: list[bytes], second: list[bytes]
) -> None:
    name = id_of(first[0])
    held = store(ready, [first[0].replace(b"From: Ada Author <ada@", b"From: Eve <eve@", 1)])
    assert held.state == S.HELD
    series = applied(ready, with_trailer(second, f"prerequisite-message-id: <{name}>"))
    assert series.state == S.READY
    assert series.reason == (f"waits for prerequisite message-id:{name}: <{name}> (mm: First) waits for approval")


def test_circle_is_refused(ready: MailingList, first: list[bytes], second: list[bytes]) -> None:
    one, two = id_of(first[0]), id_of(second[0])
    store(ready, with_trailer(first, f"prerequisite-message-id: <{two}>"))
    series = applied(ready, with_trailer(second, f"prerequisite-message-id: <{one}>"))
    assert series.state == S.REFUSED
    assert series.reason == f"prerequisites go in a circle: <{two}> needs <{one}> needs <{two}>"


def test_series_that_names_itself_needs_nothing(ready: MailingList, upstream: Upstream, first: list[bytes]) -> None:
    """Its own mail, its own patch as git lists it, its own change, and an older version of that."""
    lines = [f"Depends-on: <{id_of(first[0])}>", f"prerequisite-patch-id: {patch_id(upstream, 'First')}"]
    lines += ["change-id: 20261101-first-abc", "prerequisite-change-id: 20261101-first-abc:v1"]
    older = [first[0].replace(b"Message-Id: <", b"Message-Id: <old")]
    assert applied(ready, with_trailer(older, *lines[2:3])).state == S.APPLIED
    newer = [first[0].replace(b"[PATCH]", b"[PATCH v2]")]
    series = applied(ready, with_trailer(newer, *lines))
    assert series.state == S.APPLIED, series.reason
    assert series.base_how.endswith("; a prerequisite that is the series itself was left out")
    assert base_of(series) == upstream.git("rev-parse", "master")


def test_cover_letter_that_names_itself_is_no_circle_for_a_reroll_either(
    ready: MailingList, upstream: Upstream
) -> None:
    """What people paste is the address of their own thread."""
    mails = upstream.mails(two_patches(upstream), "--cover-letter", stamp=1_793_500_009)
    cover = id_of(mails[0])
    mails = with_trailer(mails, f"Depends-on: https://lore.example.org/r/{cover}/")
    new = mails[2].replace(b"[PATCH 2/2]", b"[PATCH v2 2/2]").replace(b"Message-Id: <", b"Message-Id: <new", 1)
    thread = f"In-Reply-To: <{id_of(mails[2])}>\n".encode()
    new = re.sub(rb"In-Reply-To: [^\n]*\n", thread, new)
    first = applied(ready, mails)
    assert first.state == S.APPLIED, first.reason
    reroll = applied(ready, [new])
    assert (reroll.state, reroll.version, reroll.prerequisites) == (S.APPLIED, 2, [f"message-id:{cover}"]), (
        reroll.reason
    )
    assert base_of(reroll) == upstream.git("rev-parse", "master")


def test_prerequisite_that_nobody_can_look_up_is_told(
    ready: MailingList, upstream: Upstream, first: list[bytes]
) -> None:
    numbered = "https://patchwork.example.org/project/mm/list/?series=12345"
    series = applied(ready, with_trailer(first, f"Depends-on: {numbered}"))
    assert (series.state, series.prerequisites) == (S.APPLIED, [f"unknown:{numbered}"]), series.reason
    assert series.base_how.endswith(f"; not below it, as nobody can look them up: {numbered}")


def test_bad_prerequisite_is_refused_by_its_name(ready: MailingList, first: list[bytes], second: list[bytes]) -> None:
    bad = first[0].replace(b"mm/memory.c", b".git/config")
    store(ready, [bad])
    series = applied(ready, with_trailer(second, f"prerequisite-message-id: <{id_of(bad)}>"))
    assert series.state == S.REFUSED
    where = f"prerequisite patch 1/1 of <{id_of(bad)}>"
    assert series.reason == f"{where} touches .git/config, which is outside the tree"


def test_forged_newer_version_does_not_hold_up_what_needs_the_true_one(
    ready: MailingList, upstream: Upstream, first: list[bytes], second: list[bytes]
) -> None:
    named = with_trailer(first, "change-id: 20261101-first-abc")
    store(ready, named)
    forged = named[0].replace(b"[PATCH]", b"[PATCH v9]").replace(b"From: Ada Author <ada@", b"From: Eve <eve@", 1)
    assert store(ready, [forged.replace(b"Message-Id: <", b"Message-Id: <eve")]).state == S.HELD
    series = applied(ready, with_trailer(second, "prerequisite-change-id: 20261101-first-abc"))
    assert series.state == S.APPLIED, series.reason
    assert trees_of(series) == full_am(upstream, "master", [*first, *second])[1:]


def test_strangers_versions_that_never_ran_hold_up_nothing_however_many(db: None, tmp_path: Path) -> None:
    mailing_list = build_list()
    true = build_series(mailing_list, state=S.READY, total=1, change_id="20261101-first-abc")
    for version in range(2, 62):
        build_series(mailing_list, state=S.SUPERSEDED, total=1, change_id="20261101-first-abc", version=version)
    needing = build_series(mailing_list, state=S.READY, total=1, prerequisites=["change-id:20261101-first-abc"])
    assert {patch.series for patch in find_needs(needing, folder=tmp_path / "ids").patches} == {true}


@pytest.mark.parametrize("need", ["change-id:20261101-first-abc", "patch-id:" + "ab" * 20])
def test_what_another_trusted_author_posts_under_the_same_name_lies_below_nothing(
    db: None, tmp_path: Path, need: str
) -> None:
    mailing_list = build_list()
    true, copied = (
        build_series(mailing_list, state=S.READY, total=1, change_id="20261101-first-abc", **fields)
        for fields in ({}, {"author_address": "eve@example.org", "version": 9})
    )
    Patch.objects.filter(series__in=[true, copied]).update(patch_id="ab" * 20)
    needing = build_series(mailing_list, state=S.READY, total=1, prerequisites=[need], author_address="bob@example.org")
    assert {patch.series for patch in find_needs(needing, folder=tmp_path / "ids").patches} == {true}
    # Once a person has let it replace the older one it is the next version.
    true.advance(S.SUPERSEDED, because("v9 is here"), superseded_by=copied)
    wanted = copied if need.startswith("change-id") else true
    assert {patch.series for patch in find_needs(needing, folder=tmp_path / "ids").patches} == {wanted}


def test_mail_that_comes_later_under_a_known_message_id_lies_below_nothing(db: None, tmp_path: Path) -> None:
    """Signatures leave the Message-ID open: an old mail of anybody can be posted again under another's."""
    mailing_list, other = build_list(), build_list("lkml")
    true = build_series(mailing_list, state=S.READY, total=1)
    for author in ("tom@example.org", "ada@example.org", "vic@example.org"):
        build_series(other, state=S.READY, total=1, version=7, author_address=author)
    named = true.patches.get().message
    for number, series in enumerate(Series.objects.exclude(pk=true.pk)):
        copies = build_list(f"copies-{number}")
        Message.objects.filter(patches__series=series).update(mailing_list=copies, message_id=named.message_id)
    needing = build_series(
        mailing_list,
        state=S.READY,
        total=1,
        prerequisites=[f"message-id:{named.message_id}"],
        author_address="vic@example.org",
    )
    assert {patch.series for patch in find_needs(needing, folder=tmp_path / "ids").patches} == {true}


def test_version_of_a_change_that_went_to_other_hands_is_found_where_a_person_approved_it(
    db: None, tmp_path: Path
) -> None:
    mailing_list = build_list()
    build_series(mailing_list, state=S.READY, total=1, change_id="20261101-first-abc")
    fields = {"change_id": "20261101-first-abc", "version": 2, "author_address": "bob@example.org"}
    second = build_series(mailing_list, state=S.READY, total=1, **fields)
    need = "change-id:20261101-first-abc:v2"
    needing = build_series(mailing_list, state=S.READY, total=1, prerequisites=[need], author_address="vic@example.org")
    Series.objects.filter(pk=second.pk).update(approved_at=second.submitted_at)
    assert {patch.series for patch in find_needs(needing, folder=tmp_path / "ids").patches} == {second}


def test_series_that_name_each_others_patches_one_by_one_are_walked_once(
    db: None, tmp_path: Path, django_assert_max_num_queries: Callable[[int], AbstractContextManager[object]]
) -> None:
    """Each of five series needs all six patches of the one below it: 6^4 ways lead to the last."""
    mailing_list = build_list()
    below: list[str] = []
    for level in range(5):
        series = build_series(mailing_list, state=S.READY, total=6, prerequisites=below, subject=f"Level {level}")
        below = []
        for patch in series.patches.all():
            patch.patch_id = f"{patch.pk:040x}"
            patch.save()
            below.append(f"patch-id:{patch.patch_id}")
    with django_assert_max_num_queries(150):
        needs = find_needs(series, folder=tmp_path / "ids")
    assert [patch.index for patch in needs.patches] == [1, 2, 3, 4, 5, 6] * 4
    assert [patch.series.subject for patch in needs.patches[::6]] == [f"Level {level}" for level in range(4)]


def plain_diffs(upstream: Upstream) -> dict[str, str]:
    """What commit `Plain` changes, as programs write it that are not git."""
    upstream.git("checkout", "-q", "-b", "Plain")
    (upstream.path / "README").unlink()
    upstream.commit({"mm/memory.c": lines(line7="other", line30="last"), "mm/new.c": "one\ntwo\n"}, "mm: Plain")
    told = upstream.git("diff", "--no-renames", "master", "Plain")
    bare = re.sub(r"(?m)^(?:index|new file|deleted file) .*\n", "", told)
    bare = re.sub(r"(?m)^(---|\+\+\+) ([ab]/.*)$", r"\1 \2\t2026-11-01 12:00:00.000000000 +0000", bare)
    header = re.compile(r"(?m)^diff --git a/(\S+) .*$")
    return {
        "diff -u": header.sub(r"diff -urN a/\1 b/\1", bare),
        "diff -u, only the names": re.sub(r"(?m)^diff .*\n", "", bare),
        "quilt": header.sub(rf"Index: b/\1\n{'=' * 67}", bare),
        "Mercurial": header.sub(r"diff -r 0123456789ab -r abcdef012345 \1", bare),
    }


def test_diffs_of_other_programs_have_the_patch_id_of_their_commit(upstream: Upstream, tmp_path: Path) -> None:
    """Alone, git gives these none, or another one."""
    forms = plain_diffs(upstream)
    wanted = patch_id(upstream, "Plain")
    mails = [f"A change.\n\n---\n{diff}\n-- \n2.39.5\n" for diff in forms.values()]
    assert dict(zip(forms, patch_ids(mails, folder=tmp_path / "ids"), strict=True)) == dict.fromkeys(forms, wanted)


def test_large_patches_of_strangers_cost_no_memory_and_no_patch_id_of_others(
    db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailing_list = build_list()
    true = build_series(mailing_list, state=S.READY, total=1).patches.get()
    strangers = [build_series(mailing_list, state=S.HELD, total=1).patches.get() for _ in range(9)]
    Message.objects.filter(pk=true.message_id).update(raw=mail("[PATCH] mm: True", DIFF))
    filler = "x" * 79 + "\n"
    for patch, size in zip(strangers, [3_000_000, *[1_500_000] * 8], strict=True):
        Message.objects.filter(pk=patch.message_id).update(raw=mail("[PATCH] mm: Large", filler * (size // 80) + DIFF))
    read: list[int] = []
    plain = prerequisites.patch_ids

    def counted(texts: Sequence[str], *, folder: Path) -> list[str]:
        read.append(sum(map(len, texts)))
        return plain(texts, folder=folder)

    monkeypatch.setattr(prerequisites, "patch_ids", counted)
    assert prerequisites.fill_patch_ids(folder=tmp_path / "ids") == 3
    assert len(read) == 2
    assert max(read) < 4 * 1024 * 1024
    assert Patch.objects.get(pk=true.pk).patch_id == patch_ids([DIFF], folder=tmp_path / "alone")[0]


def test_patch_in_which_git_finds_no_diff_is_not_read_again(
    db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch, deleted = build_series(build_list(), state=S.READY, total=2).patches.order_by("index")
    Message.objects.filter(pk=patch.message_id).update(raw=mail("[PATCH] mm: Nothing", "No diff.\n"))
    Message.objects.filter(pk=deleted.message_id).update(raw=b"")
    assert prerequisites.fill_patch_ids(folder=tmp_path / "ids") == 0
    monkeypatch.setattr(prerequisites, "parse_mail", None)
    assert prerequisites.fill_patch_ids(folder=tmp_path / "ids") == 0
    assert list(Patch.objects.order_by("index").values_list("patch_id", flat=True)) == ["none", ""]


def test_text_of_one_patch_gives_no_patch_id_to_another(tmp_path: Path) -> None:
    true = patch_ids([DIFF], folder=tmp_path / "alone")
    eve = DIFF.replace("A large", "An evil")
    forged = "".join(f"\ncommit {n:040x}\n{eve}" for n in range(1, 5))
    assert patch_ids([DIFF, DIFF + forged], folder=tmp_path / "ids") == true * 2
    assert patch_ids([DIFF + forged, DIFF, DIFF], folder=tmp_path / "ids") == true * 3
