"""The text of a report: what a kernel developer reads."""

import pytest
from pytest_django.fixtures import Settings

from server.core.errors import DomainError
from server.detection.models import Finding, Verdict
from server.lab.models import Boot, Session
from server.reports.composer import MOST_LINES, Text, compose, gather
from server.sources.models import Message, Series
from tests.builders import (
    build_case,
    build_comparison,
    build_finding,
    build_list,
    build_machine,
    build_message,
    build_series,
    build_session,
    tell_boots,
)

pytestmark = pytest.mark.django_db


def measured_session(series: Series, machine: str, uarch: str, **fields: object) -> Session:
    session = build_session(series, build_machine(machine, uarch, **fields), state=Session.State.DONE)
    facts = {"model_name": f"Vendor(R) {uarch} CPU", "cmdline": "console=ttyS0 nokaslr", "virtual": False}
    tell_boots(Boot.objects.filter(session=session), facts=facts)
    return session


def split_series() -> Series:
    series = build_series()
    verdicts = {"haswell": Verdict.REGRESSED, "zen3": Verdict.IMPROVED, "zen5": Verdict.UNCHANGED}
    for uarch, verdict in verdicts.items():
        build_comparison(measured_session(series, f"box-{uarch}", uarch), verdict)
    return series


def text_about(series: Series, kind: str = Finding.Kind.SPLIT, **fields: object) -> Text:
    headline = "Regressed on haswell (1.71x time of fault-4k), improved on zen3 (0.80x time of fault-4k)."
    return compose(gather(build_finding(series, kind, **{"headline": headline} | fields)))


def assert_fits(text: Text) -> None:
    lines = text.body.splitlines()
    assert len(lines) <= MOST_LINES
    # An address cannot be broken.
    assert max(len(line) for line in lines if "://" not in line) <= 78
    assert text.body.isascii()


def test_report_opens_with_its_verdict_and_shows_absolute_numbers_beside_the_ratio() -> None:
    text = text_about(split_series())
    assert text.body.startswith("Split: 1.7x slower on haswell (1000 -> 1710 ns), 20 % faster on zen3")
    assert "mean +- sd of 4+4 boots" in text.body
    assert "    1000 +- 5 -> 1710 +- 6 ns, 1.71x slower [1.69 to 1.73x]\n    in mm-basic time: fault 4k\n" in text.body
    assert_fits(text)


def test_table_names_each_microarchitecture_once_with_moved_ones_first() -> None:
    lines = text_about(split_series()).body.splitlines()
    head = next(number for number, line in enumerate(lines) if line.split() == ["haswell", "zen3", "zen5"])
    assert lines[head + 1] == "mm-basic, time in ns:"
    assert lines[head + 2].split("  ")[1:] == ["fault 4k", "1.71x slower", "20 % faster", "= <1.2%"]


def test_unchanged_cells_say_what_would_have_been_seen() -> None:
    assert "no change on zen5 (would have seen 1.2 %)" in " ".join(text_about(split_series()).body.split())


def test_report_says_what_was_run_and_where_the_data_are(settings: Settings) -> None:
    settings.SITE_URL = "https://perf.example.org"
    series = split_series()
    assert series.base is not None
    assert series.head is not None
    body = text_about(series).body
    assert f"base {series.base.sha[:12]} ({series.base.subject}), patched {series.head.sha[:12]}, tree stable" in body
    assert "box-zen3 (zen3): Vendor(R) zen3 CPU\n" in body
    assert "command line: console=ttyS0 nokaslr" in body
    assert f"https://perf.example.org/series/{series.pk}/" in body
    assert "kernel lean-x86-64 (x86_64), gcc" in body


def test_tags_are_for_separate_patches_only() -> None:
    body = text_about(split_series()).body
    assert "If you fix this in a separate patch" in body
    assert "\n| Reported-by: " in body
    assert "\n| Closes: " in body


def test_improvement_gets_no_tags() -> None:
    series = build_series()
    build_comparison(measured_session(series, "box-zen3", "zen3"), Verdict.IMPROVED)
    assert "Reported-by" not in text_about(series, Finding.Kind.IMPROVED).body


def test_virtual_report_says_so_on_top_and_beside_the_table_and_gets_no_tags() -> None:
    series = build_series()
    session = measured_session(series, "vm-haswell", "haswell", virtual=True, clock="instructions")
    build_comparison(session, Verdict.REGRESSED)
    text = text_about(series, Finding.Kind.REGRESSED, virtual=True)
    assert text.body.startswith("VIRTUAL, NOT EVIDENCE")
    assert "Changed cases (virtual, not evidence; counted instructions):" in text.body
    assert "Reported-by" not in text.body
    assert_fits(text)


def test_unchanged_report_says_what_was_covered() -> None:
    series = build_series()
    build_comparison(measured_session(series, "box-zen3", "zen3"))
    text = text_about(series, Finding.Kind.UNCHANGED, headline="No change on zen3 (would have seen 1.2 %).")
    assert text.body.startswith("No change on zen3: 1 case, would have seen 1.2 %.")
    assert "  fault 4k  = <1.2%\n" in text.body
    assert_fits(text)


