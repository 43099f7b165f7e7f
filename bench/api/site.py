"""A site of five years: 3000 series with findings, 60 machines of 12 microarchitectures, 400 cases, heads of every day.

What is written here is the same at every number of values; `values.py` adds those.
"""

from dataclasses import dataclass
from datetime import timedelta

from django.db import connection

from bench.history.detection import make_history
from server.core import clock
from server.detection.models import Acceptance, ChangePoint, Finding, MachineQuestion, MeasuredHead, Timeline
from server.lab.models import Canary, Machine, PowerCycle, Session, Trial
from server.sources.models import Series
from tests.builders import (
    build_case,
    build_finding,
    build_metric,
    build_series,
    build_trial,
    build_trial_session,
    build_version,
)
from tests.long_history import NEWEST, add_history, add_open_work

SERIES, YEARS, MACHINES, UARCHS = 3000, 5, 60, 12
HEADS = 365 * YEARS + 1
BENCHMARKS, CASES_EACH, METRICS = 20, 20, ("time", "cycles")
RUNS, WARMUP = 9, 1
# Of each: values are those of a typical boot.
CASES_OF_SESSION = 60
CELLS = CASES_OF_SESSION * len(METRICS)
# So many machines measured one series: 2040 cells of two kernels.
WIDE = 17
_SIZES = ("4k", "16k", "64k", "2m", "1g")
_STEPS, _BRANCH_FINDINGS, _OF_PEOPLE = (500, 1000, 1500), 40, 100


@dataclass(frozen=True)
class Site:
    """`wide` is the series that many machines measured; `sessions` are what values can be added to, the first first."""

    wide: Series
    sessions: tuple[int, ...]


