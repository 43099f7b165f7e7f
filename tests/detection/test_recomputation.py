"""All that is stored, computed anew in chunks: each row once, whatever happens to who computes it, and one report."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from io import StringIO
from types import SimpleNamespace

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from server.core import clock, tasks
from server.core.access.tries import MOST_BEGUN, OutOfBoundsError
from server.core.database import advisory_lock, connect_apart
from server.detection.models import Comparison, Finding, Recomputation, RecomputationChunk, TimelinePoint
from server.detection.noise.profiles import refresh_profiles
from server.detection.recompute import chunks, following, outcomes
from server.detection.recompute.chunks import begin, forget_recomputations, go_on
from server.detection.recompute.differences import Difference
from server.detection.recompute.outcomes import Recomputed
from server.detection.trials.look import look_at_trial
from server.lab.models import Machine
from tests.builders import build_machine, build_series
from tests.detection.heads.histories import History, branch_differences
from tests.detection.measured import STEADY, judge_series, measured_trial, physical
from tests.detection.noise.shown import shown_trial
from workers.detection import recompute as task

pytestmark = pytest.mark.django_db
Kind = RecomputationChunk.Kind
HEADS = 6


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_ROWS_AT_ONCE", {Kind.FINDING: 2, Kind.TRIAL: 4, Kind.NOISE: 1})
    monkeypatch.setattr(following, "_LOOK_SECONDS", 0.0)


@pytest.fixture
def site() -> History:
    """Five findings, trials of heads and of nights, noise of two machines, timelines of a branch; not all is true."""
    machine = physical("h1", "haswell")
    for _ in range(5):
        trial = measured_trial(build_series(), {machine: {"copy": STEADY}}, spread=0.001)
        assert judge_series(series_id=trial.series_id or 0)
    for name in ("n1", "n2"):
        shown_trial(build_machine(name), {"copy": 0.002}, night=1)
        assert refresh_profiles(Machine.objects.get(name=name))
    history = History({"t1": "haswell", "t2": "zen3"})
    history.heads(HEADS)
    look_at_trial(trial_id=measured_trial(None, {machine: {"copy": STEADY}}, purpose="bisect", key="b:1").pk)
    Comparison.objects.filter(session__machine=machine).update(ratio=1.5)
    TimelinePoint.objects.filter(pk=TimelinePoint.objects.earliest("pk").pk).update(ratio=2.0)
    return history


@pytest.fixture
def at_work(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A worker that takes each message at once; the chunks that it was sent."""
    taken: list[int] = []

    def work(name: str, args: tuple[int | str, ...]) -> None:
        if name == "detection.recompute":
            taken.append(int(args[0]))
            task(taken[-1])

    monkeypatch.setattr("server.core.tasks.transaction.on_commit", lambda call, **_options: call())
    monkeypatch.setattr(tasks, "send", work)
    return taken


def said(*words: str) -> tuple[list[str], str]:
    """All lines of the command but those of its progress, and its error."""
    out, error = StringIO(), ""
    try:
        call_command("recompute", *words, stdout=out)
    except CommandError as failed:
        error = str(failed)
    return [line for line in out.getvalue().splitlines() if " %, " not in line and "begun" not in line], error


def every_chunk(made: Recomputation) -> "list[RecomputationChunk]":
    return list(made.chunks.order_by("pk"))


@pytest.mark.usefixtures("site")
def test_every_row_is_in_one_chunk() -> None:
    made = begin()
    for kind, most in chunks._ROWS_AT_ONCE.items():
        planned = [chunk for chunk in every_chunk(made) if chunk.kind == kind]
        rows = [
            list(outcomes.rows_of(kind).filter(pk__range=(chunk.first, chunk.last)).values_list("pk", flat=True))
            for chunk in planned
        ]
        assert [pk for some in rows for pk in some] == list(outcomes.rows_of(kind).values_list("pk", flat=True))
        assert [len(some) for some in rows] == [chunk.size for chunk in planned]
        assert max(map(len, rows)) <= most
    # Who is waited for longest begins first.
    assert next((chunk.kind, chunk.size) for chunk in every_chunk(made)) == (Kind.FLEET, HEADS)
    assert [chunk.kind for chunk in every_chunk(made)].count(Kind.FINDING) == 3