def test_large_matrix_with_long_names_still_fits_into_sixty_lines() -> None:
    series = build_series()
    cases = [build_case(f"a-rather-long-case-name-number-{n:02}-of-this-program") for n in range(30)]
    for n in range(20):
        session = measured_session(series, f"machine-with-a-long-name-{n:02}", f"microarchitecture-{n:02}")
        for m, case in enumerate(cases):
            verdict = Verdict.REGRESSED if n % 2 else Verdict.UNCHANGED
            build_comparison(session, verdict, case=case, ratio=1.1 * 1.3**m if n % 2 else 1.0)
    gaps = [{"machine": f"gone-{n}", "uarch": "x", "reason": "panic " * 60} for n in range(30)]
    text = text_about(series, headline=f"Regressed on {', '.join(f'uarch-{n}' for n in range(200))}.", gaps=gaps)
    assert_fits(text)
    assert "more cases on the page" in text.body
    assert "... columns on the page alone: " in text.body


def test_reply_keeps_the_subject_of_the_first_mail() -> None:
    assert text_about(split_series()).subject == "Re: [PATCH 0/2] mm: Clear pages twice"


@pytest.mark.parametrize(
    ("hostile", "expected"),
    [
        ("[PATCH] x\r\nBcc: all@example.org", "Re: [PATCH] x Bcc: all@example.org"),
        ("Re: RE: [PATCH] Grüße für Zoë", "Re: [PATCH] Gruße fur Zoe".replace("ß", "?")),
        ("[PATCH] nul\x00 bell\x07 \u202eright to left", "Re: [PATCH] nul bell ?right to left"),
        ("[PATCH] " + "long " * 200, ("Re: [PATCH] " + "long " * 200)[:200].rstrip()),
    ],
)
def test_hostile_subject_becomes_one_line_of_ascii(hostile: str, expected: str) -> None:
    series = split_series()
    # NUL cannot be stored; everything else can.
    Message.objects.filter(message_id=series.root_message_id).update(subject=hostile.replace("\x00", ""))
    assert text_about(series).subject == expected


def test_hostile_words_from_a_console_cannot_break_the_layout() -> None:
    series = split_series()
    reason = "oops\n-- \nFrom: root\n" + "\x1b[31m" + "x" * 500
    text = text_about(series, gaps=[{"machine": "box-zen9", "uarch": "zen9", "reason": reason}])
    assert_fits(text)
    assert "\x1b" not in text.body
    assert "\nFrom: root" not in text.body
    assert "box-zen9: oops" in text.body


def test_series_without_cover_is_answered_at_its_first_patch() -> None:
    mailing_list = build_list()
    patch = build_message(mailing_list, subject="[PATCH v3] mm: One patch")
    series = build_series(mailing_list, cover=None, root_message_id=patch.message_id, total=1)
    series.patches.update(message=patch)
    build_comparison(measured_session(series, "box-zen3", "zen3"), Verdict.REGRESSED)
    assert text_about(series).subject == "Re: [PATCH v3] mm: One patch"


def refusal(series: Series, kind: str = Finding.Kind.REGRESSED, **fields: object) -> str:
    with pytest.raises(DomainError) as caught:
        gather(build_finding(series, kind, **fields))
    assert caught.value.code == "incomplete-report"
    return caught.value.message


def test_report_without_comparisons_is_refused() -> None:
    assert refusal(build_series()) == "there is no comparison to show"


def test_report_whose_table_would_be_empty_is_refused() -> None:
    series = build_series()
    build_comparison(measured_session(series, "box-zen3", "zen3"), Verdict.UNCHANGED)
    assert refusal(series) == "the finding says regressed, but no cell has moved"


def test_report_that_hides_a_machine_without_result_is_refused() -> None:
    series = split_series()
    build_session(series, build_machine("box-zen9", "zen9"), state=Session.State.FAILED, reason="panic")
    assert "box-zen9 has no result" in refusal(series)


def test_report_that_names_the_machine_without_result_is_written() -> None:
    series = split_series()
    build_session(series, build_machine("box-zen9", "zen9"), state=Session.State.FAILED, reason="panic")
    gap = {"machine": "box-zen9", "uarch": "zen9", "reason": "panic at boot"}
    assert "Not covered:\n  box-zen9: panic at boot\n" in text_about(series, gaps=[gap]).body


def test_moved_cell_without_absolute_numbers_is_refused() -> None:
    series = build_series()
    build_comparison(measured_session(series, "box-zen3", "zen3"), Verdict.REGRESSED, base_mean=None)
    assert "without its numbers" in refusal(series)


def test_inconclusive_finding_is_never_told() -> None:
    assert refusal(split_series(), Finding.Kind.INCONCLUSIVE) == "nothing inconclusive is mailed"


def test_series_without_base_is_refused() -> None:
    series = build_series()
    finding = build_finding(series)
    Series.objects.filter(pk=series.pk).update(state=Series.State.READY, base=None, head=None)
    with pytest.raises(DomainError, match="the base of the series is not known"):
        gather(Finding.objects.get(pk=finding.pk))
