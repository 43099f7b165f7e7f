"""The auditor of a chaos run sees what is lost, doubled and changed; the mails it counts are ones that apply."""

import json
from pathlib import Path

from bench.chaos.compared import Cell, compare_once, compare_values
from bench.chaos.host_program import Journal, read_journal
from bench.chaos.load import Read, series_mails, share_answered
from demo.lab.replay.studies import kernel_of
from server.core import clock
from server.sources.mail.parser import parse_mail

FIRST: Cell = (1, 0, "chaos-copy/small", "throughput", "all")
SECOND: Cell = (1, 1, "chaos-copy/small", "throughput", "all")
NUMBERS = (20.0, 19.5)
SENT = {FIRST: {NUMBERS}, SECOND: {NUMBERS}}


def test_values_that_are_there_once_as_they_were_sent_differ_in_nothing() -> None:
    assert compare_values(SENT, [FIRST, FIRST, SECOND], [(FIRST, NUMBERS), (SECOND, NUMBERS)]).are_none


def test_value_that_was_sent_and_never_answered_may_be_there_or_not() -> None:
    assert compare_values(SENT, [FIRST], [(FIRST, NUMBERS)]).are_none
    assert compare_values(SENT, [FIRST], [(FIRST, NUMBERS), (SECOND, NUMBERS)]).are_none


def test_acknowledged_value_that_is_not_there_is_lost() -> None:
    found = compare_values(SENT, [FIRST, SECOND], [(FIRST, NUMBERS)])
    assert (found.lost, found.doubled, found.changed, found.unknown) == ([str(SECOND)], [], [], [])


def test_value_that_is_there_twice_is_doubled() -> None:
    found = compare_values(SENT, [FIRST], [(FIRST, NUMBERS), (FIRST, NUMBERS)])
    assert (found.lost, found.doubled, found.changed, found.unknown) == ([], [str(FIRST)], [], [])


def test_value_that_is_another_than_was_sent_is_changed() -> None:
    found = compare_values(SENT, [FIRST], [(FIRST, (20.0, 19.4))])
    assert (found.lost, found.doubled, found.changed, found.unknown) == ([], [], [str(FIRST)], [])


def test_value_that_nobody_sent_is_unknown() -> None:
    other: Cell = (2, 0, "chaos-copy/small", "throughput", "all")
    assert compare_values(SENT, [], [(other, NUMBERS)]).unknown == [str(other)]


def test_names_are_there_once_each() -> None:
    found = compare_once(["a", "b", "c"], ["b", "b", "c", "d"])
    assert (found.lost, found.doubled, found.unknown) == (["a"], ["b"], ["d"])
    assert "1 lost, 1 doubled, 0 changed, 1 unknown: a" in str(found)
    assert compare_once(["a"], ["a", "d"], others=True).are_none


def test_reads_while_the_database_is_stopped_do_not_count() -> None:
    reads = [Read(10.0, 0.1, "/", 200), Read(19.0, 2.0, "/", 0), Read(30.0, 10.0, "/series/", 503)]
    answered, asked, failed = share_answered(reads, [(20.0, 25.0)])
    assert (answered, asked, failed) == (1, 2, [reads[2]])


def test_journal_of_a_killed_host_is_read_up_to_the_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "host.journal"
    values = [["chaos-copy/small", "throughput", "all", [1.0, 2.0]]]
    Journal(path).write("stored", key="session-1-1", position=3, values=values)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"at": 1.0, "kind": "sent"})[:-4])
    Journal(path).write("answer")
    first, second = read_journal(path)
    assert (first.kind, first.key, first.position) == ("stored", "session-1-1", 3)
    assert first.values == (("chaos-copy/small", "throughput", "all", (1.0, 2.0)),)
    assert second.kind == "answer"


def test_mails_of_a_series_are_its_cover_letter_and_patches_by_which_the_builder_knows_the_kernel() -> None:
    posted, mails = series_mails(7, 2, "a" * 40)
    assert len(set(posted.message_ids)) == len(mails) == 3
    read = [parse_mail(mail, blob="0" * 40, received_at=clock.now()) for mail in mails]
    assert [mail.message_id for mail in read] == list(posted.message_ids)
    added = [line.removeprefix("+++ b/") for line in b"".join(mails).decode().splitlines() if line.startswith("+++ b/")]
    assert kernel_of(["study-chaos", *added]).patches == {1, 2}