@pytest.mark.usefixtures("site", "at_work")
def test_workers_find_what_one_process_finds() -> None:
    here = said("--check")
    assert here[1] == "what is stored differs from what the measurements give"
    assert len(here[0]) > 10
    assert said("--check", "--by-workers") == here
    assert Recomputation.objects.get().ended_at


@pytest.mark.usefixtures("at_work")
def test_what_is_right_is_no_difference() -> None:
    trial = measured_trial(build_series(), {physical("h1", "haswell"): {"copy": STEADY}}, spread=0.001)
    assert judge_series(series_id=trial.series_id or 0)
    assert said("--check", "--by-workers") == (["1 findings recomputed, 0 differences"], "")


@pytest.mark.usefixtures("at_work")
def test_a_site_without_rows_is_done_at_once() -> None:
    assert said("--check", "--by-workers") == (["0 findings recomputed, 0 differences"], "")


@pytest.mark.usefixtures("site")
def test_a_chunk_that_comes_twice_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = begin()
    assert not any(go_on(chunk.pk) for chunk in every_chunk(made))
    before = list(made.chunks.values())
    assert all(row["done_at"] for row in before)
    monkeypatch.setattr(chunks, "recomputed", lambda *_args: pytest.fail("computed twice"))
    assert not any(go_on(chunk.pk) for chunk in every_chunk(made))
    assert list(made.chunks.values()) == before


@pytest.mark.usefixtures("site")
def test_a_chunk_in_the_hands_of_another_is_left_alone() -> None:
    chunk = every_chunk(begin())[-1]
    with advisory_lock(f"detection.recompute.{chunk.pk}"):
        assert not go_on(chunk.pk)
    chunk.refresh_from_db()
    assert (chunk.tries, chunk.moved_at) == (0, None)


