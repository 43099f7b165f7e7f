"""Trials that end, and what nobody asks for any more."""

import pytest

from server.builds.models import Build, BuildState
from server.builds.wanted import want_build
from server.core.models import Transition
from server.lab import rounds
from server.lab.attempts import ends, life
from server.lab.models import Attempt, AttemptState, Session, SessionState, Trial, TrialState
from server.lab.sweep import cancel_superseded
from server.lab.trials.kernels import builds_in_use
from server.lab.trials.life import cancel_trial, conclude, finish_trial, plan_trial
from server.sources.models import Series, SeriesState
from tests.builders import (
    because,
    build_build,
    build_machine,
    build_revision,
    build_series,
    build_trial,
    build_trial_session,
)
from tests.lab.test_attempts import RememberingDispatcher
from tests.lab.trials.conftest import Sent

pytestmark = pytest.mark.django_db


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> RememberingDispatcher:
    port = RememberingDispatcher()
    monkeypatch.setattr(rounds, "dispatcher", lambda: port)
    return port


def test_trial_ends_once_and_wakes_up_who_asked(wakes: Sent) -> None:
    trial = build_trial(state=TrialState.MEASURING)
    late = Trial.objects.get()
    assert finish_trial(trial, TrialState.DONE, because("2 sessions judged"))
    assert not finish_trial(late, TrialState.FAILED, because("no"))
    assert not cancel_trial(late, because("no"))
    assert (Trial.objects.get().state, wakes) == (TrialState.DONE, [("detection.answer", (trial.pk,))])


def test_canceled_trial_stops_what_waits_and_what_runs(port: RememberingDispatcher) -> None:
    trial = build_trial(state=TrialState.MEASURING)
    runs, waits, done = (build_trial_session(trial, build_machine(name)) for name in ("m1", "m2", "m3"))
    Session.objects.filter(pk=waits.pk).update(needs=["cxl"])
    Session.objects.filter(pk=done.pk).update(state=SessionState.DONE)
    rounds.place_work()
    attempt = Attempt.objects.select_related("build", "session__machine", "session__series").get(session=runs)
    life.claim_attempt(attempt, "one")
    assert life.renew_lease(attempt=attempt, agent="one", progress="booting")
    assert cancel_trial(trial, because("its finding is invalid"), actor="ada")
    assert not life.renew_lease(attempt=attempt, agent="one", progress="booting")
    ends.end_attempt(attempt=attempt, agent="one", outcome="canceled", reason="")
    states = dict(Session.objects.values_list("machine__name", "state"))
    assert states == {"m1": SessionState.CANCELED, "m2": SessionState.CANCELED, "m3": SessionState.DONE}
    assert Session.objects.get(pk=done.pk).concluded_at is not None
    last = Transition.objects.filter(subject="trial").latest("id")
    assert (last.after, last.reason, last.actor) == ("canceled", "its finding is invalid", "ada")


def test_session_of_a_canceled_trial_whose_agent_was_lost_is_not_tried_again(port: RememberingDispatcher) -> None:
    trial = build_trial(state=TrialState.MEASURING)
    session = build_trial_session(trial)
    rounds.place_work()
    attempt = Attempt.objects.get()
    assert ends.cancel_attempt(attempt, because("its machine hangs"), losing=True)
    cancel_trial(trial, because("no longer"))
    attempt.refresh_from_db()
    ends.finish_canceled(attempt, because("its machine hangs"))
    session.refresh_from_db()
    assert session.state == SessionState.PLANNED
    assert cancel_superseded() == 1
    session.refresh_from_db()
    assert (session.state, session.reason) == (SessionState.CANCELED, "no longer")


def test_all_questions_about_a_superseded_series_are_canceled(wakes: Sent) -> None:
    series = build_series()
    asked = [build_trial(purpose=purpose, series=series) for purpose in ("series", "patch", "bisect")]
    asked[1].advance(TrialState.MEASURING)
    session = build_trial_session(asked[1])
    other = build_trial(purpose="head")
    Series.objects.filter(pk=series.pk).update(state=SeriesState.SUPERSEDED)
    cancel_superseded()
    session.refresh_from_db()
    assert session.state == SessionState.CANCELED
    assert dict(Trial.objects.values_list("pk", "state")) == {
        **{trial.pk: TrialState.CANCELED for trial in asked},
        other.pk: TrialState.WANTED,
    }
    assert all(("detection.answer", (trial.pk,)) in wakes for trial in asked)


def test_builds_go_with_the_last_trial_that_wants_them() -> None:
    machine = build_machine()
    base, shared, own = (build_revision() for _ in range(3))
    series = build_series(base=base, head=shared)
    one = build_trial(base, own, purpose="bisect", machines=[machine])
    other = build_trial(base, shared, purpose="fix", machines=[machine])
    for trial in (one, other):
        plan_trial(trial_id=trial.pk)
    Series.objects.filter(pk=series.pk).update(state=SeriesState.SUPERSEDED)
    assert cancel_superseded() == 0, "a trial that is not about the series wants the same kernels"
    cancel_trial(one, because("no longer"))
    cancel_superseded()
    built = dict(Build.objects.values_list("revision", "state"))
    assert built == {base.pk: "wanted", shared.pk: "wanted", own.pk: "canceled"}
    cancel_trial(other, because("no longer"))
    cancel_superseded()
    assert set(Build.objects.values_list("state", flat=True)) == {BuildState.CANCELED}


def test_kernel_built_again_for_a_waiting_session_is_not_canceled() -> None:
    session = build_trial_session(build_trial(state=TrialState.DONE))
    old = build_trial(session.base_build.revision, state=TrialState.CANCELED)
    Build.objects.filter(pk=session.base_build_id).update(state=BuildState.WANTED)
    Trial.objects.filter(pk=old.pk).update(patched=session.base_build.revision)
    assert cancel_superseded() == 0


def test_files_stay_while_a_session_may_boot_again() -> None:
    trial = build_trial(state=TrialState.MEASURING, looks=[2, 4])
    session = build_trial_session(trial, state=SessionState.DONE)
    wanted = build_trial()
    kernel = build_build(wanted.patched)
    pair = {session.base_build_id, session.patched_build_id}
    assert builds_in_use() == {*pair, kernel.pk}
    conclude(session, cut_short=False)
    cancel_trial(wanted, because("no longer"))
    assert builds_in_use() == set()


def test_attempt_of_a_build_that_a_trial_wants_is_not_stopped(port: RememberingDispatcher) -> None:
    machine = build_machine()
    trial = build_trial(machines=[machine])
    plan_trial(trial_id=trial.pk)
    rounds.place_work()
    cancel_superseded()
    assert set(Attempt.objects.values_list("state", flat=True)) <= {AttemptState.SUBMITTING, AttemptState.QUEUED}
    build = Build.objects.earliest("pk")
    again = want_build(revision=build.revision, config=build.config, toolchain=build.toolchain, trace="t")
    assert again == build
