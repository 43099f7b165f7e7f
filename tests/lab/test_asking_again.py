"""A build that failed falsely is asked for again: by people with the right, on its page, by command and by API."""

from io import StringIO

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client

from server.builds.models import Build, BuildState
from server.core.errors import DomainError
from server.core.models import Transition
from server.detection.models import Finding
from server.detection.on_trial_over import answer_trial
from server.detection.trials.look import look_at_trial
from server.lab.attempts.ends import fruitless_attempts
from server.lab.care import ask_again
from server.lab.models import BootState, Machine, SessionState, Trial, TrialState
from server.lab.trials.life import plan_trial
from server.sources.models import Series
from tests.builders import because, build_attempt, build_build, build_machine, build_series, build_trial

pytestmark = pytest.mark.django_db
WHY = "somebody pressed stop in Jenkins"


@pytest.fixture
def failed() -> Build:
    return build_build(state=BuildState.FAILED, reason="make: *** [bzImage] Terminated", first_error="Terminated")


@pytest.fixture
def operator(client: Client) -> User:
    person = User.objects.create_user("ada", is_staff=True)
    person.user_permissions.add(Permission.objects.get(codename="change_build"))
    client.force_login(person)
    return person


def state_of(build: Build) -> str:
    build.refresh_from_db()
    return build.state


def judged_series(machine: Machine) -> Trial:
    """A series of which the patched kernel failed, so that nothing was measured; its trial is over and answered."""
    series = build_series(state=Series.State.APPLIED)
    trial = build_trial(purpose=Trial.Purpose.SERIES, series=series, machines=[machine])
    plan_trial(trial_id=trial.pk)
    for build in Build.objects.filter(tree_sha=trial.base.tree_sha):
        build.advance(BuildState.DISPATCHED)
        build.advance(BuildState.BUILT, build_id="ab", kernel_hash="1" * 64)
    for build in Build.objects.filter(tree_sha=trial.patched.tree_sha):
        build.advance(BuildState.DISPATCHED)
        build.advance(BuildState.FAILED, because("make: *** [bzImage] Terminated"))
    plan_trial(trial_id=trial.pk)
    look_at_trial(trial_id=trial.pk)
    answer_trial(trial_id=trial.pk)
    trial.refresh_from_db()
    assert (trial.state, trial.answered_at is not None) == (TrialState.FAILED, True)
    return trial


def test_it_waits_again_and_its_attempts_are_counted_anew(failed: Build) -> None:
    build_attempt(failed, state="lost", agent="one")
    assert ask_again(failed, WHY, actor="ada") == 0
    assert state_of(failed) == BuildState.WANTED
    assert (failed.first_error, failed.given_up, fruitless_attempts(failed)) == ("", False, 0)
    line = Transition.objects.filter(subject="build", subject_id=failed.pk).latest("id")
    assert (line.actor, line.reason) == ("ada", f"asked for again: {WHY}")


def test_sessions_of_its_series_are_booted_after_all_and_judged() -> None:
    trial = judged_series(build_machine("m1"))
    session = trial.sessions.get()
    assert session.state == SessionState.FAILED
    build = session.patched_build
    assert ask_again(build, WHY, actor="ada") == 1
    trial.refresh_from_db()
    session.refresh_from_db()
    assert (trial.state, trial.answered_at, session.state) == (TrialState.MEASURING, None, SessionState.PLANNED)
    assert set(session.boots.values_list("state", flat=True)) == {BootState.PLANNED}
    session.advance(SessionState.FAILED, because("its machine burned down"))
    look_at_trial(trial_id=trial.pk)
    assert answer_trial(trial_id=trial.pk), "whoever asked hears of it once more"
    assert Finding.objects.filter(trial=trial).count() <= 1


def test_session_that_had_begun_stays_as_it_ended() -> None:
    trial = judged_series(build_machine("m1"))
    session = trial.sessions.get()
    session.boots.update(started_by="session-1-1")
    assert ask_again(session.patched_build, WHY, actor="ada") == 0
    session.refresh_from_db()
    assert session.state == SessionState.FAILED


@pytest.mark.parametrize("state", [BuildState.BUILT, BuildState.WANTED, BuildState.CANCELED])
def test_one_that_did_not_fail_is_not_asked_for_again(state: str) -> None:
    build = build_build(state=state)
    with pytest.raises(DomainError, match="only one that failed"):
        ask_again(build, WHY, actor="ada")
    assert state_of(build) == state


def test_one_of_an_edited_configuration_is_not_asked_for_again(failed: Build) -> None:
    failed.config.fragment = "CONFIG_SMP=y\n"
    failed.config.save()
    with pytest.raises(DomainError, match="was edited since"):
        ask_again(failed, WHY, actor="ada")


def test_page_offers_it_to_those_with_the_right_alone(client: Client, failed: Build, operator: User) -> None:
    path = f"/builds/{failed.pk}/"
    stranger = Client()
    assert "log in" in stranger.get(path).content.decode()
    assert stranger.post(f"{path}again/", {"reason": WHY})["Location"] == f"/login/?next={path}"
    other = Client()
    other.force_login(User.objects.create_user("eve"))
    assert other.post(f"{path}again/", {"reason": WHY}).status_code == 403
    assert client.get(f"{path}again/").status_code == 405
    assert client.post(f"{path}again/", {"reason": " "}).status_code == 400
    assert state_of(failed) == BuildState.FAILED
    assert "Ask for it again" in client.get(path).content.decode()
    assert client.post(f"{path}again/", {"reason": WHY})["Location"] == path
    assert state_of(failed) == BuildState.WANTED
    assert client.post(f"{path}again/", {"reason": WHY}).status_code == 409
    assert "ada" in client.get(path).content.decode()


def test_api_takes_it_from_those_with_the_right_alone(client: Client, failed: Build, operator: User) -> None:
    path = f"/api/v1/builds/{failed.pk}/again/"
    kind = {"content_type": "application/json"}
    assert Client().post(path, {"reason": WHY}, **kind).status_code == 401  # type: ignore[arg-type]
    forged = Client(enforce_csrf_checks=True)
    forged.force_login(operator)
    assert forged.post(path, {"reason": WHY}, **kind).status_code == 403  # type: ignore[arg-type]
    assert client.post(path, {"reason": ""}, **kind).status_code == 400  # type: ignore[arg-type]
    assert state_of(failed) == BuildState.FAILED
    assert client.post(path, {"reason": WHY}, **kind).json() == {"sessions": 0}  # type: ignore[arg-type]
    assert state_of(failed) == BuildState.WANTED
    assert client.post(path, {"reason": WHY}, **kind).status_code == 409  # type: ignore[arg-type]
    assert client.post("/api/v1/builds/999999/again/", {"reason": WHY}, **kind).status_code == 404  # type: ignore[arg-type]


def test_command_tells_and_asks(failed: Build) -> None:
    out = StringIO()
    call_command("build", failed.pk, stdout=out)
    assert "Terminated" in out.getvalue()
    call_command("build", failed.pk, again=WHY, by="ada", stdout=out)
    assert state_of(failed) == BuildState.WANTED
    with pytest.raises(CommandError, match="only one that failed"):
        call_command("build", failed.pk, again=WHY, stdout=out)
    with pytest.raises(CommandError, match="no build 999"):
        call_command("build", 999, stdout=out)