@pytest.mark.usefixtures("site")
def test_who_lost_the_lock_notes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another has moved on meanwhile: a difference must not count twice."""
    chunk = findings_of(begin())[0]

    def overtaken(_kind: str, pk: int) -> Recomputed:
        RecomputationChunk.objects.filter(pk=chunk.pk).update(reached=pk, found=1, differences=["its own"])
        return Recomputed(("mine",))

    monkeypatch.setattr(chunks, "recomputed", overtaken)
    assert not go_on(chunk.pk)
    chunk.refresh_from_db()
    assert (chunk.found, chunk.differences, chunk.done_at) == (1, ["its own"], None)


def findings_of(made: Recomputation) -> "list[RecomputationChunk]":
    return list(made.chunks.filter(kind=Kind.FINDING).order_by("pk"))


def dying(at: int, times: int) -> Callable[[str, int], Recomputed]:
    """Computes one difference for each row; at the one with this id the worker dies so often."""
    deaths = iter(range(times))

    def compute(_kind: str, pk: int) -> Recomputed:
        if pk == at and next(deaths, None) is not None:
            raise SystemExit
        return Recomputed((f"row {pk}",))

    return compute


@pytest.mark.usefixtures("site")
def test_killed_in_a_chunk_the_next_worker_goes_on_with_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = findings_of(begin())[0]
    monkeypatch.setattr(chunks, "recomputed", dying(chunk.last, 2))
    for reached, tries in ((chunk.first, 1), (chunk.first, 2)):
        with pytest.raises(SystemExit):
            go_on(chunk.pk)
        chunk.refresh_from_db()
        assert (chunk.reached, chunk.tries, chunk.found) == (reached, tries, 1)
    assert not go_on(chunk.pk)
    chunk.refresh_from_db()
    assert chunk.done_at
    assert (chunk.differences, chunk.found, chunk.checked) == ([f"row {chunk.first}", f"row {chunk.last}"], 2, 2)


@pytest.mark.usefixtures("site")
def test_a_row_that_no_worker_outlives_is_told_and_the_others_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = findings_of(begin())[0]
    monkeypatch.setattr(chunks, "recomputed", dying(chunk.first, MOST_BEGUN))
    for _ in range(MOST_BEGUN):
        with pytest.raises(SystemExit):
            go_on(chunk.pk)
    assert not go_on(chunk.pk)
    chunk.refresh_from_db()
    assert chunk.errors == [f"finding {chunk.first} could not be computed: 3 workers came to no end with it"]
    assert (chunk.differences, chunk.checked, chunk.taken) == ([f"row {chunk.last}"], 1, 2)
    assert chunk.done_at


@pytest.mark.usefixtures("site")
def test_timelines_that_no_worker_outlives_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = every_chunk(begin())[0]
    RecomputationChunk.objects.filter(pk=chunk.pk).update(tries=MOST_BEGUN)
    monkeypatch.setattr(chunks, "replayed", lambda *_args: pytest.fail("begun once more"))
    assert not go_on(chunk.pk)
    chunk.refresh_from_db()
    assert chunk.errors == [
        f"fleet {chunk.first}, after head 0 could not be computed: 3 workers came to no end with it"
    ]
    assert chunk.done_at


@pytest.mark.usefixtures("site", "at_work")
def test_a_broken_row_is_told_with_its_id_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, made = outcomes._DIFFERENCES[Kind.FINDING], begin()
    broken = findings_of(made)[1].first

    def compute(finding: Finding) -> Iterable[Difference]:
        if finding.pk == broken:
            raise KeyError("gaps")
        return usual(finding)

    monkeypatch.setitem(outcomes._DIFFERENCES, Kind.FINDING, compute)
    line = f"finding {broken} could not be computed: KeyError: 'gaps'"
    for words in ((), ("--by-workers",)):
        lines, error = said(*words)
        assert error == "not all that is stored could be computed"
        assert line in lines
        assert lines[-2].startswith(f"4 findings and {HEADS + 3} other trials recomputed, ")
        assert lines[-1] == "1 could not be computed"


@pytest.mark.usefixtures("site")
def test_a_database_that_is_away_is_no_fault_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = findings_of(begin())[0]

    def away(_row: object) -> None:
        raise OperationalError("the server closed the connection")

    monkeypatch.setitem(outcomes._DIFFERENCES, Kind.FINDING, away)
    with pytest.raises(OperationalError):
        go_on(chunk.pk)
    chunk.refresh_from_db()
    assert (chunk.errors, chunk.reached) == ([], 0)


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("end", [MemoryError, SoftTimeLimitExceeded])
def test_memory_or_time_that_is_not_enough_is_a_try_of_the_chunk(
    monkeypatch: pytest.MonkeyPatch, end: type[Exception]
) -> None:
    chunk = findings_of(begin())[0]

    def too_much(_row: object) -> None:
        raise end

    monkeypatch.setitem(outcomes._DIFFERENCES, Kind.FINDING, too_much)
    for tries in range(1, MOST_BEGUN + 1):
        # Not MemoryError, which would end the whole worker.
        with pytest.raises(OutOfBoundsError, match=f"finding {chunk.first}: {end.__name__}"):
            task(chunk.pk)
        chunk.refresh_from_db()
        assert (chunk.errors, chunk.reached, chunk.tries) == ([], 0, tries)
    monkeypatch.setitem(outcomes._DIFFERENCES, Kind.FINDING, lambda _row: [])
    task(chunk.pk)
    chunk.refresh_from_db()
    assert chunk.errors == [f"finding {chunk.first} could not be computed: 3 workers came to no end with it"]
    assert (chunk.checked, chunk.taken) == (1, 2)


@pytest.mark.parametrize("seconds", [0.0, 1000.0])
def test_timelines_that_were_put_down_after_any_head_give_the_same(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """With steps of all machines and of one, a late head, and something wrong at the beginning and at the end."""
    history = History({"h1": "haswell", "h2": "haswell", "z1": "zen3"}, cases=6)
    history.heads(13)
    history.heads(6, history.all_of("z1", 1.06))
    history.heads(14, {**history.all_of("z1", 1.06), **history.everywhere(0, 1.2)})
    assert branch_differences() == []
    for point in (TimelinePoint.objects.earliest("pk"), TimelinePoint.objects.latest("pk")):
        TimelinePoint.objects.filter(pk=point.pk).update(ratio=2.0)
    monkeypatch.setattr(outcomes, "SECONDS", seconds)
    (chunk,) = begin().chunks.filter(kind=Kind.FLEET)
    shares = 1
    while go_on(chunk.pk):
        shares += 1
    assert shares == (34 if not seconds else 1)
    chunk.refresh_from_db()
    assert chunk.differences == [str(one) for one in branch_differences()]
    assert (chunk.found, chunk.taken, chunk.rest) == (2, chunk.taken, None)
    assert chunk.done_at


@pytest.mark.usefixtures("site")
def test_time_is_up_in_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others get their turn, and the chunk goes on with another message."""
    chunk = findings_of(begin())[0]
    monkeypatch.setattr(chunks, "SECONDS", 0.0)
    assert go_on(chunk.pk)
    chunk.refresh_from_db()
    assert (chunk.taken, chunk.tries, chunk.done_at) == (1, 0, None)
    assert not go_on(chunk.pk)
    chunk.refresh_from_db()
    assert (chunk.taken, chunk.size) == (2, 2)
    assert chunk.done_at