def make_site(series: int = SERIES, heads: int = HEADS) -> Site:
    """On an empty database."""
    _add_cases()
    add_history(0, series, year=series // YEARS, machines=MACHINES, uarchs=UARCHS)
    add_open_work()
    make_history("daily", heads)
    wide = _add_wide_series()
    with connection.cursor() as cursor:
        for statement in _ROWS:
            cursor.execute(statement, {"first": 4 * (NEWEST - series), "heads": heads})
    _add_branch_findings(heads)
    _add_people(series)
    wide = Series.objects.select_related("base", "head", "finding").get(pk=wide.pk)
    _add_canary(wide)
    own = Session.objects.filter(trial__series=wide).order_by("id").values_list("pk", flat=True)
    old = Session.objects.filter(pk__gte=4 * (NEWEST - series), state=Session.State.DONE).order_by("-pk")
    return Site(wide, (*own, *old.values_list("pk", flat=True)))


def _add_cases() -> None:
    for number in range(BENCHMARKS):
        benchmark = f"bench-{number}" if number else "mm-basic"
        for metric in METRICS:
            build_metric(metric, benchmark)
        for case in range(CASES_EACH):
            # That of the history is one of them.
            name = f"case-{case}" if number or case < CASES_EACH - 1 else "fault-4k"
            parameters = {"size": _SIZES[case % len(_SIZES)], "threads": str(1 << case % 7)}
            build_version(build_case(name, benchmark, runs=RUNS, warmup=WARMUP, parameters=parameters))


def _add_wide_series() -> Series:
    series = build_series()
    # Virtual machines are not judged with others, and the first one was seen to be one.
    machines = Machine.objects.filter(name__startswith="old-").exclude(name="old-0").order_by("id")[:WIDE]
    trial = build_trial(purpose=Trial.Purpose.SERIES, state=Trial.State.DONE, series=series, key=f"series:{series.pk}")
    for machine in machines:
        build_trial_session(trial, machine, state=Session.State.DONE, looks=[3])
    build_finding(series, trial=trial, state=Finding.State.REPORTED, headline="Split over all machines.")
    return series


# Of 20 sessions of series 4 regressed (0 to 3), 2 improved (4, 5); between equal kernels nothing did.
KIND = "CASE WHEN x.series_id IS NULL THEN 9 ELSE (hashint8(x.id) & 65535) %% 20 END"
_ROWS = (
    """UPDATE sources_message SET paths = ARRAY[format('mm/file-%%s.c', id %% 997), format('include/linux/file-%%s.h',
        id %% 101)], insertions = id %% 200, deletions = id %% 50 WHERE kind = 'patch' AND paths = '{}'""",
    f"""UPDATE detection_comparison y SET base_mean = 1000, base_sd = 4, patched_mean = 1000 * new.ratio,
        patched_sd = 5, verdict = new.verdict, ratio = new.ratio, ratio_low = new.ratio * 0.99,
        ratio_high = new.ratio * 1.01, p_value = 0.001, p_adjusted = 0.01, mde = 0.012
    FROM (SELECT x.id, CASE WHEN {KIND} < 4 THEN 'regressed' WHEN {KIND} < 6 THEN 'improved' ELSE 'unchanged' END
            AS verdict, CASE WHEN {KIND} < 4 THEN 1.02 + 0.05 * {KIND} WHEN {KIND} < 6 THEN 0.9 ELSE 1.001 END
            AS ratio FROM lab_session x WHERE x.id >= %(first)s) AS new
    WHERE y.session_id = new.id""",  # noqa: S608 (of our own words)
    "DELETE FROM detection_findingverdict",
    """INSERT INTO detection_findingverdict (verdict, reason, finding_id, uarch_id, comparison_id, mde, told)
    SELECT y.verdict, '', f.id, m.uarch_id, y.id, y.mde, 1 FROM detection_finding f
        JOIN lab_session x ON x.trial_id = f.trial_id JOIN lab_machine m ON m.id = x.machine_id
        JOIN detection_comparison y ON y.session_id = x.id ON CONFLICT DO NOTHING""",
    """UPDATE detection_finding f SET kind = told.kind, headline = told.kind || ' on one of three (1.07x time of
        mm-basic/fault-4k).'
    FROM (SELECT finding_id, CASE WHEN bool_or(verdict = 'regressed') AND bool_or(verdict = 'improved') THEN 'split'
            WHEN bool_or(verdict = 'regressed') THEN 'regressed' WHEN bool_or(verdict = 'improved') THEN 'improved'
            ELSE 'unchanged' END AS kind FROM detection_findingverdict GROUP BY finding_id) AS told
    WHERE told.finding_id = f.id""",
    # Commits whose first digits tell them apart, as real ones do.
    "UPDATE sources_revision SET sha = left(encode(sha256(convert_to(sha, 'UTF8')), 'hex'), 40)",
    # Heads of every day, the last one of today.
    """UPDATE sources_revision r SET committed_at = now() - make_interval(days => %(heads)s - h.place)
    FROM detection_measuredhead h JOIN sources_branch b ON b.id = h.branch_id
    WHERE h.revision_id = r.id AND b.name = 'daily'""",
    """UPDATE lab_session x SET created_at = now() - make_interval(days => %(heads)s - h.place)
    FROM detection_measuredhead h JOIN sources_branch b ON b.id = h.branch_id
    WHERE h.trial_id = x.trial_id AND b.name = 'daily'""",
)


def _add_branch_findings(heads: int) -> None:
    """Steps of all timelines of the branch, three of them told as findings of their own."""
    places = [place for place in _STEPS if place < heads]
    at = {head.place: head.revision_id for head in MeasuredHead.objects.filter(branch__name="daily")}
    branch = MeasuredHead.objects.filter(branch__name="daily")[0].branch
    last = len(at) - 1
    boundaries = [*places, *(last - number for number in range(min(_BRANCH_FINDINGS, last // 2)))]
    findings = Finding.objects.bulk_create(
        Finding(
            branch=branch, before_id=at[place - 1], after_id=at[place], culprit_id=at[place], virtual=False,
            kind=Finding.Kind.REGRESSED, state=Finding.State.CONFIRMED, headline="Regressed on uarch-0.",
        )
        for place in dict.fromkeys(boundaries)
    )  # fmt: skip
    of_place = dict(zip(places, findings, strict=False))
    ChangePoint.objects.bulk_create(
        ChangePoint(
            timeline=timeline, first_place=place, place=place, before_place=place - 1, effect=0.05, score=9.0,
            state=ChangePoint.State.SETTLED, finding=of_place[place],
        )
        for timeline in Timeline.objects.filter(branch__name="daily")
        for place in places
    )  # fmt: skip


def _add_people(series: int) -> None:
    """What people, and machines about themselves, wrote over the years."""
    machines = list(Machine.objects.filter(name__startswith="old-"))
    told = Finding.objects.filter(pk__gte=NEWEST - series, state=Finding.State.REPORTED).order_by("-pk")[:_OF_PEOPLE]
    later = clock.now() + timedelta(days=30)
    Acceptance.objects.bulk_create(
        Acceptance(finding=finding, reason="The gain elsewhere is worth it.", person="ada", expires_at=later)
        for finding in told
    )
    MachineQuestion.objects.bulk_create(
        MachineQuestion(key=f"event:{number}", kind="event", machine=machine, state="open", detail="It moved.")
        for number, machine in enumerate(machines * 2)
    )
    PowerCycle.objects.bulk_create(PowerCycle(machine=machine, state=PowerCycle.State.DONE) for machine in machines * 2)


def _add_canary(series: Series) -> None:
    """Its newest one is judged, which is the most that its page can tell."""
    assert series.base is not None
    machine = Machine.objects.filter(name__startswith="old-").order_by("id")[0]
    Canary.objects.create(
        tree=series.base.tree, machine=machine, file="init/main.c", to="sink@example.org", series=series,
        message_id=series.root_message_id, posted_at=clock.now(), stage="report",
    )  # fmt: skip
