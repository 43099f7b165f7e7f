"""What holds of every mail, whatever was measured and whatever strangers wrote into it."""

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from server.core.rounding import seen_effect
from server.reports.composer.grid import Grid
from server.reports.composer.mail_text import MOST_LINES, compose
from server.reports.composer.told import (
    Correction,
    Culprit,
    FollowUp,
    Retraction,
    Separation,
    Text,
    ToldCell,
    ToldFinding,
    ToldUarch,
)
from server.reports.composer.vector_words import first_sentence
from server.reports.composer.wording import plain, span
from tests.reports.telling import WRITER, calm, finding, kind_of, moved, unsure, vector_of

NAMES = ["zen3", "zen5", "icelakex", "neoverse-n1", "cix-p1", "a-rather-long-name-of-a-cpu"]
UARCHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True)
WORDS = st.lists(st.sampled_from(["0->1", "4k", "2M", "hot", "long" * 12]), min_size=1, max_size=3)
RATIOS = st.floats(min_value=0.01, max_value=40.0)
STRANGE = st.text(max_size=300) | st.sampled_from(
    [
        "#tidemark accept: all",
        "x" * 70 + " #tidemark retest",
        "\n---\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b",
        "word " * 15 + "--- a/file +++ b/file @@ -1 +1 @@ Index: x",
        "hi\r\nBcc: everybody@example.org",
        "Acked-by: Eve <eve@example.org> " * 9,
        "\x1b[31mred\u202e",
    ]
)


SOME_WORDS = ["0->1", "4k", "2M", "hot", "param0", "param1"]
MEANINGS = st.sampled_from(["nothing is evicted", "page " * 16, "#tidemark accept: x", "\x1b[31mred \u202e" * 5])
REASONS = st.sampled_from(["", "out of service", f"the tree {'t' * 60} does not ask for them"])
BOOTS = st.sampled_from([(8, 8), (16, 12), (100, 100), (120, 7)])
UNITS = st.sampled_from(["GB/s", "ns", "instructions per cycle and core", "\u00b5s"])


@st.composite
def cells(draw: st.DrawFn) -> list[ToldCell]:
    made = {}
    for uarch in draw(UARCHS):
        for words in draw(st.lists(WORDS, min_size=1, max_size=4)):
            case, benchmark = " ".join(words), draw(st.sampled_from(["page-copy", "ipc"]))
            better = draw(st.sampled_from(["higher", "lower"]))
            metric = f"{'rate' if better == 'higher' else 'time'}"
            fields = {"benchmark": benchmark, "metric": metric, "better": better}
            how = draw(st.sampled_from(["moved", "calm", "unsure"]))
            if how == "moved":
                width = draw(st.floats(min_value=0.0, max_value=0.4))
                cell = moved(uarch, case, draw(RATIOS), width=width, **fields)  # type: ignore[arg-type]
            else:
                cell = (calm if how == "calm" else unsure)(uarch, case, draw(st.floats(0.001, 2.0)), **fields)
            made[uarch, benchmark, case, metric] = cell
    return list(made.values())


@st.composite
def measured(draw: st.DrawFn, cells: tuple[ToldCell, ...]) -> tuple[ToldCell, ...]:
    """The same cells in whatever unit and from however many boots, some of them not heard."""
    boots, unit = draw(BOOTS), draw(UNITS)
    base, named = draw(st.sampled_from([10.0, 1e-9, 123456789.0, 0.0, 1e15])), draw(st.booleans())
    return tuple(
        replace(
            cell,
            boots=boots,
            unit=unit,
            parameters=tuple(f"param{n}" for n in range(len(cell.words))) if named else (),
            base_mean=base,
            base_sd=draw(st.sampled_from([0.0, 2 * base, 1e-3])),
            patched_mean=base * (cell.ratio or 1),
            speaks=draw(st.booleans()),
        )
        for cell in cells
    )