@pytest.mark.usefixtures("site", "at_work")
def test_interrupted_the_same_command_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    here, looks = said(), iter((0, 1))
    usual = following.going

    def interrupted(recomputation: Recomputation) -> following.Going:
        if next(looks, None) == 1:
            raise KeyboardInterrupt
        return usual(recomputation)

    monkeypatch.setattr(following, "_AT_ONCE", 2)
    monkeypatch.setattr(following, "going", interrupted)
    assert said("--by-workers")[1].startswith("interrupted: ")
    done = dict(Recomputation.objects.get().chunks.exclude(done_at=None).values_list("pk", "done_at"))
    assert 0 < len(done) < Recomputation.objects.get().chunks.count()
    assert said("--by-workers") == here
    made = Recomputation.objects.get()
    assert {pk: made.chunks.get(pk=pk).done_at for pk in done} == done


@pytest.mark.usefixtures("site", "at_work")
def test_one_that_has_ended_or_is_of_other_code_is_not_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    first = begin()
    assert begin() == first
    assert begin(anew=True) != first
    said("--by-workers")
    ended = begin()
    assert Recomputation.objects.filter(ended_at=None).count() == 2
    monkeypatch.setattr(chunks, "CODE", "0.0.0 older")
    assert begin() not in (first, ended)
    # A worker of that version has nothing to do with it.
    assert not go_on(every_chunk(ended)[0].pk)
    assert not ended.chunks.exclude(moved_at=None).exists()


