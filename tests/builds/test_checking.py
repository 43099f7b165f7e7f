from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from server.builds.expiry import CHECK_EVERY, check_artifacts, put_aside, serve_artifact
from server.builds.models import Artifact, BuildState
from server.builds.records import record_build
from server.builds.storage import ArtifactStore, artifact_store
from server.builds.wanted import want_build
from server.core import clock
from server.core.access.tokens import issue_token
from server.core.errors import DomainError
from server.core.models import ApiToken
from tests.builders import build_attempt, build_machine, build_session
from tests.builds.files import IMAGE, result, sha_of, state_of, stored_build
from tests.builds.test_storage import damage

pytestmark = pytest.mark.django_db
HOUR = 3600.0


def test_damaged_image_is_found_put_aside_and_built_again_when_wanted(store: ArtifactStore) -> None:
    build = stored_build(build_id="abcd")
    damage(store, sha_of(IMAGE), b"rot")
    assert check_artifacts(seconds=HOUR) == (2, [sha_of(IMAGE)])
    assert state_of(build) == BuildState.EXPIRED
    assert build.reason == "its bootable kernel image is damaged: found by a check"
    assert store.find(sha_of(IMAGE)) is None
    want_build(revision=build.revision, config=build.config, toolchain=build.toolchain, trace="t")
    record_build(build=build, result=result(IMAGE))
    assert state_of(build) == BuildState.BUILT
    assert check_artifacts(seconds=HOUR, everything=True) == (2, [])


def test_file_that_somebody_deleted_is_found_too_and_all_its_builds_expire(store: ArtifactStore) -> None:
    builds = [stored_build(), stored_build()]
    store.remove(sha_of(IMAGE))
    assert check_artifacts(seconds=HOUR)[1] == [sha_of(IMAGE)]
    assert [state_of(build) for build in builds] == [BuildState.EXPIRED] * 2
    assert "is gone" in builds[0].reason


def test_lost_log_leaves_the_kernel_as_it_is() -> None:
    build = stored_build()
    artifact_store().remove(sha_of(b"log"))
    check_artifacts(seconds=HOUR)
    assert state_of(build) == BuildState.BUILT
    assert build.artifacts.get(kind="log").removal == "gone: found by a check"


def test_each_file_is_read_once_a_week_and_the_longest_unread_first() -> None:
    stored_build({"image": b"1", "log": b"2"})
    assert check_artifacts(seconds=HOUR) == (2, [])
    assert check_artifacts(seconds=HOUR) == (0, [])
    old = clock.now() - CHECK_EVERY - timedelta(hours=1)
    Artifact.objects.filter(sha256=sha_of(b"2")).update(checked_at=old)
    assert check_artifacts(seconds=HOUR) == (1, [])
    assert check_artifacts(seconds=0, everything=True) == (0, [])


def test_whole_file_is_not_put_aside_whoever_says_so() -> None:
    build = stored_build()
    assert not put_aside(sha_of(IMAGE), "an agent")
    assert state_of(build) == BuildState.BUILT


def test_store_that_is_away_harms_no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    build = stored_build()

    def away(_sha256: str) -> bool:
        raise DomainError("store-away", "no answer", permanent=False)

    monkeypatch.setattr("server.builds.expiry.is_whole", away)
    assert check_artifacts(seconds=HOUR) == (0, [])
    assert state_of(build) == BuildState.BUILT


def test_agent_gets_a_cut_off_answer_for_a_damaged_file_and_then_none(store: ArtifactStore) -> None:
    build = stored_build()
    session = build_session(machine=build_machine("vm"), base_build=build, patched_build=build)
    build_attempt(session)
    token = issue_token(name="vm", scope=ApiToken.Scope.MACHINE, subject="vm")
    address = f"/api/v1/agent/artifacts/{sha_of(IMAGE)}"
    headers = {"Authorization": f"Bearer {token}"}
    whole = Client().get(address, headers=headers)
    assert (whole.getvalue(), whole["Content-Length"]) == (IMAGE, str(len(IMAGE)))
    damage(store, sha_of(IMAGE), b"rotten")
    with pytest.raises(DomainError, match="damaged"):
        Client().get(address, headers=headers).getvalue()
    assert state_of(build) == BuildState.EXPIRED
    assert Client().get(address, headers=headers).status_code == 404


def test_public_readers_find_damage_as_well() -> None:
    build = stored_build()
    damage(artifact_store(), sha_of(b"log"), b"lag")
    with pytest.raises(DomainError, match="damaged"):
        list(serve_artifact(sha_of(b"log")).chunks)
    assert build.artifacts.get(kind="log").removed_at is not None


def test_command_reads_everything_and_fails_when_something_is_damaged() -> None:
    stored_build()
    out = StringIO()
    call_command("check_artifacts", stdout=out)
    assert out.getvalue() == "2 files were read, 0 are damaged or gone\n"
    damage(artifact_store(), sha_of(IMAGE), b"rot")
    call_command("check_artifacts", "--due", stdout=out)
    with pytest.raises(CommandError, match="built again"):
        call_command("check_artifacts", stdout=out)
    assert f"put aside: {sha_of(IMAGE)}" in out.getvalue()
