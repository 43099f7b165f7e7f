"""What a mail says of cases that not all ran, that say nearly the same, or whose words nobody could read alone."""

from dataclasses import replace

import pytest

from demo.lab.replay.series import post_series
from demo.lab.replay.studies import Row, Spread, Study
from server.detection.models import Finding, Verdict
from server.lab.models import Machine
from server.reports.composer import compose
from server.reports.composer.case_words import words_of
from server.reports.composer.common_cases import in_common, uncovered_lines
from server.reports.composer.evidence import gather, root_message
from server.reports.composer.grid import Grid
from server.results.models import Case
from tests.builders import build_case, build_comparison, build_finding, build_machine, build_series
from tests.reports.telling import calm, finding, moved, unsure
from tests.reports.test_compose import measured_session, split_series

NAMES = "FUNCTION FOLIO CACHE"


def of_two() -> list[object]:
    return [
        *(moved("zen3", f"copy {size} hot", 0.6 + n / 400, parameters=NAMES) for n, size in enumerate("abcd")),
        moved("zen3", "copy 1M cold", 0.902),
        moved("zen3", "copy 2M cold", 0.87),
        moved("zen5", "copy 1M cold", 2.07),
        moved("zen5", "copy 2M cold", 2.02),
        moved("zen5", "copy 4M cold", 2.21),
    ]


def test_largest_changes_of_different_cases_are_told_like_for_like() -> None:
    told = finding(of_two())  # type: ignore[arg-type]
    said = (
        "In the 2 cases that both ran: zen3 9.8 to 13 % slower, zen5 2.0 to 2.1x faster. "
        "The 4 other cases slower on zen3 did not run on zen5."
    )
    assert in_common(told) == said
    opening = " ".join(compose(told).body.partition("\n\n")[0].split())
    assert opening == (
        "Split: up to 40 % slower on zen3 (10.00 -> 6.000 GB/s), up to 2.2x faster on zen5 (10.00 -> 22.10 GB/s). "
        f"{said}"
    )


def test_what_all_ran_needs_no_second_sentence() -> None:
    assert in_common(finding([moved("zen3", "copy a", 0.6), moved("zen5", "copy a", 2.0)])) == ""
    one_sided = [moved("zen3", "copy a", 0.6), calm("zen5", "copy a"), calm("zen5", "copy b")]
    assert in_common(finding(one_sided)) == ""


def test_case_that_is_slower_on_both_kinds_of_cores_is_one() -> None:
    big, little = moved("rk3588", "copy a", 0.6), moved("rk3588", "copy a", 0.7)
    cells = [big, replace(little, column="little"), moved("rk3588", "copy b", 0.8), moved("zen5", "copy b", 2.0)]
    assert in_common(finding(cells)).endswith("The other case slower on rk3588 did not run on zen5.")


def test_changes_without_a_common_case_are_told_as_such() -> None:
    told = finding([moved("zen3", "copy a", 0.6), moved("zen5", "copy b", 2.0)])
    assert in_common(told) == "No case ran on both: these are changes of different cases."


def test_common_cases_that_did_not_all_move_are_counted() -> None:
    cells = [
        moved("zen3", "copy a", 0.6), moved("zen3", "copy b", 0.7), moved("zen3", "copy c", 0.8),
        calm("zen5", "copy a"), unsure("zen5", "copy b"),
    ]  # fmt: skip
    assert in_common(finding(cells)) == (
        "In the 2 cases that both ran: zen3 30 to 40 % slower, zen5 cannot be told. "
        "The other case slower on zen3 did not run on zen5."
    )  # fmt: skip
    cells[0] = calm("zen3", "copy a")
    assert "zen3 30 % slower in 1 of them" in in_common(finding(cells))


def table(cells: list[object]) -> list[str]:
    return Grid(cells, ["zen3", "zen5"], moved_only=True).lines(30)  # type: ignore[arg-type]


def test_cases_that_say_nearly_the_same_are_one_row_with_its_range() -> None:
    rows = [" ".join(line.split()) for line in table(of_two())]
    assert "a|b|c|d hot: 4 cases 39-40 % slower ." in rows
    assert "2M cold 13 % slower 2.02x faster" in rows


def test_cases_that_differ_more_or_in_direction_keep_their_rows() -> None:
    cells: list[object] = [moved("zen3", f"copy {n} hot", 0.9 - 0.1 * n) for n in range(4)]
    assert not any("cases)" in line for line in table(cells))
    cells = [moved("zen3", f"copy {n} hot", 0.9 if n % 2 else 1.1) for n in range(4)]
    assert not any("cases)" in line for line in table(cells))


def test_row_of_all_is_said_only_where_nothing_is_hidden() -> None:
    cells: list[object] = [moved("zen3", f"copy {name}", 0.8) for name in "abc"]
    assert "a|b|c: 3 cases" in "\n".join(table(cells))
    assert "a|b|c: 3 cases" not in "\n".join(table([*cells, calm("zen3", "copy d")]))