@pytest.mark.usefixtures("site")
def test_chunks_are_sent_again_while_nothing_moves(
    monkeypatch: pytest.MonkeyPatch, sent_tasks: list[tuple[str, tuple[int | str, ...]]]
) -> None:
    """The broker was emptied, or the worker died: and what moves is not sent."""
    made = begin()
    waiting = every_chunk(made)
    monkeypatch.setattr(following, "_SILENCE_SECONDS", 0.0)
    made.chunks.filter(pk=waiting[0].pk).update(moved_at=clock.now() + timedelta(days=1))
    looks = iter(range(2))

    def tell(_going: following.Going) -> None:
        if next(looks, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr("server.core.tasks.transaction.on_commit", lambda call, **_options: call())
    with pytest.raises(KeyboardInterrupt):
        following.follow(made, tell, pytest.fail)
    counts = [sent_tasks.count(("detection.recompute", (chunk.pk,))) for chunk in waiting]
    assert counts == [1, *[3] * (len(waiting) - 1)]


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Seconds since the beginning, for who follows: ten pass between two looks, at once."""
    seconds = [0.0]

    def sleep(some: float) -> None:
        seconds[0] += some

    monkeypatch.setattr(following, "_LOOK_SECONDS", 10.0)
    monkeypatch.setattr(following, "time", SimpleNamespace(monotonic=lambda: seconds[0], sleep=sleep))
    return lambda: seconds[0]


@pytest.mark.usefixtures("site")
def test_a_chunk_that_nobody_takes_is_sent_ever_less_often(
    monkeypatch: pytest.MonkeyPatch, passing: Callable[[], float]
) -> None:
    made = begin()
    chunk, sent = findings_of(made)[0], []
    monkeypatch.setattr("server.core.tasks.transaction.on_commit", lambda call, **_options: call())
    monkeypatch.setattr(tasks, "send", lambda _name, args: sent.append(passing()) if args == (chunk.pk,) else None)

    def tell(_going: following.Going) -> None:
        if passing() == 2740:
            made.chunks.filter(pk=chunk.pk).update(moved_at=clock.now() - timedelta(hours=1))
        if passing() == 2900:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        following.follow(made, tell, pytest.fail)
    assert sent == [0, 30, 90, 210, 450, 930, 1830, 2730, 2760, 2820]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("at_work")
def test_who_follows_outlives_a_restart_of_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is ended by the server between two looks."""
    physical("h1", "haswell")
    trial = measured_trial(build_series(), {Machine.objects.get(): {"copy": STEADY}}, spread=0.001)
    assert judge_series(series_id=trial.series_id or 0)
    usual = following.going
    ended: list[int] = []

    def going(recomputation: Recomputation) -> following.Going:
        now = usual(recomputation)
        if not ended:
            ended.append(connection.connection.info.backend_pid)
            with connect_apart() as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", ended)
        return now

    monkeypatch.setattr(following, "going", going)
    lines, error = said("--check", "--by-workers")
    assert error == ""
    assert [line.partition(":")[0] for line in lines] == [
        "the database is away, it is asked again",
        "1 findings recomputed, 0 differences",
    ]
    assert Recomputation.objects.get().ended_at


def test_a_database_that_does_not_come_back_ends_who_follows(
    monkeypatch: pytest.MonkeyPatch, passing: Callable[[], float]
) -> None:
    made = begin()
    said_of_it: list[str] = []

    def away(_recomputation: Recomputation) -> None:
        raise OperationalError("connection refused\nIs the server running?")

    monkeypatch.setattr(following, "_open", away)
    monkeypatch.setattr(following, "connection", SimpleNamespace(close=lambda: None))
    with pytest.raises(OperationalError):
        following.follow(made, lambda now: pytest.fail(f"{now}"), said_of_it.append)
    assert said_of_it == ["the database is away, it is asked again: connection refused"]
    assert passing() == 900


@pytest.mark.usefixtures("site")
def test_progress_counts_rows_and_heads_and_foresees_the_rest() -> None:
    made = begin()
    size = sum(chunk.size for chunk in every_chunk(made))
    before = following.going(made)
    assert (before.size, before.taken, before.needed, before.share) == (size, 0, None, 0.0)
    findings = made.chunks.filter(kind=Kind.FINDING)
    findings.update(taken=1, seconds=3.0)
    findings.filter(pk=findings[0].pk).update(taken=2, done_at=clock.now(), moved_at=clock.now(), found=2)
    now = following.going(made)
    # Of five findings four are done in nine seconds; of the other kinds nobody knows better.
    assert (now.taken, now.found, now.moved) == (4, 2, True)
    assert now.needed == pytest.approx(9 / 4 * (size - 4))


@pytest.mark.usefixtures("site", "at_work")
def test_where_everything_differs_the_first_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (chunks, following):
        monkeypatch.setattr(place, "MOST_TOLD", 1)
    _, everything = said("--check")
    lines, error = said("--check", "--by-workers")
    assert error == everything
    assert len([line for line in lines if line.startswith("and ") and " more differences of " in line]) > 2
    assert lines[-1] == said()[0][-1]


def test_old_ones_are_forgotten() -> None:
    begin()
    old = begin(anew=True)
    Recomputation.objects.filter(pk=old.pk).update(begun_at=clock.now() - timedelta(days=91))
    assert forget_recomputations() == 1
    assert not Recomputation.objects.filter(pk=old.pk).exists()


@pytest.mark.parametrize("words", [("--anew",), ("--by-workers", "--series", "1")])
def test_words_that_do_not_go_together_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        call_command("recompute", *words)


def test_trials_of_a_series_and_nothing_else() -> None:
    trial = measured_trial(build_series(), {physical("h1", "haswell"): {"copy": STEADY}}, spread=0.001)
    assert judge_series(series_id=trial.series_id or 0)
    shown_trial(build_machine("n1"), {"copy": 0.002}, night=1)
    assert said("--series", str(trial.series_id)) == (["1 findings recomputed, 0 differences"], "")
