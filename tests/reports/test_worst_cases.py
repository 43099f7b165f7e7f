"""Where each microarchitecture lost and won, as a mail says it, and what the words of the cases mean."""

from dataclasses import replace

from server.reports.composer import compose
from server.reports.composer.told import ToldCell
from server.reports.composer.worst_cases import in_full, meaning_lines, worst_lines
from tests.reports.telling import calm, finding, moved

NAMES = "function folio cache"


def copies(*ratios: tuple[str, float]) -> list[ToldCell]:
    return [moved("zen3", f"copy {case}", ratio, parameters=NAMES) for case, ratio in ratios]


def first(cells: list[ToldCell]) -> str:
    return worst_lines(finding(cells), 6)[2].strip()


def test_word_that_tells_large_changes_from_small_ones_parts_the_cases() -> None:
    cells = copies(("1M hot", 0.60), ("2M hot", 0.61), ("1M cold", 0.90), ("2M cold", 0.85))
    assert first(cells) == "zen3: slower in all 4 cases: hot (2) 39 to 40 %, cold (2) 10 to 15 %"
    assert first([*cells, calm("zen3", "copy 4M cold")]).startswith("zen3: slower in 4 of 5 cases: hot (2)")


def test_cases_that_no_word_parts_are_told_by_their_range() -> None:
    cells = copies(("1M hot", 0.60), ("2M hot", 0.80), ("1M cold", 0.70), ("2M cold", 0.65))
    assert first(cells) == "zen3: slower in all 4 cases, 20 to 40 %"
    assert first(cells[:1]) == "zen3: slower in the 1 case that ran"


def test_several_benchmarks_part_the_cases() -> None:
    cells = [moved("zen5", "copy a", 2.0), moved("zen5", "move a", 1.1, benchmark="move-pages")]
    assert first(cells) == "zen5: faster in all 2 cases: page-copy 2.00x, move-pages 10 %"


def test_change_is_said_to_be_no_ratio_of_the_means() -> None:
    said = " ".join("\n".join(worst_lines(finding([moved("zen3", "copy a", 0.6)]), 6)).split())
    assert "robust estimate of the change [95 % CI], not the ratio of the means:" in said


def test_number_of_boots_is_told_once_where_it_is_one() -> None:
    cells = [moved("zen3", "copy a", 0.6), moved("zen5", "copy a", 2.0)]
    assert "".join(worst_lines(finding(cells), 6)).count("8+8 boots") == 1
    cells[1] = replace(cells[1], boots=(6, 7))
    said = " ".join("\n".join(worst_lines(finding(cells), 6)).split())
    assert "2.00x faster [1.96 to 2.04x], 6+7 boots" in said


def test_line_above_the_cases_keeps_to_its_width_however_many_boots_there_were() -> None:
    cells = [replace(cell, boots=(100, 120)) for cell in copies(("1M hot", 0.6))]
    lines = worst_lines(finding(cells), 6)
    assert "100+120 boots" in lines[0]
    assert max(map(len, lines)) <= 78


def test_number_stands_with_the_name_of_its_parameter() -> None:
    (cell,) = copies(("1M hot", 0.6))
    assert in_full(cell) == "page-copy throughput: copy folio=1M hot"
    assert in_full(replace(cell, parameters=())) == "page-copy throughput: copy 1M hot"


def test_meanings_are_told_of_words_that_stand_in_the_mail_and_whole_or_not_at_all() -> None:
    told = finding(copies(("1M hot", 0.6)))
    told = replace(told, meanings=(("hot", "nothing is evicted"), ("cold", "evicted"), ("folio", "a large page")))
    assert meaning_lines(told, 2) == ["  hot: nothing is evicted; folio: a large page"]
    long = replace(told, meanings=(("hot", "nothing is evicted"), ("folio", "page " * 20)))
    assert meaning_lines(long, 1) == ["  hot: nothing is evicted"]


def test_commands_that_run_the_worst_case_fit_beside_each_other() -> None:
    told = finding(copies(("1M hot", 0.6)))
    assert "\n  curl -O https://perf.example.org/tidemark-agent.pyz\n" in compose(told).body
    command = "  python3 tidemark-agent.pyz reproduce https://perf.example.org/series/7/ \\"
    assert f"\n{command}\n    page-copy/copy-1M-hot\n" in compose(told).body
    without = compose(replace(told, agent="", reproduce="a/b")).body
    assert "\n  tidemark-agent reproduce https://perf.example.org/series/7/ a/b\n" in without
    assert "https://perf.example.org/series/7/#again" in without