def test_title_of_a_group_says_what_its_words_are_called() -> None:
    ratios = {"a": 0.5, "b": 0.7}
    cells: list[object] = [moved("zen3", f"copy {size} hot", ratio, parameters=NAMES) for size, ratio in ratios.items()]
    assert "page-copy, throughput in GB/s, FUNCTION copy CACHE hot, rows FOLIO:" in table(cells)
    nameless: list[object] = [replace(cell, parameters=()) for cell in cells]  # type: ignore[type-var]
    assert "page-copy, throughput in GB/s, all copy hot:" in table(nameless)


def test_what_was_not_measured_is_told_with_the_reason_that_is_known() -> None:
    told = finding(of_two(), uncovered=(("zen4", "out of service"),))  # type: ignore[arg-type]
    said = " ".join(uncovered_lines(told, 4))
    assert said == ("Not covered: 1 of 7 cases on zen3 and 4 on zen5; all on zen4 (out of service).")
    chosen = replace(told, uarchs=tuple(replace(uarch, chosen=True) for uarch in told.uarchs), uncovered=())
    assert "(not configured to run there)." in " ".join(uncovered_lines(chosen, 4))
    assert uncovered_lines(finding([moved("zen3", "copy a", 0.6)]), 4) == []


def test_those_without_a_part_in_it_are_told_together_by_their_reason() -> None:
    why = "the tree mm does not ask for them"
    names = (("cix-p1", why), ("haswell", "out of service"), ("icelakex", why))
    told = finding(of_two(), uncovered=(*names, ("zen4", "")))  # type: ignore[arg-type]
    said = " ".join(uncovered_lines(told, 4))
    assert said == (
        f"Not covered: 1 of 7 cases on zen3 and 4 on zen5; all on cix-p1 and icelakex ({why}); all on haswell (out of "
        "service); all on zen4."
    )


@pytest.mark.parametrize("length", [1, 8, 24, 60])
def test_sentence_about_what_is_missing_ends_whole_however_much_it_is(length: int) -> None:
    names = [(f"{n:02}".ljust(length, "x"), f"asked by nobody in {'t' * length}" if n % 3 else "") for n in range(40)]
    told = finding(of_two(), uncovered=tuple(names))  # type: ignore[arg-type]
    lines = uncovered_lines(told, 4)
    said = " ".join(lines)
    assert len(lines) <= 3
    assert said.endswith(".")
    assert " ..." not in said
    assert ("of 42 microarchitectures." in said) == (length == 60)
    assert ("more (asked by nobody in" in said) == (length < 60)


def test_command_line_is_told_of_those_that_told_it() -> None:
    told = finding([moved("zen3", "copy a", 0.6)])
    assert (
        "kernel command line: not recorded" in compose(replace(told, run=replace(told.run, command_lines=("",)))).body
    )
    some = replace(told, run=replace(told.run, command_lines=("", "quiet")))
    assert "command line (not told by all machines): quiet" in compose(some).body


@pytest.mark.django_db
def test_parameters_stand_in_the_order_of_the_names_of_the_cases() -> None:
    case = build_case("folio_copy-DRAM0-to-CXL-1M-hot-2")
    parameters = {"cache": "hot", "count": "2", "folio": "1M", "way": "DRAM0->CXL", "function": "folio_copy"}
    Case.objects.filter(pk=case.pk).update(parameters=parameters)
    case.refresh_from_db()
    found = words_of([case])[case.pk]
    assert found.words == ("folio_copy", "DRAM0->CXL", "1M", "hot", "count=2")
    assert found.parameters == ("function", "way", "folio", "cache", "count")


@pytest.mark.django_db
def test_microarchitectures_without_a_session_are_told_with_the_reason() -> None:
    series = split_series()
    build_machine("box-zen4", "zen4", virtual=False)
    build_machine("box-zen2", "zen2", virtual=False, health=Machine.Health.RETIRED)
    told = gather(build_finding(series, Finding.Kind.SPLIT))
    assert ("zen2", "out of service") in told.uncovered
    assert ("zen4", "") in told.uncovered
    series = build_series()
    build_comparison(measured_session(series, "box-zen7", "zen7"), Verdict.REGRESSED)
    assert "zen7" not in dict(gather(build_finding(series)).uncovered)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("title", "patches", "root", "first"),
    [
        ("[RFC PATCH 0/1] batch copies", ("[RFC PATCH 0/1] batch copies",), "[RFC PATCH 0/1] batch copies",
         "[RFC PATCH 1/1] batch copies"),
        ("[PATCH v11 6/8] clear pages", ("[PATCH v11 6/8] clear pages",), "[PATCH v11 6/8] clear pages",
         "[PATCH v11 6/8] clear pages"),
        ("mm: Copy at once", ("mm: Copy at once",), "[PATCH] mm: Copy at once", "[PATCH] mm: Copy at once"),
    ],
)  # fmt: skip
def test_replayed_series_has_the_subjects_of_its_thread(
    title: str, patches: tuple[str, ...], root: str, first: str
) -> None:
    spread = Spread(0.01, 0.01)
    row = Row("zen3", "copy", "a", "time", "ns", "lower", "all", 1.0, (1.1,), (spread, spread), "regressed")
    series = post_series(Study("copies", title, patches, (row,)), 1)
    series.refresh_from_db()
    message = root_message(series)
    assert message is not None
    assert message.subject == root
    assert series.patches.get(index=1).message.subject == first
