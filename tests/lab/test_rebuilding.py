import pytest

from server.builds.expiry import expire_build
from server.builds.models import Build, BuildState
from server.builds.records import retire_build
from server.lab.models import Boot, Session, SessionState, Trial
from server.lab.sweep import tend_kernels
from server.lab.trials.kernels import builds_in_use
from tests.builders import EPOCH, because, build_build, build_machine, build_series, build_session

pytestmark = pytest.mark.django_db


def test_waiting_session_has_its_removed_kernel_built_again() -> None:
    session = build_session()
    assert tend_kernels() == 0
    expire_build(session.base_build, because("damaged"))
    assert tend_kernels() == 1
    session.base_build.refresh_from_db()
    session.refresh_from_db()
    assert (session.base_build.state, session.state) == (BuildState.WANTED, SessionState.PLANNED)
    assert tend_kernels() == 0, "it is being built: the session waits"


def test_one_kernel_on_both_sides_is_woken_once() -> None:
    kernel = build_build()
    session = build_session(base_build=kernel, patched_build=kernel)
    expire_build(kernel, because("old"))
    tend_kernels()
    kernel.refresh_from_db()
    assert (kernel.state, Session.objects.get(pk=session.pk).state) == (BuildState.WANTED, SessionState.PLANNED)


def lose_for_good(build: Build) -> None:
    """What the recording of another kernel under its name does to a build."""
    expire_build(build, because("NOT REPRODUCED"))
    retire_build(build, "NOT REPRODUCED")


def test_session_goes_on_with_new_kernels_while_nothing_is_measured() -> None:
    session = build_session()
    old = session.base_build
    lose_for_good(old)
    tend_kernels()
    session.refresh_from_db()
    assert session.base_build != old
    assert (session.base_build.tree_sha, session.base_build.state) == (old.tree_sha, BuildState.WANTED)
    assert f"build {old.pk} cannot be made again as it was" in session.reason
    assert session.state == SessionState.PLANNED


def test_session_with_measured_boots_ends_rather_than_mix_two_kernels() -> None:
    session = build_session()
    boot = session.boots.get(position=0)
    Boot.objects.filter(pk=boot.pk).update(state=Boot.State.MEASURED, boot_id="b", build_id="c")
    lose_for_good(session.patched_build)
    tend_kernels()
    session.refresh_from_db()
    assert session.state == SessionState.FAILED
    assert "cannot be made again as it was" in session.reason


def test_session_whose_kernel_does_not_build_again_says_whose_fault_it_is() -> None:
    session = build_session()
    Build.objects.filter(pk=session.base_build_id).update(state=BuildState.FAILED, reason="mm/x.c:1: error")
    tend_kernels()
    session.refresh_from_db()
    assert session.state == SessionState.FAILED
    assert session.reason.startswith("the base does not build (mm/x.c:1: error); the series builds")


def test_what_the_lab_still_boots_is_in_use() -> None:
    waiting, done = build_session(), build_session(build_series(), state=SessionState.DONE)
    Session.objects.filter(pk=done.pk).update(concluded_at=EPOCH)
    Trial.objects.filter(sessions=done).update(state="done")
    planned = build_series()
    soon = [build_build(planned.base), build_build(planned.head)]
    chosen = build_build()
    build_machine("vm-b", health_build=chosen)
    in_use = builds_in_use()
    assert {waiting.base_build_id, waiting.patched_build_id, chosen.pk, *(build.pk for build in soon)} == in_use
    assert done.base_build_id not in in_use
