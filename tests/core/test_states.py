import threading

import pytest
from django.db import IntegrityError, connection, transaction

from server.builds.models import Build, BuildState
from server.core.database import advisory_lock
from server.core.models import Transition
from tests.builders import because, build_build


@pytest.mark.django_db
def test_a_step_is_won_once() -> None:
    build = build_build(state=BuildState.WANTED)
    late = Build.objects.get(pk=build.pk)
    assert build.advance(BuildState.DISPATCHED, because("attempt 1"))
    assert not late.advance(BuildState.FAILED, because("too late"))
    late.refresh_from_db()
    assert (late.state, late.reason) == (BuildState.DISPATCHED, "attempt 1")


@pytest.mark.django_db
def test_every_step_leaves_one_line_of_history_with_the_trace() -> None:
    build = build_build(state=BuildState.WANTED)
    build.advance(BuildState.DISPATCHED, because("attempt 1"))
    lines = Transition.objects.filter(subject="build", subject_id=build.pk)
    assert [(line.before, line.after, line.reason, line.trace) for line in lines] == [
        ("", "wanted", "", build.trace),
        ("wanted", "dispatched", "attempt 1", build.trace),
    ]


@pytest.mark.django_db
def test_a_step_for_a_new_cause_has_its_trace() -> None:
    build = build_build(state=BuildState.FAILED)
    assert build.advance(BuildState.WANTED, because("again"), trace="feedfeedfeedfeed")
    line = Transition.objects.filter(subject="build", subject_id=build.pk).latest("pk")
    assert (line.after, line.trace) == ("wanted", "feedfeedfeedfeed")


@pytest.mark.django_db
def test_a_new_reason_for_the_same_state_is_a_line_of_history_and_an_old_one_is_not() -> None:
    build = build_build(state=BuildState.WANTED)
    since = build.state_since
    assert build.note(because("waits for a builder"))
    assert build.note(because("waits for a builder"))
    build.refresh_from_db()
    assert (build.state, build.reason, build.state_since) == (BuildState.WANTED, "waits for a builder", since)
    lines = Transition.objects.filter(subject="build", subject_id=build.pk)
    assert [(line.before, line.after, line.reason) for line in lines] == [
        ("", "wanted", ""),
        ("wanted", "wanted", "waits for a builder"),
    ]


@pytest.mark.django_db
def test_a_reason_noted_after_somebody_else_moved_the_row_changes_nothing() -> None:
    build = build_build(state=BuildState.WANTED)
    late = Build.objects.get(pk=build.pk)
    build.advance(BuildState.DISPATCHED, because("attempt 1"))
    assert not late.note(because("too late"))
    build.refresh_from_db()
    assert build.reason == "attempt 1"


@pytest.mark.django_db
def test_step_that_is_not_allowed_is_a_programming_error() -> None:
    build = build_build(state=BuildState.FAILED)
    with pytest.raises(ValueError, match="no way from failed to running"):
        build.advance(BuildState.RUNNING)


@pytest.mark.django_db
def test_database_refuses_an_unknown_state() -> None:
    build = build_build(state=BuildState.WANTED)
    with pytest.raises(IntegrityError, match="build_state_known"), transaction.atomic():
        Build.objects.filter(pk=build.pk).update(state="splendid")


@pytest.mark.django_db
def test_built_kernel_without_a_build_id_is_refused_by_the_database() -> None:
    build = build_build(state=BuildState.RUNNING)
    with pytest.raises(IntegrityError, match="built_has_id"), transaction.atomic():
        Build.objects.filter(pk=build.pk).update(state=BuildState.BUILT)


@pytest.mark.django_db(transaction=True)
def test_advisory_lock_has_one_holder_and_is_free_afterwards() -> None:
    seen: list[bool] = []

    def look() -> None:
        with advisory_lock("round") as free:
            seen.append(free)
        connection.close()

    with advisory_lock("round") as free:
        assert free
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [False, True]