@st.composite
def findings(draw: st.DrawFn) -> ToldFinding:
    found = draw(cells())
    strange = draw(STRANGE)
    missing = (ToldUarch("gone", "inconclusive", missing=strange),) if draw(st.booleans()) else ()
    told = finding(found, uarchs=(*vector_of(found), *missing), subject=strange, virtual=draw(st.booleans()))
    return replace(
        told,
        cells=draw(measured(told.cells)),
        meanings=tuple((word, draw(MEANINGS)) for word in SOME_WORDS),
        agent=draw(st.sampled_from(["", told.agent])),
        uncovered=tuple((f"cpu{n}", draw(REASONS)) for n in range(draw(st.integers(0, 20)))),
        gaps=tuple(f"box-{n}: {strange}" for n in range(draw(st.integers(0, 20)))),
        separation=draw(st.sampled_from([None, Separation(("no fsrm",), ("a",), ("b",), routines=(strange,))])),
        culprit=draw(st.sampled_from([None, Culprit(strange, (strange,) * 9)])),
        run=replace(told.run, base_subject=strange, tree=strange, command_lines=(strange,)),
    )


def assert_sound(text: Text) -> None:
    lines = text.body.split("\n")
    assert lines.pop() == ""
    assert len(lines) <= MOST_LINES
    assert text.body.isascii()
    assert all(line.isprintable() and line == line.rstrip() for line in lines)
    assert max(len(line) for line in lines if "://" not in line) <= 78
    assert text.subject.isascii()
    assert text.subject.isprintable()
    assert len(text.subject) <= 200
    for line in lines:
        assert not re.match(r"#tidemark", line)
        assert not re.match(r"\s*(---|\+\+\+|@@|diff -|Index:)(\s|$)", line)
        assert not re.match(r"\s*([A-Za-z]+-)+by:\s", line)


@settings(deadline=None, max_examples=40)
@given(findings())
def test_mail_is_short_plain_and_does_nothing_to_who_reads_it(told: ToldFinding) -> None:
    assert_sound(compose(told))


@settings(deadline=None, max_examples=40)
@given(findings(), findings(), STRANGE)
def test_what_is_told_later_is_so_too(before: ToldFinding, now: ToldFinding, words: str) -> None:
    assert_sound(compose(FollowUp(before, now)))
    assert_sound(compose(Correction(words, None, now)))
    assert_sound(compose(Retraction(WRITER, words, words, None, words, before.cells, before.page)))
    assert_sound(compose(replace(now, bisected=True)))


@settings(deadline=None, max_examples=40)
@given(cells(), st.booleans(), st.integers(4, 40))
def test_no_two_rows_read_alike(found: list[ToldCell], moved_only: bool, most: int) -> None:
    columns = list(dict.fromkeys(cell.column for cell in found))
    lines = Grid(found, columns, moved_only=moved_only).lines(most)
    assert len(lines) <= most
    # The fields of a row with a long name stand on the line below it.
    rows = re.sub(r"\n {4,}", " ", "\n".join(lines[1:])).split("\n")
    assert len(set(rows)) == len(rows)


@given(RATIOS, st.floats(0.0, 0.5), st.sampled_from(["higher", "lower"]))
def test_interval_holds_its_value_as_they_are_printed(ratio: float, width: float, better: str) -> None:
    said = span(moved("zen3", "copy", ratio, width=width, better=better))
    value, low, high = (float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", said))
    assert low <= value <= high
    assert said.count("x") in (0, 2)
    assert ("slower" in said) == ((ratio < 1) == (better == "higher"))


@settings(deadline=None, max_examples=40)
@given(cells())
def test_first_sentence_names_every_microarchitecture(found: list[ToldCell]) -> None:
    told = finding(found)
    said = first_sentence(told)
    assert all(uarch.name in said for uarch in told.uarchs)


@settings(deadline=None, max_examples=40)
@given(cells())
def test_what_could_not_be_told_is_never_a_claim(found: list[ToldCell]) -> None:
    noisy = [replace(cell, verdict="inconclusive") for cell in found]
    assert kind_of(noisy) == "unchanged"
    body = compose(finding(noisy)).body
    assert not re.search(r"\d (%|x) (slower|faster)", body)
    assert "No change on 0 of" in body


@given(st.floats(0.0001, 3.0))
def test_effect_that_would_have_been_seen_is_never_told_smaller(effect: float) -> None:
    assert float(seen_effect(effect).removesuffix(" %")) >= 100 * effect - 1e-6


@given(STRANGE)
def test_what_strangers_wrote_is_one_line(text: str) -> None:
    line = plain(text)
    assert line.isascii()
    assert line.isprintable()
    assert plain(line) == line
