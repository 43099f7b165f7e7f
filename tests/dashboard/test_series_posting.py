"""What the page of a series tells about its mails, senders, base and versions."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from server.core import clock
from server.sources.models import MeasureRule, Message, Patch, Series, Thread
from tests.builders import build_message, build_revision, build_series, build_tree
from tests.dashboard.conftest import Reader

pytestmark = pytest.mark.django_db


def page_of(series: Series) -> str:
    return f"/series/{series.pk}/"


def test_uncertain_base_is_plain_on_the_page_and_in_the_list(reader: Reader) -> None:
    series = build_series(base_certain=False, base_how="newest head of mm that takes the patches")
    text = reader.read_series(series.pk)
    assert "Nothing in the mails names the base" in text
    assert "newest head of mm that takes the patches" in text
    assert "base uncertain" in reader.read("/series/")
    assert "an uncertain base" in text


def test_certain_base_says_what_told_it(reader: Reader) -> None:
    series = build_series(base_certain=True, base_how="named by the author", base_commit="ab" * 20)
    text = reader.read_series(series.pk)
    for fact in ("certain", "named by the author", "ab" * 20):
        assert fact in text
    assert "base uncertain" not in text
    assert "base uncertain" not in reader.read("/series/")


def test_what_the_author_announced_is_shown(reader: Reader) -> None:
    needs = ["patch-id:" + "cd" * 20, "message-id:20261101.1@example.org"]
    series = build_series(rfc=True, resend=True, tags=["mm-unstable"], change_id="20261101-x", prerequisites=needs)
    text = reader.read_series(series.pk)
    for fact in ("RFC", "RESEND", "mm-unstable", "20261101-x", *needs):
        assert fact in text


def test_each_sender_shows_what_proved_it(reader: Reader) -> None:
    series = build_series(state=Series.State.HELD)
    Message.objects.filter(message_id=series.root_message_id).update(authentic=True, authenticity="DKIM of example.org")
    patches = Message.objects.filter(patches__series=series)
    patches.update(sender_address="bob@example.net", authentic=False, authenticity="no signature of example.net")
    text = " ".join(reader.read_series(series.pk).split()).split('id="senders"')[1].split("</section>")[0]
    ada, bob = text.index("ada@example.org"), text.index("bob@example.net")
    assert "DKIM of example.org" in text[ada:bob]
    assert '<td class="figure">2</td>' in text[bob:]
    assert "not proved" in text[bob:]
    assert "no signature of example.net" in text[bob:]


def test_held_series_that_is_not_checked_yet_waits_for_nobody(reader: Reader) -> None:
    series = build_series(state=Series.State.HELD, checked_at=None)
    text = reader.read(page_of(series))
    assert "senders are being checked" in text
    assert "senders not checked yet" in reader.read("/series/")
    assert '<span class="state held">' not in text.split('id="approval"')[0]


@pytest.mark.parametrize("state", Series.State.values)
def test_page_says_state_time_and_reason(reader: Reader, state: str) -> None:
    series = build_series(state=state, reason="because of the moon", checked_at=clock.now())
    top = " ".join(reader.read(page_of(series)).split()).split('class="tabs"')[0]
    assert f">{Series.State(state).label}</span> since <time" in top
    assert top.count("because of the moon") == 1


def test_name_cannot_turn_the_address_after_it_round(reader: Reader) -> None:
    series = build_series(author_name="\u202eada", author_address="gro.lenrek@ada")
    assert "[U+202E]ada" in reader.read(page_of(series))


def test_patch_shows_author_diffstat_paths_and_trailers(reader: Reader) -> None:
    series = build_series(trailers=["Acked-by: C <c@example.org>"])
    facts = {"author_name": "Bob Builder", "files": 2, "insertions": 120, "deletions": 14}
    trailers = ["Reviewed-by: A <a@example.org>"]
    Patch.objects.filter(index=1).update(trailers=trailers)
    Message.objects.filter(patches__index=1).update(paths=["mm/memory.c", "mm/util.c"], **facts)
    text = " ".join(reader.read_series(series.pk).split()).split('id="patches"')[1]
    for fact in (
        "Bob Builder",
        "2 files",
        "+120 \N{MINUS SIGN}14",
        "mm/util.c",
        "Reviewed-by: A &lt;a@example.org&gt;",
        "Acked-by",
    ):
        assert fact in text
    assert f'href="/messages/{series.patches.get(index=1).message_id}/"' in text


def test_patch_whose_paths_are_not_stored_says_how_many_files_it_changes(reader: Reader) -> None:
    series = build_series()
    Message.objects.filter(patches__index=1).update(files=30_000, insertions=30_000)
    text = " ".join(reader.read_series(series.pk).split()).split('id="patches"')[1]
    assert "30000 files, too long to list" in text


def test_very_long_series_shows_its_first_patches_and_counts_the_others(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.dashboard.rows.postings.MOST_PATCHES", 3)
    series = build_series(total=5)
    text = " ".join(reader.read_series(series.pk).split())
    assert (
        f'5 of 5 are here; the first 3 are shown, all are in the <a href="/api/v1/series/{series.pk}/patches/">' in text
    )
    assert ">3/5<" in text
    assert ">4/5<" not in text


def test_benchmarks_come_with_the_rules_that_ask_for_them(reader: Reader) -> None:
    MeasureRule.objects.all().delete()
    MeasureRule.objects.create(pattern="**", benchmarks=["mm-basic"], note="")
    MeasureRule.objects.create(pattern="mm/*.c", benchmarks=["mem-mmap"], note="faults")
    MeasureRule.objects.create(pattern="kernel/sched/", benchmarks=["kernel-compile"], note="load")
    series = build_series(state=Series.State.HELD)
    Message.objects.update(paths=["mm/memory.c"])
    text = " ".join(reader.read_series(series.pk).split())
    assert "to be measured" in text
    assert "mm/*.c (faults)" in text
    assert "the default set" in text
    assert "kernel-compile" not in text
    Series.objects.update(benchmarks=["old-one"], base=build_revision(build_tree("mm", benchmarks=["mem-copy"])))
    text = " ".join(reader.read_series(series.pk).split())
    assert '<span class="figure">mem-copy</span> <span class="quiet">the tree mm</span>' in text
    assert '<span class="figure">old-one</span> <span class="quiet">by a rule that was changed since</span>' in text


def test_mails_of_the_thread_that_were_not_used_are_listed_with_reasons(reader: Reader) -> None:
    series = build_series()
    thread = Thread.objects.create()
    Message.objects.update(thread=thread)
    build_message(thread=thread, subject="[PATCH 1/2] again", reason="its place is taken by another mail")
    build_message(thread=thread, subject="Re: thanks", kind=Message.Kind.OTHER)
    build_message(subject="[PATCH] elsewhere", reason="not of this thread")
    text = reader.read_series(series.pk).split('id="unused"')[1]
    assert "[PATCH 1/2] again" in text
    assert "its place is taken by another mail" in text
    assert "Re: thanks" not in text
    assert "elsewhere" not in text
    assert series.patches.get(index=1).subject not in text


def test_versions_show_each_other_with_their_states(reader: Reader) -> None:
    newer = build_series(version=2, subject="mm: Newer")
    older = build_series(subject="mm: Older", state=Series.State.SUPERSEDED, superseded_by=newer)
    assert "applied to its base" in reader.read(page_of(older)).split("Superseded by")[1].split("</p>")[0]
    assert "replaced by a newer version" in reader.read(page_of(newer)).split("Replaces")[1].split("</p>")[0]


def test_newer_version_that_is_not_approved_yet_is_only_linked(reader: Reader) -> None:
    newer = build_series(version=2, state=Series.State.HELD)
    older = build_series(superseded_by=newer)
    text = " ".join(reader.read(page_of(older)).split())
    assert "Superseded by" not in text
    assert "There is a newer version: <a" in text
    assert "Newer than <a" in " ".join(reader.read(page_of(newer)).split())


def test_series_is_found_by_the_message_id_of_any_of_its_mails(reader: Reader) -> None:
    series = build_series(subject="mm: One")
    build_series(subject="mm: Two")
    for mail in (series.root_message_id, f"<{series.patches.get(index=2).message.message_id}>"):
        text = reader.read(f"/series/?mail={mail}")
        assert "mm: One" in text
        assert "mm: Two" not in text


def test_paths_of_a_patch_that_changes_very_many_files_are_cut_by_the_database(client: Client) -> None:
    series = build_series()
    Message.objects.filter(patches__index=1).update(paths=[f"mm/{number}.c" for number in range(5000)], files=5000)
    with CaptureQueriesContext(connection) as captured:
        text = client.get(f"{page_of(series)}patches/").content.decode()
        answer = client.get(f"/api/v1/series/{series.pk}/").json()
    assert "4960 more" in text
    assert (len(answer["patches"][0]["paths"]), answer["patches"][0]["diffstat"]["files"]) == (100, 5000)
    assert not [query for query in captured if '"sources_message"."paths", "' in query["sql"]]
