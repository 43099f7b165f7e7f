"""Invented numbers for the gallery: what each picture is given at its emptiest, its fullest and its worst."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from server.core.rounding import downward, upward
from server.dashboard.pictures import axis
from server.dashboard.pictures.course import (
    Course,
    CourseEvent,
    CourseFlag,
    CourseHead,
    CourseLane,
    CoursePoint,
    CourseStep,
)
from server.dashboard.pictures.fingerprint import Absent, Column, Dot, Fingerprint, Group, Line
from server.dashboard.pictures.heat_map import Heat, HeatMap, HeatRow
from server.dashboard.pictures.small import (
    Flight,
    Narrowing,
    NarrowingStep,
    Night,
    NoiseCourse,
    QueueBar,
    QueueBars,
    Staircase,
    Tread,
)

_MIN_EFFECT = 0.02
HOSTILE = (
    "<script>alert(1)</script>",
    "\"quoted\" & 'single' </td></table>",
    "\u202eright to left \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\N{FIRE}\N{WOMAN}\u200d\N{PERSONAL COMPUTER}\N{FLAG IN HOLE} emoji",
    "a_name_without_any_place_to_break_" * 8,
    "control\x01\x0b\x7f and\nlines",
)
_CASES = ("1M cold", "2M cold", "2M hot", "4K cold", "64K hot")


def _said(ratio: float, low: float, high: float, verdict: str, better: str) -> str:
    return f"{verdict}: {axis.told(ratio, better)}, ratio {ratio:.3f} [{downward(low, 3)}, {upward(high, 3)}]"


def dot(ratio: float, width: float = 0.03, better: str = "lower", verdict: str = "", href: str = "/series/") -> Dot:
    low, high = ratio * (1 - width), ratio * (1 + width)
    if not verdict:
        size = axis.speed(ratio, better) or 0.0
        sure = abs(size) > max(width, _MIN_EFFECT)
        verdict = ("improved" if size > 0 else "regressed") if sure else "unchanged" if width < 0.02 else "inconclusive"  # noqa: PLR2004
    return Dot(ratio, low, high, better, verdict, _said(ratio, low, high, verdict, better), href)


def founding(names: tuple[str, ...] = ()) -> Fingerprint:
    """The shape of the founding case: zen3 loses between nodes, zen5 wins, and within a node little moves."""
    chance = random.Random(1)  # noqa: S311 (a picture, no secret)
    columns = (
        Column("haswell", "haswell", "2 sockets", "inconclusive"),
        Column("zen3", "zen3", "epyc-7003", "regressed", "/machines/"),
        Column("zen5", "zen5", "epyc-9005", "improved", "/machines/"),
    )
    groups = []
    for way, slow, fast in (("0\u21921", 1.71, 0.5), ("1\u21920", 1.41, 0.55), ("0\u21920", 1.004, 0.99)):
        lines = []
        for number, case in enumerate(_CASES):
            drift = chance.uniform(0.93, 1.07) if slow > 1.1 else chance.uniform(0.99, 1.01)  # noqa: PLR2004
            cells: tuple[Dot | Absent, ...] = (
                dot(1 + chance.uniform(-0.03, 0.03), 0.06),
                dot(slow * drift, 0.04 if slow > 1.1 else 0.008),  # noqa: PLR2004
                dot(fast * drift, 0.05) if number != 1 else Absent("zen5-1 has no huge pages of 2M"),
            )
            lines.append(Line(case, f"folio_copy {way} {case}", cells, "/series/", (("direction", way),)))
        groups.append(Group(f"folio_copy {way}", tuple(lines), is_open=way != "0\u21920"))
    made = Fingerprint(columns, tuple(groups), _MIN_EFFECT, unshown=3)
    return _renamed(made, names) if names else made


def _renamed(picture: Fingerprint, names: tuple[str, ...]) -> Fingerprint:
    columns = tuple(replace(c, title=names[n], note=names[n + 1]) for n, c in enumerate(picture.columns))
    groups = []
    for place, group in enumerate(picture.groups):
        lines = [replace(line, label=names[n % len(names)], about=names[-1]) for n, line in enumerate(group.lines)]
        groups.append(replace(group, title=names[place % len(names)], lines=tuple(lines)))
    return replace(picture, columns=columns, groups=tuple(groups))


def one_dot() -> Fingerprint:
    line = Line("fault-4k", "mm-basic/fault-4k, cost", (dot(1.012, 0.02),))
    return Fingerprint((Column("zen3", "zen3"),), (Group("", (line,)),), _MIN_EFFECT)


def crowded_dots(machines: int, cases: int) -> Fingerprint:
    chance = random.Random(2)  # noqa: S311
    columns = tuple(Column(f"m{n}", f"bench-{n}", f"uarch {n % 7}") for n in range(machines))
    groups = []
    for number in range(cases // 20):
        lines = []
        for case in range(20):
            cells: list[Dot | Absent] = []
            for _ in range(machines):
                absent = chance.random() < 0.05  # noqa: PLR2004
                ratio = chance.lognormvariate(0, 0.15)
                cells.append(Absent("no such capability") if absent else dot(ratio, chance.uniform(0.01, 0.2)))
            lines.append(Line(f"case-{case}", f"benchmark-{number}/case-{case}", tuple(cells)))
        groups.append(Group(f"benchmark-{number}", tuple(lines), is_open=number == 0))
    return Fingerprint(columns, tuple(groups), _MIN_EFFECT)


def heat(columns: int, rows: int, names: tuple[str, ...] = ()) -> HeatMap:
    chance = random.Random(3)  # noqa: S311
    made = []
    for number in range(rows):
        cells = tuple(_heat(chance, number) for _ in range(columns))
        signs = {cell.verdict for cell in cells if cell is not None}
        name = names[number % len(names)] if names else f"benchmark-{number}"
        disagrees = {"improved", "regressed"} <= signs
        made.append(HeatRow(name, names[-1] if names else f"benchmark-{number}, cost", cells, "/findings/", disagrees))
    titles = [names[n % len(names)] if names else ("zen3", "zen5", "haswell")[n % 3] for n in range(columns)]
    shown = tuple(Column(f"c{n}", title, "" if names else f"bench-{n}") for n, title in enumerate(titles))
    return HeatMap(shown, tuple(made), "Newest judged head of mm/mm-unstable against its reference v6.12")


def _heat(chance: random.Random, number: int) -> Heat | None:
    if chance.random() < 0.08:  # noqa: PLR2004
        return None
    change = chance.gauss(0, 0.18)
    verdict = "unchanged" if abs(change) < 0.03 else "improved" if change > 0 else "regressed"  # noqa: PLR2004
    if chance.random() < 0.2:  # noqa: PLR2004
        verdict = "inconclusive"
    said = f"{verdict}: {axis.factor(change)} {axis.direction(change)}"
    moved = verdict in {"improved", "regressed"}
    return Heat(
        change,
        verdict,
        said,
        f"/timelines/{number}/",
        stale_days=12 if chance.random() < 0.1 else 0,  # noqa: PLR2004
        finding=number if moved and chance.random() < 0.3 else None,  # noqa: PLR2004
        split=moved and chance.random() < 0.1,  # noqa: PLR2004
    )


def course(points: int, titles: tuple[str, ...] = ("haswell", "zen3", "zen5"), *, better: str = "lower") -> Course:
    """zen3 steps down in the middle and zen5 a little up."""
    chance = random.Random(4)  # noqa: S311
    lanes = [_lane(chance, n, title, points, better) for n, title in enumerate(titles)]
    heads = {place * 3: _head(place, titles[-1]) for place in range(points)}
    return Course(tuple(lanes), heads, _MIN_EFFECT)


def _head(place: int, title: str) -> CourseHead:
    subject = f"mm: Change number {place} of many" if title.isalnum() else title
    at = datetime(2026, 6, 1, tzinfo=UTC) + timedelta(hours=5 * place)
    return CourseHead(place * 3, f"{place * 7919:040x}"[::-1], subject, f"Author {place % 9}", at)


def _lane(chance: random.Random, number: int, title: str, points: int, better: str) -> CourseLane:
    level, middle = (1.0, 1.31, 0.92)[number % 3], points // 2
    made = []
    for place in range(points):
        ratio = (level if place >= middle else 1.0) * (1 + chance.gauss(0, 0.008))
        made.append(CoursePoint(place * 3, ratio, ratio * 0.985, ratio * 1.015))
    if level == 1 or points < 10:  # noqa: PLR2004
        return CourseLane(title, title, better, tuple(made))
    head, words = _head(middle, title), axis.told(level, better)
    steps = (CourseStep(head.place, head.sha, f"{words} from {head.sha[:12]} on", "/findings/"),)
    flags = (CourseFlag(head.place, "/findings/", f"finding 4: {words}"),)
    events = (CourseEvent(made[points // 4].place, "bench-2 got new microcode"),)
    return CourseLane(title, title, better, tuple(made), steps, flags, events)


def staircase(names: tuple[str, ...], patches: int = 6) -> Staircase:
    chance = random.Random(6)  # noqa: S311
    flights = []
    for number, name in enumerate(names):
        ratio, treads = 1.0, []
        for patch in range(patches):
            moved = patch == 3 and number % 3 > 0  # noqa: PLR2004
            ratio *= (0.6, 1.4)[number % 2] if moved else 1 + chance.gauss(0, 0.004)
            verdict = ("improved", "regressed")[number % 2] if moved else "unchanged"
            said = f"up to patch {patch + 1}: {axis.told(ratio, 'lower')}"
            treads.append(Tread(None, "inconclusive", "does not build") if patch == 1 else Tread(ratio, verdict, said))
        flights.append(Flight(name, "lower", tuple(treads)))
    return Staircase(tuple(f"mm: Patch {n + 1}" for n in range(patches)), tuple(flights), _MIN_EFFECT)


def narrowing(total: int, subject: str) -> Narrowing:
    low, high, culprit = 0, total, total * 5 // 8
    steps: list[NarrowingStep] = []
    while high - low > 1:
        place = (low + high) // 2 + (len(steps) == 3)  # noqa: PLR2004
        answer = "skipped" if len(steps) == 2 else "bad" if place >= culprit else "good"  # noqa: PLR2004
        if answer == "bad":
            high = place
        elif answer == "good":
            low = place
        sha = f"{place * 7919:040x}"[::-1]
        steps.append(NarrowingStep(place, sha, subject, answer, low, high, f"{high - low} commits left"))
    return Narrowing(total, tuple(steps))


def noise(nights: int) -> NoiseCourse:
    chance = random.Random(7)  # noqa: S311
    first = datetime(2026, 11, 1, tzinfo=UTC).date()
    made = (
        Night(first + timedelta(days=n), abs(chance.gauss(0.012, 0.006)), int(chance.random() > 0.9), 40)  # noqa: PLR2004
        for n in range(nights)
    )
    return NoiseCourse(tuple(made), 0.015)


def queue(names: tuple[str, ...]) -> QueueBars:
    now = datetime(2026, 11, 29, 10, 40, tzinfo=UTC)
    bars = []
    for number, name in enumerate(names):
        start = now + timedelta(minutes=70 * number - 30)
        end = None if number % 5 == 4 else start + timedelta(minutes=65)  # noqa: PLR2004
        kind = "runs" if start < now else "waits"
        bars.append(QueueBar(name, start, end, kind, f"{kind} from {start:%H:%M} on", "/queue/"))
    return QueueBars(now, tuple(bars))
