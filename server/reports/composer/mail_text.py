"""The whole text of a mail, within sixty lines: a pure function of what is told."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from server.core.rounding import seen_effect
from server.reports.composer.common_cases import in_common, uncovered_lines
from server.reports.composer.grid import Grid
from server.reports.composer.told import (
    IMPROVED,
    INCONCLUSIVE,
    MOVED,
    REGRESSED,
    SPLIT,
    UNCHANGED,
    Correction,
    Digest,
    DigestEntry,
    FollowUp,
    Retraction,
    Separation,
    Text,
    Told,
    ToldCell,
    ToldFinding,
    Writer,
)
from server.reports.composer.vector_words import (
    by_uarch,
    case_of,
    coverage_lines,
    first_sentence,
    largest,
    one_cell,
    untold_sentence,
    vector,
)
from server.reports.composer.wording import WIDTH, cut, distinct, figures, listed, plain, speed, wrap, wrapped
from server.reports.composer.worst_cases import meaning_lines, worst_lines

MOST_LINES = 60
_MOST_SUBJECT = 200
_MARK = re.compile(r"^(re|aw|sv|fwd?)\s*:\s*", re.IGNORECASE)
_RFC = re.compile(r"\[[^]]*\bRFC\b[^]]*\]", re.IGNORECASE)
_MOST_OPENING = 300
_CHANGED = (REGRESSED, IMPROVED, SPLIT)
_TAGGED = (REGRESSED, SPLIT)
_VIRTUAL = "VIRTUAL, NOT EVIDENCE: measured on virtual machines, for this site only."


def compose(told: Told) -> Text:
    """Whether it may be told at all was checked when it was gathered."""
    if isinstance(told, FollowUp):
        return _follow_up(told)
    if isinstance(told, Retraction):
        return _retraction(told)
    if isinstance(told, Correction):
        return _correction(told)
    if isinstance(told, Digest):
        return _digest(told)
    return Text(_subject(told), _body(told, _opening(told)))


def reply_subject(subject: str) -> str:
    """`Re:` and the subject of the mail that is answered, on one line of ASCII."""
    bare = plain(subject)
    while _MARK.match(bare):
        bare = _MARK.sub("", bare)
    return f"Re: {bare}"[:_MOST_SUBJECT].rstrip()


def _subject(told: ToldFinding) -> str:
    if told.range is None or told.subject:
        return reply_subject(told.subject)
    mark = "[REGRESSION]" if told.kind in _TAGGED else "[tidemark]"
    made_by = f'"{told.culprit.subject}"' if told.culprit and told.culprit.subject else told.range.good[:12]
    return plain(f"{mark} {_branch(told)}: {_short_vector(told)} since {made_by}")[:_MOST_SUBJECT].rstrip()


def _branch(told: ToldFinding) -> str:
    return f"{told.run.tree}/{told.range.branch}" if told.range else told.run.tree


def _short_vector(told: ToldFinding) -> str:
    most = largest(told.speaking, REGRESSED) or largest(told.speaking, IMPROVED)
    return f"{speed(most, tenths=True)} on {most.uarch}" if most else told.kind


def _opening(told: ToldFinding) -> str:
    sentence = _claim(told)
    if told.bisected and told.culprit is not None:
        return f"{cut(told.culprit.sentence, _MOST_OPENING)} {sentence}"
    if told.range is None:
        return sentence
    made_by = told.culprit
    since = f"made by {made_by.sha[:12]} ({cut(made_by.subject, 80)})" if made_by and made_by.sha else ""
    since = since or f"between {told.range.good[:12]} and {told.range.bad[:12]}"
    return f"{sentence} In {plain(_branch(told))}, {since}."


def _claim(told: ToldFinding) -> str:
    """The class and the vector, then like for like where these sides ran different cases."""
    return f"{first_sentence(told)} {in_common(told) if told.kind in _CHANGED else ''}".rstrip()


@dataclass(frozen=True)
class _Limits:
    """Most lines of each part."""

    first: int
    worst: int
    why: int
    culprit: int
    gaps: int
    machines: int
    key: int


# The first that leaves room for a table worth its name is taken.
_LIMITS = (
    _Limits(first=8, worst=6, why=6, culprit=10, gaps=5, machines=8, key=3),
    _Limits(first=8, worst=4, why=5, culprit=7, gaps=4, machines=5, key=2),
    _Limits(first=8, worst=3, why=5, culprit=6, gaps=3, machines=4, key=2),
    _Limits(first=8, worst=2, why=4, culprit=4, gaps=2, machines=3, key=1),
    _Limits(first=8, worst=2, why=4, culprit=2, gaps=1, machines=2, key=1),
)
_GOOD_TABLE, _LEAST_TABLE = 8, 4
# Another one is told beside the figures.
_USUAL_CLOCK = "wall clock"
Part = list[str]


def _body(told: ToldFinding, opening: str, beside: Sequence[Part] = ()) -> str:
    """`beside` stands in place of the worst cases."""
    moved_only = told.kind in _CHANGED
    table = Grid(told.cells, told.columns, moved_only=moved_only)
    wanted = len(table.lines(MOST_LINES))
    for limits in _LIMITS:
        before, after = _parts(told, opening, limits, beside)
        room = MOST_LINES - _count([*before, ["x", *after[0]], *after[1:]]) - len(_table_head(told, table)) + 1
        if room >= min(wanted, _GOOD_TABLE):
            break
    lines = table.lines(room) if room >= _LEAST_TABLE else []
    if lines:
        # What the table leaves out stands right below it.
        after = [[*_table_head(told, table), *lines, *after[0]], *after[1:]]
    return _joined([*before, *after])


def _count(parts: Sequence[Part]) -> int:
    return sum(len(part) + 1 for part in parts if part) - 1


def _joined(parts: Sequence[Part]) -> str:
    return "\n\n".join("\n".join(line.rstrip() for line in part) for part in parts if part) + "\n"


def _parts(told: ToldFinding, opening: str, limits: _Limits, beside: Sequence[Part]) -> tuple[list[Part], list[Part]]:
    """What stands before and behind the table."""
    figures_told = list(beside) or [_figures(told, limits)]
    before: list[Part] = [
        [_VIRTUAL] if told.virtual else [],
        wrapped(opening, most=limits.first),
        *figures_told,
        _why(told.separation, limits.why) if told.kind in _CHANGED else [],
        _again(told),
    ]
    after: list[Part] = [
        _beside_table(told, limits),
        _culprit(told, limits.culprit),
        _run(told, limits.machines),
        _tags(told),
        [*_commands(told), *_footer(told.writer)],
    ]
    return before, after


def _figures(told: ToldFinding, limits: _Limits) -> Part:
    key = meaning_lines(told, limits.key)
    if told.kind in _CHANGED:
        lines = worst_lines(told, limits.worst)
        return [*lines, *key] if lines else []
    lines = coverage_lines(told, limits.machines + 2)
    return ["Covered:", *lines, *key] if lines else []


def _again(told: ToldFinding) -> Part:
    """The commands that run the worst case again, and what they do."""
    if not told.reproduce:
        return []
    most = largest(told.speaking, REGRESSED) or largest(told.speaking, IMPROVED)
    which = "one of these cases"
    if told.kind in _CHANGED and most is not None:
        which = f"the largest {'loss' if most.verdict == REGRESSED else 'win'} ({plain(most.uarch)})"
    head = f"To run {which} in each of the kernels, booted in turn:"
    if told.agent:
        program = [f"  curl -O {told.agent}", f"  python3 {told.agent.rpartition('/')[2]} reproduce {told.page}"]
    else:
        program = [f"  tidemark-agent reproduce {told.page}"]
        head = f"{head.removesuffix(':')} (the agent: {told.page}#again):"
    whole = f"{program[-1]} {told.reproduce}"
    apart = [f"{program[-1]} \\", f"    {told.reproduce}"]
    # Only an address may be wider.
    command = [whole] if len(whole) <= WIDTH or len(apart[1]) > WIDTH else apart
    return [*wrapped(head), *program[:-1], *command]


def _table_head(told: ToldFinding, table: Grid) -> Part:
    clocks = distinct(machine.clock for machine in told.run.machines)
    holes = '".": not measured' if table.has_holes else ""
    notes = ["virtual, not evidence" if told.virtual else "", *clocks, table.legend, holes]
    said = "; ".join(note for note in notes if note and note != _USUAL_CLOCK)
    title = "Changed cases" if told.kind in _CHANGED else "By case, the least sure first"
    return wrapped(f"{title}{f' ({said})' if said else ''}:", most=3)


def _beside_table(told: ToldFinding, limits: _Limits) -> Part:
    untold = wrapped(untold_sentence(told), most=2) if told.kind in _CHANGED and untold_sentence(told) else []
    return [*untold, *uncovered_lines(told, limits.gaps)]


def _capped(lines: Part, most: int) -> Part:
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"  ... {len(lines) - most + 1} more on the page"]


def _why(found: Separation | None, most: int) -> Part:
    """What fits, and never more than that: facts that separate a few machines prove nothing."""
    if found is None:
        return []
    if not found.facts:
        return wrapped("Why here and not there is not known: no fact of the machines separates them.", most=most)
    if found.routines:
        routines = listed([f"{name}()" for name in found.routines], 3)
        said = (
            f"Why (consistent with, not proved): {_separated(found)}. The patches are about {routines}, whose variants "
            f"the kernel chooses by {listed(found.features) or 'such features'}."
        )
    else:
        said = f"Why is not known. The machines differ: {_separated(found)}."
    return wrap(f"{said} {_doubt(found)}", most=most)


def _separated(found: Separation) -> str:
    """What the machines told, which may be less than their models have: `no fsrm on the machine zen3-1`."""
    one = found.machines[0] == 1
    who = f"the machine {listed(found.changed)}" if one else listed(found.changed)
    return f"{listed(found.facts)} on {who}" + (f", unlike {listed(found.others)}" if found.others else "")


def _doubt(found: Separation) -> str:
    changed, others = found.machines
    rivals = ""
    if found.rivals == 1:
        rivals = "One other fact separates them as well; "
    elif found.rivals:
        rivals = f"{'At least ' if found.uncounted else ''}{found.rivals} other facts separate them as well; "
    if changed == others == 1:
        said = "one machine each, so the cause is open"
    elif found.chance is None or found.chance >= 1:
        said = f"with {changed} against {others} machines some fact always does"
    else:
        often = seen_effect(found.chance)
        said = f"with {changed} against {others} machines chance alone finds such facts in {often} of cases"
    return f"{rivals}{said}." if rivals else f"{said[:1].upper()}{said[1:]}."


def _culprit(told: ToldFinding, most: int) -> Part:
    """Which revision made it and how sure that is, where it lies, and what each patch adds; as much as has room."""
    found, lies = told.culprit, told.range
    lines: Part = []
    if found is not None and found.sha:
        lines += wrap(f"Culprit: {found.sha[:12]} ({found.subject}) by {found.author}", indent="  ", most=2)
    if found is not None and found.sentence and not told.bisected:
        lines += wrap(found.sentence, indent="  ", most=4)
    if lies is not None:
        lines += wrap(f"In {_branch(told)}:", most=1)
        lines += wrap(f"last good: {lies.good[:12]} ({lies.good_subject})", first="  ", indent="    ", most=1)
        lines += wrap(f"first bad: {lies.bad[:12]} ({lies.bad_subject})", first="  ", indent="    ", most=1)
        lines += [f"  timeline: {lies.timeline}"] if lies.timeline else []
    walked = [line for one in found.walk for line in wrap(one, first="  ", indent="    ", most=2)] if found else []
    room = max(most - len(lines) - 1, 0)
    return [*lines, *(["What each patch adds:", *_capped(walked, room)] if walked and room > 1 else [])]


def _run(told: ToldFinding, most: int) -> Part:
    run = told.run
    patched = f", patched {run.patched[:12]}" if run.patched else ""
    base = f"base {run.base[:12]} ({cut(run.base_subject, 40)}){patched}, tree {run.tree}"
    lines = wrap(base, first="  ", indent="    ", most=2)
    lines += _capped([wrap(f"kernel {kernel}", first="  ", most=1)[0] for kernel in run.kernels], 2)
    machines = []
    for machine in run.machines:
        short = " (cut short, more boots might tell more)" if machine.cut_short else ""
        cpu = machine.cpu or "CPU model not told"
        clock = "" if machine.clock == _USUAL_CLOCK else f", {machine.clock}"
        machines += wrap(f"{machine.name} ({machine.uarch}): {cpu}{clock}{short}", first="  ", most=1)
    lines += _capped(machines, most)
    known = [line for line in run.command_lines if line]
    if len(known) > 1:
        lines.append("  kernel command lines differ between machines: see the page")
    elif run.machines:
        some = " (not told by all machines)" if known and len(run.command_lines) > 1 else ""
        lines += wrap(
            f"kernel command line{some}: {known[0] if known else 'not recorded'}", first="  ", indent="    ", most=2
        )
    return ["What was run:", *lines, f"  all data: {told.page}"]


def _tags(told: ToldFinding) -> Part:
    """Tags help to find a report from a fix; nobody should credit figures that are not evidence."""
    if told.virtual or told.kind not in _TAGGED:
        return []
    if _RFC.search(told.subject):
        head = "Tags for a fix that is a patch of its own:"
    elif told.range is None:
        head = "If you fix this in a separate patch (not in a new version), kindly add these:"
    else:
        head = "If you fix this in a commit of its own, kindly add these:"
    # Behind a bar no program takes them for trailers of this mail.
    return [*wrapped(head), f"| Reported-by: {plain(told.writer.sender)}", f"| Closes: {told.page}"]


def _commands(told: ToldFinding) -> Part:
    """Two beside each other: whoever answers takes one of them."""
    if not told.cells:
        return _stop()
    uarch, benchmark = _example(told)
    rows = [("retest", f"#tidemark test on {uarch} bench {benchmark}")]
    if told.kind in _TAGGED:
        rows += [
            ("accept: REASON", "(the regression is known and worth it)"),
            ("invalid: REASON", "(the finding is wrong)"),
        ]
    last = "stop   (no more of these mails)"
    rows.append(("fix: SUBJECT", f"#tidemark {last}") if told.kind in _TAGGED else (last, ""))
    lines = [f"  {f'#tidemark {command}':<{_COMMAND_WIDTH}}{said}".rstrip() for command, said in rows]
    return ["To act on this, answer with one of these commands on a line of its own:", *lines]


def _example(told: ToldFinding) -> tuple[str, str]:
    most = largest(told.speaking, REGRESSED) or largest(told.speaking, IMPROVED) or next(iter(told.cells), None)
    if most is None or len(most.uarch) + len(most.benchmark) > _MOST_EXAMPLE:
        return "UARCH", "NAME"
    return plain(most.uarch), plain(most.benchmark)


def _stop() -> Part:
    return ["To get no more of these mails, answer with this at the beginning of a line:", "  #tidemark stop"]


_COMMAND_WIDTH = 28
# What leaves room for the rest of its line.
_MOST_EXAMPLE = 24


def _footer(writer: Writer) -> Part:
    return ["--", *wrapped(f"Tidemark, a program, wrote this; people read {writer.address}.")]


def _follow_up(told: FollowUp) -> Text:
    """Both versions beside each other, then all that the new one says."""
    now = told.now
    opening = f"{_became(told)} {_claim(now)}"
    return Text(_subject(now), _body(now, opening, [_both(told)]))


def _became(told: FollowUp) -> str:
    """v1 was 41 % slower on zen3; v2 shows no change there (would have seen 1.2 %)."""
    parts = []
    now, of_now = {uarch.name: uarch for uarch in told.now.uarchs}, by_uarch(told.now.speaking)
    of_before = by_uarch(told.before.speaking)
    for uarch in told.before.uarchs:
        if uarch.verdict not in _TAGGED:
            continue
        most = largest(of_before.get(uarch.name, []), REGRESSED)
        was = speed(most, tenths=True) if most else REGRESSED
        after = now.get(uarch.name)
        parts.append(f"{was} on {plain(uarch.name)} -> {_now(after.verdict if after else '', of_now, uarch.name)}")
    if not parts:
        return f"{told.now.version} against {told.before.version}, which cost nothing:"
    mended = all(
        (now[uarch.name].verdict if uarch.name in now else "") in (UNCHANGED, IMPROVED)
        for uarch in told.before.uarchs
        if uarch.verdict in _TAGGED
    )
    head = f"{told.now.version} {'no longer shows' if mended else 'after'} what {told.before.version} cost"
    return f"{head}: {'; '.join(parts)}."


def _now(verdict: str, of: dict[str, list[ToldCell]], name: str) -> str:
    cells = of.get(name, [])
    moved = {SPLIT: REGRESSED}.get(verdict, verdict)
    most = largest(cells, moved) if moved in MOVED else None
    if most is not None:
        return speed(most, tenths=True)
    if verdict == UNCHANGED:
        effects = [cell.mde for cell in cells if cell.mde is not None]
        return "no change" + (f" (would have seen {seen_effect(max(effects))})" if effects else "")
    return "cannot be told" if cells else "not measured"


_MOST_BESIDE = 4


def _both(told: FollowUp) -> Part:
    """Of each microarchitecture the worst case of the version before, with the figures of both."""
    later = {(cell.uarch, cell.benchmark, cell.case, cell.metric, cell.column): cell for cell in told.now.cells}
    lines: Part = []
    count = 0
    for name, cells in by_uarch(told.before.speaking).items():
        most = largest(cells, REGRESSED)
        if most is None or count == _MOST_BESIDE:
            continue
        count += 1
        cell = later.get((most.uarch, most.benchmark, most.case, most.metric, most.column))
        lines += wrap(f"{name}, {case_of(most)}:", first="  ", indent="    ", most=2)
        then, after = told.before.version, told.now.version
        lines += wrapped(f"{then}: {one_cell(most)}", first="    ", indent="        ", most=2)
        said = one_cell(cell) if cell is not None else "not measured"
        lines += wrapped(f"{after}: {said}", first="    ", indent="        ", most=2)
    return ["Worst cases of both versions, each against its own base:", *lines] if lines else []


def _day(at: datetime | None) -> str:
    return f" on {at:%Y-%m-%d}" if at else ""


_MOST_WITHDRAWN = 6


def _retraction(told: Retraction) -> Text:
    lines: Part = []
    for cell in told.withdrawn[:_MOST_WITHDRAWN]:
        lines += wrap(f"{cell.uarch}, {case_of(cell)}:", first="  ", indent="    ", most=2)
        lines += wrapped(one_cell(cell), first="    ", indent="      ", most=2)
    if len(told.withdrawn) > _MOST_WITHDRAWN:
        lines.append(f"  ... and {len(told.withdrawn) - _MOST_WITHDRAWN} more on the page")
    parts: list[Part] = [
        [_VIRTUAL] if told.virtual else [],
        wrapped(f"Retraction: what this site told{_day(told.sent_at)} does not hold. Please disregard it."),
        wrap(f"Told: {told.said}", indent="  ", most=6),
        wrap(f"Why it is taken back: {told.why}", indent="  ", most=8),
        ["Withdrawn, as it was told:", *lines] if lines else [],
        ["If you have added tags for it to a patch, please drop them.", f"All data: {told.page}"],
        [*_stop(), *_footer(told.writer)],
    ]
    return Text(reply_subject(told.subject), _joined(parts))


def _correction(told: Correction) -> Text:
    opening = _claim(told.now)
    said = wrap(f"In place of what was told{_day(told.sent_at)}: {told.said}", indent="  ", most=4)
    return Text(_subject(told.now), _body(told.now, f"Correction. {opening}", [said, _figures(told.now, _LIMITS[2])]))


_ORDER = (SPLIT, REGRESSED, IMPROVED, UNCHANGED, INCONCLUSIVE)
_NAMES = {SPLIT: "split", REGRESSED: "regressed", IMPROVED: "improved"}


def _digest(told: Digest) -> Text:
    entries = sorted(told.entries, key=lambda one: _ORDER.index(one.kind))
    counts = [f"{sum(one.kind == kind for one in entries)} {word}" for kind, word in _NAMES.items()]
    days = f"{told.since:%Y-%m-%d} to {told.until:%Y-%m-%d}"
    summary = ", ".join(counts)
    head = wrap(f"{told.tree}, {days}: {summary}; {told.heads} heads measured.")
    foot = [f"All findings: {told.page}", *_stop(), *_footer(told.writer)]
    parts, left = [head], MOST_LINES - len(head) - len(foot) - 4
    shown = 0
    for entry in entries:
        lines = _entry(entry)
        if len(lines) + 1 > left:
            break
        parts.append(lines)
        left -= len(lines) + 1
        shown += 1
    if shown < len(entries):
        parts.append([f"... and {len(entries) - shown} more on the page"])
    return Text(plain(f"[tidemark] {told.tree}, {days}: {summary}")[:_MOST_SUBJECT], _joined([*parts, foot]))


def _entry(entry: DigestEntry) -> Part:
    word = _NAMES.get(entry.kind, "no change").capitalize()
    mark = "virtual, not evidence: " if entry.virtual else ""
    lines = wrapped(f"{mark}{word}: {vector(entry.uarchs, entry.cells)}.", indent="  ", most=3)
    most = largest(entry.cells, REGRESSED) or largest(entry.cells, IMPROVED)
    if most is not None:
        lines += wrap(f"{figures(most)} ({case_of(most)}, {most.uarch})", first="  ", indent="    ", most=2)
    what = f"{entry.revision[:12]} ({entry.subject}); {entry.news}" if entry.revision else entry.news
    return [*lines, *wrap(what, first="  ", indent="    ", most=2), f"  {entry.page}"]
